//! Which connection manager: the software NIC's, or the system's librdmacm for cards. And the
//! device behind an id, opened.

use std::process;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use adverb_abi::table::Rdmacm;

use crate::context::{Context, ContextInner};
use crate::device::{Origin, devices};
use crate::error::{Error, Result};
use crate::sync::lock;

/// The functions of one connection manager.
#[derive(Clone, Copy)]
pub(super) struct Library {
    pub(super) calls: &'static Rdmacm,
    pub(super) origin: Origin,
}

/// As with devices, the software NIC comes first if it is linked in.
pub(super) const DEFAULT: Origin = if cfg!(feature = "soft") {
    Origin::Software
} else {
    Origin::System
};

impl Library {
    pub(super) fn of(origin: Origin) -> Result<Self> {
        let calls = match origin {
            Origin::Software => software()?,
            Origin::System => system()?,
        };
        Ok(Self { calls, origin })
    }
}

#[cfg(feature = "soft")]
#[allow(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn software() -> Result<&'static Rdmacm> {
    Ok(adverb_provider::rdmacm())
}

#[cfg(not(feature = "soft"))]
fn software() -> Result<&'static Rdmacm> {
    Err(Error::Unsupported {
        what: "the software NIC",
        object: "a build without the feature `soft`".to_owned(),
    })
}

/// The system's library, looked for once and never closed.
fn system() -> Result<&'static Rdmacm> {
    static SYSTEM: OnceLock<Result<Option<Rdmacm>, String>> = OnceLock::new();
    match SYSTEM.get_or_init(|| Rdmacm::load_system().map_err(|e| e.to_string())) {
        Ok(Some(calls)) => Ok(calls),
        Ok(None) => Err(Error::Unsupported {
            what: "a connection manager (librdmacm)",
            object: "the system".to_owned(),
        }),
        Err(text) => Err(Error::Load(text.clone())),
    }
}

/// A device that is open for somebody.
struct Opened {
    process: u32,
    origin: Origin,
    context: Weak<ContextInner>,
}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// The device of this name, open: the same context for all who hold it at a time, so that what
/// is made for one connection can be used for the next. A forked child opens its own.
pub(super) fn context(origin: Origin, name: &str) -> Result<Context> {
    let process = process::id();
    let mut opened = lock(&OPENED);
    opened.retain(|known| known.context.strong_count() > 0);
    let known = opened
        .iter()
        .filter(|known| known.process == process && known.origin == origin)
        .find_map(|known| known.context.upgrade().filter(|c| c.name == name));
    if let Some(inner) = known {
        return Ok(Context { inner });
    }
    let devices = devices()?;
    let device = devices
        .iter()
        .find(|d| d.origin() == origin && d.name() == name);
    let Some(device) = device else {
        return Err(Error::NoDevice {
            wanted: Some(name.to_owned()),
            available: devices.iter().map(|d| d.name().to_owned()).collect(),
        });
    };
    let context = device.open()?;
    opened.push(Opened {
        process,
        origin,
        context: Arc::downgrade(&context.inner),
    });
    Ok(context)
}
