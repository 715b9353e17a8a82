//! XRC domains, `ibv_open_xrcd(3)`, and the receiving half of XRC connections, `ibv_open_qp(3)`.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::FileId;

use crate::call;
use crate::errno::Error;
use crate::handle::{Kind, Object, context_pointer, find, find_context, not_null};
use crate::qp;

/// An XRC domain.
pub(crate) struct Xrcd {
    pub(crate) nic: Arc<adverb_nic::Xrcd>,
}

impl Kind for Xrcd {
    type Public = ibv_xrcd;
    const NAME: &'static str = "XRC domain";
    const MARK: u64 = 0xad8c_0000_0000_0001;

    unsafe fn context(public: *const Self::Public) -> *mut ibv_context {
        // SAFETY: as our caller promises.
        unsafe { (*public).context }
    }
}

/// The domain that a call in `context` names.
///
/// # Safety
/// `xrcd` is NULL or a domain.
pub(crate) unsafe fn domain_of<'a>(
    context: *mut ibv_context,
    xrcd: *mut ibv_xrcd,
) -> Result<&'a Object<Xrcd>, Error> {
    // SAFETY: as our caller promises.
    let domain = unsafe { find::<Xrcd>(xrcd) }?;
    // SAFETY: the domain is alive, and the field is never written to.
    if unsafe { (*domain.public()).context } != context {
        return Err(Error::Argument("the XRC domain belongs to another context"));
    }
    Ok(domain)
}

/// What tells files apart. None for -1, which stands for no file.
fn file_id(fd: c_int) -> Result<Option<FileId>, Error> {
    if fd == -1 {
        return Ok(None);
    }
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place can be written; a descriptor that is not open is answered with an error.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call has succeeded.
    let stat = unsafe { stat.assume_init() };
    Ok(Some((stat.st_dev, stat.st_ino)))
}

const DOMAIN_ATTRS: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

/// `ibv_open_xrcd(3)`, behind the context's table.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    let open = || -> Result<*mut ibv_xrcd, Error> {
        // SAFETY: as our caller promises.
        let found = unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        if attr.comp_mask & !DOMAIN_ATTRS != 0 {
            return Err(Error::Bits {
                what: "comp_mask",
                bits: u64::from(attr.comp_mask & !DOMAIN_ATTRS),
            });
        }
        if attr.comp_mask != DOMAIN_ATTRS {
            return Err(Error::Argument(
                "the attributes must give both fd and oflags",
            ));
        }
        let create = attr.oflags & libc::O_CREAT != 0;
        let exclusive = create && attr.oflags & libc::O_EXCL != 0;
        let nic = found.nic.open_xrcd(file_id(attr.fd)?, create, exclusive)?;
        let public = ibv_xrcd {
            context: context_pointer(found),
        };
        Ok(Object::create(public, Xrcd { nic }).public())
    };
    call::pointer("ibv_open_xrcd", open)
}

/// `ibv_close_xrcd(3)`. EBUSY while a queue pair or an SRQ was made through it.
///
/// # Safety
/// `xrcd` is NULL or a domain.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    let close = || -> Result<(), Error> {
        // SAFETY: as our caller promises.
        let xrcd = unsafe { find::<Xrcd>(xrcd) }?;
        xrcd.nic.close()?;
        // SAFETY: nothing refers to it any more.
        unsafe { xrcd.free() };
        Ok(())
    };
    call::status("ibv_close_xrcd", close)
}

const OPEN_ATTRS: u32 =
    IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;

/// `ibv_open_qp(3)`, behind the context's table: a further handle of an XRC_RECV queue pair.
///
/// # Safety
/// `context` is NULL or a context, `attr` NULL or readable, and the domain in it NULL or alive.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    let open = || -> Result<*mut ibv_qp, Error> {
        // SAFETY: as our caller promises.
        unsafe { find_context(context) }?;
        not_null(attr, "attribute")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let attr = unsafe { *attr };
        if attr.comp_mask & !OPEN_ATTRS != 0 {
            return Err(Error::Unsupported(
                "an attribute of ibv_qp_open_attr that is not known",
            ));
        }
        if (attr.comp_mask | IBV_QP_OPEN_ATTR_CONTEXT) != OPEN_ATTRS {
            return Err(Error::Argument(
                "the attributes must give the number, the XRC domain and the type",
            ));
        }
        if attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(Error::Argument("only an XRC_RECV queue pair can be opened"));
        }
        // SAFETY: as our caller promises.
        let domain = unsafe { domain_of(context, attr.xrcd) }?;
        let qp_context = match attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT {
            0 => std::ptr::null_mut(),
            _ => attr.qp_context,
        };
        let made = qp::target(context, qp_context, |token| {
            domain.nic.open_qp(attr.qp_num, token)
        })?;
        Ok(made.public().cast())
    };
    call::pointer("ibv_open_qp", open)
}
