//! Sizes and offsets of every structure, as measured on x86_64 with rdma-core 65.
//!
//! Each number is asserted at compile time and listed in `LAYOUTS`, which the layout test
//! compares with the C headers of the machine it runs on.

/// The expected layout of one C type.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// `struct` or `union`, as C needs to hear it.
    pub kind: &'static str,
    pub name: &'static str,
    pub size: usize,
    /// Field names as C spells them, with their offsets.
    pub fields: &'static [(&'static str, usize)],
}

/// A field spelled differently in C (an anonymous union there) is written `ours as theirs`.
macro_rules! layouts {
    (@c $field:ident) => { stringify!($field) };
    (@c $field:ident $c:ident) => { stringify!($c) };
    ($($kind:tt $name:ident: $size:literal {
        $($field:ident $(as $c:ident)?: $offset:literal),* $(,)?
    })*) => {
        $(const _: () = {
            assert!(size_of::<crate::types::$name>() == $size);
            $(assert!(std::mem::offset_of!(crate::types::$name, $field) == $offset);)*
        };)*
        /// The layouts of this table.
        pub static LAYOUTS: &[Layout] = &[$(Layout {
            kind: stringify!($kind),
            name: stringify!($name),
            size: $size,
            fields: &[$((layouts!(@c $field $($c)?), $offset)),*],
        }),*];
    };
}

pub mod cm;
pub mod verbs;
