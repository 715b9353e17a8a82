//! Finding a system library and its versioned symbols at run time.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;

/// A symbol only our own drop-in library has.
const DROPIN_MARKER: &str = "adverb_dropin_marker";

/// Where a system library is looked for.
pub(super) struct System {
    /// Its name for the loader.
    pub(super) name: &'static str,
    /// The variable that names another file; empty means that no system library is wanted.
    pub(super) variable: &'static str,
}

/// The system's library is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("{path}: {reason}")]
    Open { path: String, reason: String },
    #[error("{path} has no {symbol} (version {version}): too old, or another library")]
    MissingSymbol {
        path: String,
        symbol: &'static str,
        version: &'static str,
    },
}

/// A loaded library. There is deliberately no way to unload it.
pub(super) struct Library {
    handle: *mut c_void,
    path: String,
}

impl Library {
    pub(super) fn open_system(system: &System) -> Result<Option<Self>, LoadError> {
        // SAFETY: the call reads what the kernel handed over at the start of the process.
        let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        // Which code runs with a set-user-ID program's rights is not for whoever starts it to say.
        let path = match secure {
            true => None,
            false => std::env::var_os(system.variable),
        };
        match path {
            Some(path) if path.is_empty() => Ok(None),
            Some(path) => {
                // A file that was asked for by name and is missing deserves a word.
                let library = Self::open(&path).map_err(|failure| failure.error)?;
                Ok(library.unless_dropin())
            }
            None => match Self::open(OsStr::new(system.name)) {
                Ok(library) => Ok(library.unless_dropin()),
                Err(failure) if failure.absent => Ok(None),
                Err(failure) => Err(failure.error),
            },
        }
    }

    fn open(path: &OsStr) -> Result<Self, OpenFailure> {
        let shown = path.to_string_lossy().into_owned();
        let Ok(name) = CString::new(path.as_bytes()) else {
            let reason = "the name contains a NUL byte".to_owned();
            return Err(OpenFailure {
                absent: false,
                error: LoadError::Open {
                    path: shown,
                    reason,
                },
            });
        };
        // SAFETY: the name is a C string. Loading runs the library's constructors, which is what
        // using the system's verbs means.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let reason = last_error();
            // The loader names the file it misses first: ours, or one that ours depends on. Only
            // the former means that nothing is installed.
            let absent = reason
                .strip_prefix(&shown)
                .is_some_and(|rest| rest.contains("No such file") || rest.contains("not found"));
            return Err(OpenFailure {
                absent,
                error: LoadError::Open {
                    path: shown,
                    reason,
                },
            });
        }
        Ok(Self {
            handle,
            path: shown,
        })
    }

    fn unless_dropin(self) -> Option<Self> {
        self.find_default(DROPIN_MARKER).is_null().then_some(self)
    }

    /// The symbol's address, or an error that names it.
    pub(super) fn require(
        &self,
        symbol: &'static str,
        version: &'static str,
    ) -> Result<*mut c_void, LoadError> {
        let address = self.find(symbol, version);
        if address.is_null() {
            let path = self.path.clone();
            return Err(LoadError::MissingSymbol {
                path,
                symbol,
                version,
            });
        }
        Ok(address)
    }

    /// The symbol's address at that version, else at its default version, else NULL.
    ///
    /// The version is pinned because the newest default might one day mean other arguments. The
    /// second look serves libraries that were built without version nodes.
    pub(super) fn find(&self, symbol: &str, version: &str) -> *mut c_void {
        if let (Ok(name), Ok(version)) = (CString::new(symbol), CString::new(version)) {
            let pinned = self.find_version(&name, &version);
            if !pinned.is_null() {
                return pinned;
            }
        }
        self.find_default(symbol)
    }

    /// The symbol's address at whichever version, else NULL. Not by an empty version: glibc's dlvsym follows a null pointer
    /// when it meets a symbol of that name that has no version.
    fn find_default(&self, symbol: &str) -> *mut c_void {
        let Ok(symbol) = CString::new(symbol) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the handle is live and the name a C string.
        unsafe { libc::dlsym(self.handle, symbol.as_ptr()) }
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn find_version(&self, symbol: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: the handle is live and both names are C strings.
        unsafe { libc::dlvsym(self.handle, symbol.as_ptr(), version.as_ptr()) }
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    fn find_version(&self, _symbol: &CStr, _version: &CStr) -> *mut c_void {
        std::ptr::null_mut()
    }
}

struct OpenFailure {
    /// There is no such file, as opposed to one that does not load.
    absent: bool,
    error: LoadError,
}

/// What the loader last complained about on this thread.
fn last_error() -> String {
    // SAFETY: `dlerror` returns NULL or a C string that lives until the next call on this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the loader gives no reason".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
