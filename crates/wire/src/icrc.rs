//! The invariant CRC: covers everything from the IP header to the pad that no router changes.
//!
//! It is Ethernet's CRC-32 over eight bytes of ones (where InfiniBand has its local header), the
//! IP header, the UDP header and the packet, with the fields that routers may change set to ones;
//! it is sent least significant byte first.
//!
//! **The identification of IPv4.** The CRC covers it, and a socket does not show it to a receiver.
//! But a CRC is linear: a packet with identification *i* differs from the same packet with 0 by a
//! term that depends on *i* and on how many bytes follow. [`matches_any_id`] takes that term back
//! and so finds the identification the sender must have used, or that there is none. A damaged
//! packet passes with a chance of 2^16 in 2^32, once in 65 536, on top of the checks of the link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use crate::Bth;
use crate::number::UDP_PORT;

/// Bytes of an ICRC.
pub const LEN: usize = 4;

/// The part of the IP and UDP headers that the CRC covers and the packet itself does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    pub ip: IpAddressing,
    pub src_port: u16,
    pub dst_port: u16,
}

/// Addresses of the IP header. Traffic class, hop limit and flow label are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpAddressing {
    V4 {
        src: Ipv4Addr,
        dst: Ipv4Addr,
        /// Identification. "Don't fragment" is taken to be set, as RoCEv2 demands.
        id: u16,
    },
    V6 {
        src: Ipv6Addr,
        dst: Ipv6Addr,
    },
}

impl Addressing {
    /// To RoCEv2's port, with IPv4 identification 0. `None` when the families differ.
    #[must_use]
    pub const fn new(src: IpAddr, dst: IpAddr, src_port: u16) -> Option<Self> {
        let ip = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpAddressing::V4 { src, dst, id: 0 },
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpAddressing::V6 { src, dst },
            _ => return None,
        };
        Some(Self {
            ip,
            src_port,
            dst_port: UDP_PORT,
        })
    }

    /// The same with another identification; without effect on IPv6.
    #[must_use]
    pub const fn with_id(mut self, number: u16) -> Self {
        if let IpAddressing::V4 { id, .. } = &mut self.ip {
            *id = number;
        }
        self
    }
}

/// The ICRC, as sent, of the packet `bth_to_pad`.
///
/// # Panics
/// When the packet is shorter than a BTH, or too long for a UDP datagram: such a packet has no
/// ICRC. Use [`verify`] for received bytes.
#[must_use]
pub fn compute(addressing: &Addressing, bth_to_pad: &[u8]) -> [u8; LEN] {
    crc(addressing, bth_to_pad)
        .expect("a packet has a BTH and fits a datagram")
        .to_le_bytes()
}

/// Whether `received` is the ICRC of this packet. Never panics.
#[must_use]
pub fn verify(addressing: &Addressing, bth_to_pad: &[u8], received: [u8; LEN]) -> bool {
    crc(addressing, bth_to_pad) == Some(u32::from_le_bytes(received))
}

/// The IPv4 identification with which `received` is the ICRC of this packet, if there is one; the
/// identification in `addressing` is tried first. On IPv6, which has none, `Some(0)` for a match.
/// Never panics.
#[must_use]
pub fn matches_any_id(
    addressing: &Addressing,
    bth_to_pad: &[u8],
    received: [u8; LEN],
) -> Option<u16> {
    let difference = crc(addressing, bth_to_pad)? ^ u32::from_le_bytes(received);
    let (assumed, ipv4) = match addressing.ip {
        IpAddressing::V4 { id, .. } => (id, true),
        IpAddressing::V6 { .. } => (0, false),
    };
    if difference == 0 {
        return Some(assumed);
    }
    if !ipv4 {
        return None;
    }
    // From the first byte of the identification to the end of what is summed.
    let distance = (V4_LEN - V4_ID) + UDP_LEN + bth_to_pad.len();
    // With the register turned back by that many bytes, a difference in the two bytes of the
    // identification stands in the 16 bits that they are fed into, and any other does not.
    let fed = turn_back(difference, u16::try_from(distance).ok()?);
    let [first, second, 0, 0] = fed.to_le_bytes() else {
        return None;
    };
    Some(assumed ^ u16::from_be_bytes([first, second]))
}

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Where the identification is in an IPv4 header.
const V4_ID: usize = 4;
const IP_PROTOCOL_UDP: u8 = 17;
/// The CRC of eight bytes 0xFF, from which every ICRC goes on.
const AFTER_ONES: u32 = !0xDEBB_20E3;

fn crc(addressing: &Addressing, bth_to_pad: &[u8]) -> Option<u32> {
    let (bth, rest) = bth_to_pad.split_first_chunk::<{ Bth::LEN }>()?;
    let mut bth = *bth;
    bth[4] = 0xFF;
    let udp_len = u16::try_from(UDP_LEN + bth_to_pad.len() + LEN).ok()?;
    let [len0, len1] = udp_len.to_be_bytes();
    let [src0, src1] = addressing.src_port.to_be_bytes();
    let [dst0, dst1] = addressing.dst_port.to_be_bytes();
    let udp = [src0, src1, dst0, dst1, len0, len1, 0xFF, 0xFF];

    let mut hasher = Hasher::new_with_initial(AFTER_ONES);
    match addressing.ip {
        IpAddressing::V4 { src, dst, id } => {
            let [total0, total1] = udp_len.checked_add(V4_LEN as u16)?.to_be_bytes();
            let [id0, id1] = id.to_be_bytes();
            let fixed = [
                0x45,
                0xFF,
                total0,
                total1,
                id0,
                id1,
                0x40,
                0x00,
                0xFF,
                IP_PROTOCOL_UDP,
                0xFF,
                0xFF,
            ];
            let mut head = [0; V4_LEN + UDP_LEN + Bth::LEN];
            head[..12].copy_from_slice(&fixed);
            head[12..16].copy_from_slice(&src.octets());
            head[16..20].copy_from_slice(&dst.octets());
            head[20..28].copy_from_slice(&udp);
            head[28..].copy_from_slice(&bth);
            hasher.update(&head);
        }
        IpAddressing::V6 { src, dst } => {
            let fixed = [0x6F, 0xFF, 0xFF, 0xFF, len0, len1, IP_PROTOCOL_UDP, 0xFF];
            let mut head = [0; V6_LEN + UDP_LEN + Bth::LEN];
            head[..8].copy_from_slice(&fixed);
            head[8..24].copy_from_slice(&src.octets());
            head[24..40].copy_from_slice(&dst.octets());
            head[40..48].copy_from_slice(&udp);
            head[48..].copy_from_slice(&bth);
            hasher.update(&head);
        }
    }
    hasher.update(rest);
    Some(hasher.finalize())
}

/// What the CRC register held `bytes` zero bytes earlier.
fn turn_back(register: u32, bytes: u16) -> u32 {
    let [high, low] = bytes.to_be_bytes();
    let register = multiply(register, BACK_BY_BYTES[usize::from(low)]);
    multiply(register, BACK_BY_PAGES[usize::from(high)])
}

/// The polynomial, reflected: the bit of x^31 is the lowest, that of x^0 the highest.
const POLYNOMIAL: u32 = 0xEDB8_8320;
const ONE: u32 = 1 << 31;

/// Divides by x^8, which is what undoes feeding a zero byte.
const fn back_one_byte(mut register: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        // Multiplying by x folded the polynomial in when the top coefficient fell out; the
        // constant term (the highest bit here) tells whether it did.
        let folded = register & ONE != 0;
        if folded {
            register ^= POLYNOMIAL;
        }
        register = register << 1 | folded as u32;
        bit += 1;
    }
    register
}

/// x^-8n for n from 0 to 255.
static BACK_BY_BYTES: [u32; 256] = {
    let mut table = [ONE; 256];
    let mut n = 1;
    while n < 256 {
        table[n] = back_one_byte(table[n - 1]);
        n += 1;
    }
    table
};

/// x^-8n for n from 0 to 255 times 256.
static BACK_BY_PAGES: [u32; 256] = {
    let page = back_one_byte(BACK_BY_BYTES[255]);
    let mut table = [ONE; 256];
    let mut n = 1;
    while n < 256 {
        table[n] = multiply(table[n - 1], page);
        n += 1;
    }
    table
};

/// Product of two polynomials over GF(2), modulo the CRC's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        // All ones when this coefficient of `a` is 1; no branches, for the bits are random.
        let take = (a << bit).cast_signed() >> 31;
        product ^= b & take.cast_unsigned();
        let carry = (b << 31).cast_signed() >> 31;
        b = b >> 1 ^ POLYNOMIAL & carry.cast_unsigned();
        bit += 1;
    }
    product
}
