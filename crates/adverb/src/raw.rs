//! Memory that is somebody else's: of another library, of another device.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use adverb_abi::flags::AccessFlags;

use crate::error::{Error, Result};
use crate::exposed::ExposedSlice;
use crate::mr::{MemoryRegion, Registration};
use crate::pd::ProtectionDomain;
use crate::remote::{RemoteRegion, bounds};

/// Registered memory that this library does not own. It never becomes a slice of Rust, but its parts
/// are sources and targets of operations, and peers reach it if the rights say so.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// # use adverb::{AccessFlags, Inline, Wait, transport::Rc};
/// # let ctx = adverb::open_default()?;
/// # let pd = ctx.alloc_pd()?;
/// # let cq = ctx.create_cq(64).build()?;
/// # let (a, b) = (pd.create_qp::<Rc>(&cq).max_inline(8).build()?, pd.create_qp::<Rc>(&cq).build()?);
/// # a.connect(&b.endpoint())?;
/// # b.connect(&a.endpoint())?;
/// let theirs = Box::into_raw(Box::new([0u8; 64]));
/// // SAFETY: it is freed below, when the region is gone, and not used before.
/// let region = unsafe { pd.reg_mr_raw(theirs.cast(), 64, AccessFlags::LOCAL_WRITE)? };
/// b.post_recv(region.slice(8..16)?)?;
/// a.post_send(Inline(b"received"))?;
/// let mut done = Vec::new();
/// while done.len() < 2 {
///     cq.wait(&mut done, Wait::default(), None)?;
/// }
/// drop((done, region));
/// // SAFETY: it came from a box.
/// let ours = unsafe { Box::from_raw(theirs) };
/// assert_eq!(&ours[8..16], b"received");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_mr")]
pub struct RawRegion(MemoryRegion);

impl ProtectionDomain {
    /// Registers memory that this library does not own: a mapping, memory of another library
    /// (ibv_reg_mr(3)).
    ///
    /// # Safety
    /// The bytes stay mapped until the last clone of the region is gone, and the last operation on
    /// its parts; nobody uses them in a way that conflicts with what the device and, with remote
    /// rights, peers do to them.
    ///
    /// # Errors
    /// [`Error::Verb`] (EFAULT: not mapped); [`Error::Value`] for a NULL address.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn reg_mr_raw(
        &self,
        addr: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<RawRegion> {
        let base = NonNull::new(addr).ok_or(Error::Value {
            what: "address",
            value: 0,
            limit: u64::MAX,
        })?;
        // SAFETY: the caller promises what `foreign` asks for.
        let region = unsafe { Registration::foreign(&self.inner, base, len, access)? };
        Ok(RawRegion(MemoryRegion(region)))
    }

    /// Registers `len` bytes of a dma-buf from `offset` on, such as memory of a GPU
    /// (ibv_reg_dmabuf_mr(3)); operations and peers name them by addresses from `iova` on.
    ///
    /// # Safety
    /// As for [`reg_mr_raw`](Self::reg_mr_raw).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on devices that cannot, of which the software NIC is one: such
    /// memory is out of its reach; [`Error::Verb`].
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn reg_dmabuf_mr(
        &self,
        buffer: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<RawRegion> {
        let fd = buffer.as_raw_fd();
        // SAFETY: the caller promises what `dmabuf` asks for.
        let region = unsafe { Registration::dmabuf(&self.inner, fd, offset, len, iova, access)? };
        Ok(RawRegion(MemoryRegion(region)))
    }
}

impl RawRegion {
    /// A part of it as source or target of an operation of our own.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<ExposedSlice> {
        let (offset, len) = bounds(range, self.len() as u64)?;
        Ok(ExposedSlice::of(&self.0.0, offset as usize, len as usize))
    }

    /// The descriptor to send to peers.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.addr(),
            len: self.len() as u64,
            rkey: self.rkey(),
        }
    }
}

impl Deref for RawRegion {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.0
    }
}

impl fmt::Debug for RawRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
