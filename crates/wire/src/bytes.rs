//! Reading and writing big-endian numbers one after the other.

/// Takes numbers off the front of received bytes; `None` when they run out.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u24(&mut self) -> Option<u32> {
        self.take()
            .map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Puts numbers at the front of a buffer of ours.
///
/// Running out of room is a mistake of the caller, who knows the size beforehand; it panics.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    #[inline]
    pub(crate) const fn new(buffer: &'a mut [u8]) -> Self {
        Self { rest: buffer }
    }

    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (head, rest) = std::mem::take(&mut self.rest)
            .split_first_chunk_mut::<N>()
            .expect("the caller's buffer has room for the packet");
        *head = bytes;
        self.rest = rest;
    }

    #[inline]
    pub(crate) fn put_u24(&mut self, first: u8, number: u32) {
        let [_, a, b, c] = number.to_be_bytes();
        self.put([first, a, b, c]);
    }

    #[inline]
    pub(crate) fn put_u24_then(&mut self, number: u32, last: u8) {
        let [_, a, b, c] = number.to_be_bytes();
        self.put([a, b, c, last]);
    }
}
