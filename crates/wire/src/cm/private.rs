//! Private data: padding, and the header that librdmacm puts in front of it in requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};

/// `data` in a field of `N` bytes, zeros behind it; `None` if it is longer than the field.
#[must_use]
pub fn padded<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut field = [0; N];
    field.get_mut(..data.len())?.copy_from_slice(data);
    Some(field)
}

/// What stands in front of the application's private data in REQ and SIDR_REQ: whose IP addresses the connection is
/// between, and the port of the side that asks. The port asked for is in the service ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmaHeader {
    pub src_port: u16,
    pub src: IpAddr,
    /// Of the same family as `src`: the header has one version number for both.
    pub dst: IpAddr,
}

/// Why private data does not begin with such a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmaHeaderError {
    #[error("{0} bytes of private data, the header alone has {len}", len = CmaHeader::LEN)]
    Length(usize),
    #[error("header version {0:#04x}, only 0 exists")]
    Version(u8),
    #[error("IP version {0}, expected 4 or 6")]
    IpVersion(u8),
}

impl CmaHeader {
    pub const LEN: usize = 36;

    /// The header, and the application's data behind it.
    pub fn split(private: &[u8]) -> Result<(Self, &[u8]), CmaHeaderError> {
        let header = Self::parse(private)?;
        Ok((header, private.get(Self::LEN..).unwrap_or_default()))
    }

    /// The header and the application's data in a field of `N` bytes; `None` if they are longer than that.
    #[must_use]
    pub fn join<const N: usize>(&self, data: &[u8]) -> Option<[u8; N]> {
        let mut field = [0; N];
        field.get_mut(..Self::LEN)?.copy_from_slice(&self.emit());
        field
            .get_mut(Self::LEN..)?
            .get_mut(..data.len())?
            .copy_from_slice(data);
        Some(field)
    }

    pub fn parse(private: &[u8]) -> Result<Self, CmaHeaderError> {
        let mut r = Reader::new(private);
        let fields = (|| {
            let [version, ip_version] = r.take()?;
            let src_port = r.u16()?;
            Some((version, ip_version >> 4, src_port, r.take()?, r.take()?))
        })();
        let Some((version, ip_version, src_port, src, dst)) = fields else {
            return Err(CmaHeaderError::Length(private.len()));
        };
        if version != 0 {
            return Err(CmaHeaderError::Version(version));
        }
        let address = match ip_version {
            4 => v4,
            6 => v6,
            other => return Err(CmaHeaderError::IpVersion(other)),
        };
        Ok(Self {
            src_port,
            src: address(src),
            dst: address(dst),
        })
    }

    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let out = &mut Writer::new(&mut bytes);
        let version = if self.dst.is_ipv4() { 4 } else { 6 };
        out.put([0, version << 4]);
        out.put(self.src_port.to_be_bytes());
        for address in [self.src, self.dst] {
            match address {
                IpAddr::V4(ip) => {
                    out.put([0; 12]);
                    out.put(ip.octets());
                }
                IpAddr::V6(ip) => out.put(ip.octets()),
            }
        }
        bytes
    }
}

/// The last four bytes of the field; the others are reserved.
fn v4([.., a, b, c, d]: [u8; 16]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn v6(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_families_survive_the_round_trip() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fe80::2")] {
            let header = CmaHeader {
                src_port: 0xCE26,
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
            };
            let field: [u8; 92] = header.join(b"hello").unwrap();
            let (again, data) = CmaHeader::split(&field).unwrap();
            assert_eq!(again, header);
            assert_eq!(data.len(), 56);
            assert_eq!(&data[..6], b"hello\0");
        }
    }

    #[test]
    fn what_does_not_fit_or_is_no_header_is_refused() {
        let header = CmaHeader {
            src_port: 1,
            src: Ipv4Addr::LOCALHOST.into(),
            dst: Ipv4Addr::LOCALHOST.into(),
        };
        assert!(header.join::<92>(&[1; 56]).is_some());
        assert!(header.join::<92>(&[1; 57]).is_none());
        assert_eq!(padded::<4>(&[1; 4]), Some([1; 4]));
        assert_eq!(padded::<4>(&[1; 5]), None);
        let mut bytes = header.emit();
        let parse = CmaHeader::parse;
        assert_eq!(parse(&bytes[..35]), Err(CmaHeaderError::Length(35)));
        bytes[1] = 0x50;
        assert_eq!(parse(&bytes), Err(CmaHeaderError::IpVersion(5)));
        bytes[0] = 0x10;
        assert_eq!(parse(&bytes), Err(CmaHeaderError::Version(0x10)));
    }
}
