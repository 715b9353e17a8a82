//! What two sides tell each other before they can talk, over any side channel.

use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::remote::RemoteRegion;
use crate::values::{Gid, Mtu, low24};

/// Where a queue pair can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Address of its port.
    pub gid: Gid,
    /// Local identifier of its port; 0 on RoCE.
    pub lid: u16,
    /// Its number, 24 bits.
    pub qpn: u32,
    /// The first packet sequence number it sends, 24 bits.
    pub psn: u32,
    /// The MTU of its port. Two sides use the smaller one.
    pub mtu: Mtu,
    /// Its queue key, for datagrams.
    pub qkey: u32,
}

impl Endpoint {
    /// Size of the byte form.
    pub const BYTES: usize = 32;
    /// First byte of the byte form; another form would have another.
    const VERSION: u8 = 1;

    /// Its form for any side channel: version 1, MTU (1 to 5), LID, QPN, PSN, queue key, GID;
    /// big-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0] = Self::VERSION;
        out[1] = self.mtu as u8;
        out[2..4].copy_from_slice(&self.lid.to_be_bytes());
        out[4..8].copy_from_slice(&self.qpn.to_be_bytes());
        out[8..12].copy_from_slice(&self.psn.to_be_bytes());
        out[12..16].copy_from_slice(&self.qkey.to_be_bytes());
        out[16..].copy_from_slice(&self.gid.0);
        out
    }

    /// Reads [`to_bytes`](Self::to_bytes) back.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = |why: String| Error::Malformed {
            what: "endpoint",
            why,
        };
        let bytes: &[u8; Self::BYTES] = bytes
            .try_into()
            .map_err(|_| malformed(format!("{} bytes instead of {}", bytes.len(), Self::BYTES)))?;
        if bytes[0] != Self::VERSION {
            return Err(malformed(format!(
                "version {} instead of {}",
                bytes[0],
                Self::VERSION
            )));
        }
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            gid: Gid(std::array::from_fn(|i| bytes[16 + i])),
            lid: u16::from_be_bytes([bytes[2], bytes[3]]),
            qpn: word(4),
            psn: word(8),
            mtu: Mtu::from_ibv(bytes[1].into())
                .ok_or_else(|| malformed(format!("MTU code {}", bytes[1])))?,
            qkey: word(12),
        }
        .checked()
    }

    /// Numbers of more than 24 bits name nothing.
    fn checked(self) -> Result<Self> {
        for (what, value) in [
            ("queue pair number", self.qpn),
            ("packet sequence number", self.psn),
        ] {
            if low24(value) != value {
                return Err(Error::Value {
                    what,
                    value: value.into(),
                    limit: 0x00ff_ffff,
                });
            }
        }
        Ok(self)
    }
}

/// One line without spaces, made to be pasted: `gid/qpn/psn/mtu/lid/qkey`, numbers in
/// hexadecimal but for the MTU, which is in bytes.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{:06x}/{:06x}/{}/{:x}/{:x}",
            self.gid,
            self.qpn,
            self.psn,
            self.mtu.bytes(),
            self.lid,
            self.qkey
        )
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let parts: Vec<&str> = s.trim().split('/').collect();
        let parsed = || -> Option<Self> {
            let [gid, qpn, psn, mtu, lid, qkey] = parts.as_slice() else {
                return None;
            };
            let bytes: usize = mtu.parse().ok()?;
            Some(Self {
                gid: gid.parse().ok()?,
                qpn: u32::from_str_radix(qpn, 16).ok()?,
                psn: u32::from_str_radix(psn, 16).ok()?,
                mtu: (1..=5)
                    .filter_map(Mtu::from_ibv)
                    .find(|m| m.bytes() == bytes)?,
                lid: u16::from_str_radix(lid, 16).ok()?,
                qkey: u32::from_str_radix(qkey, 16).ok()?,
            })
        };
        parsed()
            .ok_or_else(|| Error::Malformed {
                what: "endpoint",
                why: format!("{s:?} is not of the form gid/qpn/psn/mtu/lid/qkey"),
            })?
            .checked()
    }
}

/// All that one side tells the other: its endpoint and the memory it offers.
///
/// ```
/// # use adverb::{Endpoint, Introduction};
/// let mine = Introduction::new("::ffff:10.0.0.1/0a0b0c/000001/4096/0/0".parse::<Endpoint>()?);
/// assert_eq!(Introduction::from_bytes(&mine.to_bytes())?, mine);
/// # Ok::<(), adverb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Where to connect to.
    pub endpoint: Endpoint,
    /// Memory that the other side may use, in an order both sides know.
    pub regions: Vec<RemoteRegion>,
}

impl Introduction {
    /// Most regions in one introduction.
    pub const MAX_REGIONS: usize = 1024;

    /// An endpoint without memory.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            regions: Vec::new(),
        }
    }

    /// Adds a region.
    #[must_use]
    pub fn with_region(mut self, region: RemoteRegion) -> Self {
        self.regions.push(region);
        self
    }

    /// Endpoint, then regions, in their byte forms.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(Endpoint::BYTES + self.regions.len() * RemoteRegion::BYTES);
        out.extend(self.endpoint.to_bytes());
        for region in &self.regions {
            out.extend(region.to_bytes());
        }
        out
    }

    /// Reads [`to_bytes`](Self::to_bytes) back.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let Some((endpoint, regions)) = bytes.split_first_chunk::<{ Endpoint::BYTES }>() else {
            return Err(Error::Malformed {
                what: "introduction",
                why: format!("{} bytes are too few", bytes.len()),
            });
        };
        Ok(Self {
            endpoint: Endpoint::from_bytes(endpoint)?,
            regions: regions
                .chunks(RemoteRegion::BYTES)
                .map(RemoteRegion::from_bytes)
                .collect::<Result<_>>()?,
        })
    }

    /// Sends this one and receives the other side's, over any stream on which both call this.
    /// Each is preceded by its length as 4 bytes, big-endian.
    ///
    /// # Errors
    /// [`Error::Io`] from the stream; [`Error::Malformed`], [`Error::Value`] for what came in.
    pub fn exchange(&self, stream: &mut (impl Read + Write)) -> Result<Self> {
        let bytes = self.to_bytes();
        let limit = (Endpoint::BYTES + Self::MAX_REGIONS * RemoteRegion::BYTES) as u64;
        let check = |value: u64| match value <= limit {
            true => Ok(()),
            false => Err(Error::Value {
                what: "bytes of an introduction",
                value,
                limit,
            }),
        };
        check(bytes.len() as u64)?;
        stream.write_all(&(bytes.len() as u32).to_be_bytes())?;
        stream.write_all(&bytes)?;
        stream.flush()?;
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len);
        check(len.into())?;
        let mut theirs = vec![0; len as usize];
        stream.read_exact(&mut theirs)?;
        Self::from_bytes(&theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::RKey;

    fn endpoint() -> Endpoint {
        Endpoint {
            gid: "fe80::12".parse().unwrap(),
            lid: 7,
            qpn: 0x00ab_cdef,
            psn: 0x00fe_dcba,
            mtu: Mtu::B1024,
            qkey: 0x1111_1111,
        }
    }

    #[test]
    fn endpoints_survive_bytes_and_text() {
        assert_eq!(
            Endpoint::from_bytes(&endpoint().to_bytes()).unwrap(),
            endpoint()
        );
        assert_eq!(
            endpoint().to_string().parse::<Endpoint>().unwrap(),
            endpoint()
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let good = endpoint().to_bytes();
        for (at, value) in [(0, 2), (1, 0), (1, 6), (4, 1), (8, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert!(Endpoint::from_bytes(&bad).is_err(), "byte {at} = {value}");
        }
        assert!(Endpoint::from_bytes(&good[1..]).is_err());
        for bad in [
            "",
            "a/b/c",
            "fe80::1/1/1/4097/0/0",
            "fe80::1/1000000/1/4096/0/0",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn introductions_are_swapped_over_a_stream() {
        let (mut a, mut b) = std::os::unix::net::UnixStream::pair().unwrap();
        let region = RemoteRegion {
            addr: 4096,
            len: 64,
            rkey: RKey(9),
        };
        let ours = Introduction::new(endpoint()).with_region(region);
        let theirs = Introduction::new(Endpoint {
            qpn: 1,
            ..endpoint()
        });
        let sent = theirs.clone();
        let peer = std::thread::spawn(move || sent.exchange(&mut b).unwrap());
        assert_eq!(ours.exchange(&mut a).unwrap(), theirs);
        assert_eq!(peer.join().unwrap(), ours);
        assert!(Introduction::from_bytes(&ours.to_bytes()[..51]).is_err());
    }

    #[test]
    fn a_length_that_cannot_be_right_allocates_nothing() {
        let (mut a, mut b) = std::os::unix::net::UnixStream::pair().unwrap();
        b.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(
            Introduction::new(endpoint()).exchange(&mut a),
            Err(Error::Value { .. })
        ));
    }
}
