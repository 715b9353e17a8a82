//! [`Verbs`] and [`Rdmacm`]: the exported functions of libibverbs and librdmacm, each as one table.
//!
//! A table is filled either from the system's library ([`Verbs::load_system`]) or, by a plain
//! struct literal, from our own functions. Whoever holds one does not see the difference.
//! What the C headers make inline is in [`crate::inline`].

mod library;
mod rdmacm;
mod verbs;

pub use library::LoadError;
pub use rdmacm::Rdmacm;
pub use verbs::Verbs;

macro_rules! library_table {
    (
        $(#[$doc:meta])* $table:ident from $system:expr;
        required { $($(#[$rdoc:meta])* $rsym:literal @ $rver:literal
            $rname:ident($($rarg:ident: $rty:ty),*) $(-> $rret:ty)?;)* }
        optional { $($(#[$odoc:meta])* $osym:literal @ $over:literal
            $oname:ident($($oarg:ident: $oty:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        $(#[$doc])*
        ///
        /// Calling them obeys the C contract: live pointers of this provider, no object destroyed
        /// while another thread uses it. `None` is a function the library is too old to have.
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            $($(#[$rdoc])* pub $rname: unsafe extern "C" fn($($rarg: $rty),*) $(-> $rret)?,)*
            $($(#[$odoc])* pub $oname:
                Option<unsafe extern "C" fn($($oarg: $oty),*) $(-> $oret)?>,)*
        }

        impl $table {
            /// The system's library, or `None` where there is none.
            ///
            /// Its variable names another file; set but empty, it means "no system library". Our
            /// own drop-in library is not hardware, so finding it under that name counts as `None`
            /// too. A library that was loaded is never unloaded: providers start threads and
            /// register handlers that cannot be taken back.
            pub fn load_system() -> Result<Option<Self>, LoadError> {
                match Library::open_system(&$system)? {
                    Some(library) => Self::from_library(&library).map(Some),
                    None => Ok(None),
                }
            }

            fn from_library(library: &Library) -> Result<Self, LoadError> {
                // SAFETY: each name at its version has the signature declared here; that is what
                // a version node of the library means, and it never changes.
                unsafe {
                    Ok(Self {
                        $($rname: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($rty),*) $(-> $rret)?,
                        >(library.require($rsym, $rver)?),)*
                        $($oname: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($oty),*) $(-> $oret)?>,
                        >(library.find($osym, $over)),)*
                    })
                }
            }

            /// The symbol and version node behind each field, required ones first.
            pub const SYMBOLS: &[(&str, &str)] = &[
                $(($rsym, $rver),)*
                $(($osym, $over),)*
            ];
        }
    };
}
use library_table;
