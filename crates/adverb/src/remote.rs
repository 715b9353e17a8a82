//! Descriptors of a peer's memory: what one side writes down and the other side uses.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::values::RKey;

/// Memory of a peer, as it told us: address, length and key.
///
/// It is plain data. The peer's device checks every access, so a wrong or outdated descriptor
/// ends in [`WcStatus::REM_ACCESS_ERR`](crate::WcStatus::REM_ACCESS_ERR), not in harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Address of the first byte, as the peer counts.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The key that opens it.
    pub rkey: RKey,
}

impl RemoteRegion {
    /// Size of the byte form.
    pub const BYTES: usize = 20;

    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self> {
        let (offset, len) = bounds(range, self.len)?;
        Ok(Self {
            addr: self.addr.wrapping_add(offset),
            len,
            rkey: self.rkey,
        })
    }

    /// Its form for any side channel: address, length (8 bytes each) and key (4), big-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.addr.to_be_bytes());
        out[8..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..].copy_from_slice(&self.rkey.0.to_be_bytes());
        out
    }

    /// Reads [`to_bytes`](Self::to_bytes) back.
    ///
    /// # Errors
    /// [`Error::Malformed`] when there are not exactly [`BYTES`](Self::BYTES) bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| Error::Malformed {
            what: "region descriptor",
            why: format!("{} bytes instead of {}", bytes.len(), Self::BYTES),
        })?;
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let rkey = u32::from_be_bytes(std::array::from_fn(|i| bytes[16 + i]));
        Ok(Self {
            addr: word(0),
            len: word(8),
            rkey: RKey(rkey),
        })
    }
}

/// `addr+len:rkey`, all in hexadecimal.
impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}+{:x}:{:x}", self.addr, self.len, self.rkey.0)
    }
}

impl FromStr for RemoteRegion {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let parts = || -> Option<Self> {
            let (addr, rest) = s.trim().split_once('+')?;
            let (len, rkey) = rest.split_once(':')?;
            Some(Self {
                addr: u64::from_str_radix(addr, 16).ok()?,
                len: u64::from_str_radix(len, 16).ok()?,
                rkey: RKey(u32::from_str_radix(rkey, 16).ok()?),
            })
        };
        parts().ok_or_else(|| Error::Malformed {
            what: "region descriptor",
            why: format!("{s:?} is not of the form addr+len:rkey"),
        })
    }
}

/// Offset and length of a range within `len` bytes.
pub(crate) fn bounds(range: impl RangeBounds<u64>, len: u64) -> Result<(u64, u64)> {
    let start = match range.start_bound() {
        Bound::Included(&s) => s,
        Bound::Excluded(&s) => s.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&e) => e.saturating_add(1),
        Bound::Excluded(&e) => e,
        Bound::Unbounded => len,
    };
    if start > end || end > len {
        return Err(Error::OutOfRange {
            offset: start,
            wanted: end.saturating_sub(start),
            len,
        });
    }
    Ok((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RemoteRegion = RemoteRegion {
        addr: 0x7f00_1234_5000,
        len: 65536,
        rkey: RKey(0x00c0_ffee),
    };

    #[test]
    fn descriptors_survive_bytes_and_text() {
        assert_eq!(
            RemoteRegion::from_bytes(&REGION.to_bytes()).unwrap(),
            REGION
        );
        assert_eq!(REGION.to_string().parse::<RemoteRegion>().unwrap(), REGION);
        assert!(RemoteRegion::from_bytes(&[0; 19]).is_err());
        for bad in ["", "1+2", "1:2", "x+1:2", "1+2:100000000"] {
            assert!(bad.parse::<RemoteRegion>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn slices_stay_inside() {
        let part = REGION.slice(16..24).unwrap();
        assert_eq!((part.addr, part.len), (REGION.addr + 16, 8));
        assert_eq!(REGION.slice(..).unwrap(), REGION);
        assert!(REGION.slice(0..=65536).is_err());
        #[allow(
            clippy::reversed_empty_ranges,
            reason = "that it is refused is the point"
        )]
        let reversed = REGION.slice(5..4);
        assert!(reversed.is_err());
        assert!(REGION.slice(u64::MAX..).is_err());
    }
}
