//! What memory can be registered and given back.

/// Memory that [`reg_mr`](crate::ProtectionDomain::reg_mr) takes, and
/// [`Buf::into_inner`](crate::Buf::into_inner) gives back: `Vec<u8>`, `Box<[u8]>`, `[u8; N]` and
/// `&'static mut [u8]`; the same of other numbers as [`Numbers`]; [`Mapping`](crate::Mapping).
///
/// # Safety
/// What `bytes` returns is initialised, good for reads and writes of any bytes, and reached by nobody
/// else, from the call on and for as long as the value is neither moved, nor used, nor dropped.
pub unsafe trait Registrable: Send + Sync + 'static {
    /// All of it, as bytes.
    fn bytes(&mut self) -> *mut [u8];
}

/// Numbers that are more than bytes, in a vector, boxed slice, array or `&'static mut` slice. They
/// travel in the byte order of this machine. A type of its own, so that `reg_mr(vec![1, 2])` is
/// about bytes.
///
/// ```
/// # fn main() -> Result<(), adverb::Error> {
/// # if cfg!(not(feature = "soft")) { return Ok(()) }
/// use adverb::Numbers;
/// let pd = adverb::open_default()?.alloc_pd()?;
/// let buf = pd.reg_mr(Numbers(vec![1u64, 2, 3]))?;
/// assert_eq!(buf.len(), 24);
/// let Numbers(back): Numbers<Vec<u64>> = buf.into_inner().unwrap();
/// assert_eq!(back, [1, 2, 3]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers<M>(pub M);

macro_rules! registrable {
    ($value:ident => $slice:expr, $([$($generics:tt)*] $kind:ty),*) => {$(
        // SAFETY: a slice of numbers: all of its bytes are initialised, and any value of them is a
        // number. The value owns it alone. That of an array lies in the value itself, which is not
        // moved; the borrow of a `&'static mut` never ends.
        unsafe impl<$($generics)*> Registrable for $kind {
            fn bytes(&mut self) -> *mut [u8] {
                let $value = self;
                let slice: &mut [_] = $slice;
                std::ptr::slice_from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice))
            }
        }
    )*};
}

registrable!(value => value,
    [] Vec<u8>, [] Box<[u8]>, [const N: usize] [u8; N], [] &'static mut [u8]);

macro_rules! numbers {
    ($($number:ty),*) => {$(
        registrable!(value => &mut value.0,
            [] Numbers<Vec<$number>>, [] Numbers<Box<[$number]>>,
            [const N: usize] Numbers<[$number; N]>, [] Numbers<&'static mut [$number]>);
    )*};
}
numbers!(
    u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64
);
