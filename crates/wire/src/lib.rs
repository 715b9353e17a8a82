//! RoCEv2 as bytes: headers, opcodes, packet sequence numbers, the invariant CRC, GIDs, and the
//! messages of the connection manager.
//!
//! This crate knows how a packet looks and nothing about what it does to a queue pair. It
//! allocates nothing and touches no socket; a packet is a [`Packet`], the same type for what was
//! parsed and for what is to be emitted:
//!
//! ```
//! use adverb_wire::{Bth, Opcode, Operation, Packet, Psn, Transport, icrc};
//!
//! let opcode = Opcode::Roce(Transport::Rc, Operation::SendOnly);
//! let packet = Packet { payload: b"hello", ..Packet::new(Bth::new(opcode, 0x11, Psn::new(7))) };
//! let mut buffer = [0; 64];
//! let length = packet.emit(&mut buffer);
//! assert_eq!(length, 12 + 5 + 3); // base header, payload, pad
//!
//! let bytes = &buffer[..length];
//! assert_eq!(Packet::parse(bytes).unwrap().payload, b"hello");
//!
//! // On UDP the invariant CRC follows; it covers the addresses, too.
//! let from = "10.0.0.1".parse().unwrap();
//! let to = "10.0.0.2".parse().unwrap();
//! let addressing = icrc::Addressing::new(from, to, 0xC012).unwrap();
//! assert!(icrc::verify(&addressing, bytes, icrc::compute(&addressing, bytes)));
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `opcode` | which opcodes exist and which headers each carries |
//! | `bth`, `ext`, `aeth` | the headers |
//! | `packet` | headers and payload together: parse and emit |
//! | `train` | a run of packets of one message, where nothing forces it into packets |
//! | `psn` | 24-bit serial number arithmetic |
//! | [`icrc`] | what is masked and summed |
//! | [`grh`] | the 40 bytes in front of a datagram's payload in a receive buffer |
//! | `gid`, [`mtu`], `timer`, `number` | addresses, path MTU, timer codes, well-known numbers |
//! | [`cm`] | messages of the connection manager |
//! | `show` | packets as text for humans |

#![forbid(unsafe_code)]

mod aeth;
mod bth;
mod bytes;
pub mod cm;
mod ext;
mod gid;
pub mod grh;
pub mod icrc;
pub mod mtu;
mod number;
mod opcode;
mod packet;
mod psn;
mod show;
mod timer;
mod train;

pub use aeth::{Aeth, NakCode, Syndrome, UNLIMITED_CREDITS, credit_code, credits_of};
pub use bth::Bth;
pub use ext::{AtomicEth, Deth, Feth, Placement, Reth, Selectivity};
pub use gid::Gid;
pub use mtu::Mtu;
pub use number::{
    CM_UD_QKEY, DEFAULT_PKEY, GSI_QKEY, GSI_QPN, MULTICAST_QPN, UDP_PORT, pkeys_match,
    udp_source_port,
};
pub use opcode::{Headers, Opcode, Operation, Transport};
pub use packet::{MAX_HEADERS, Packet, ParseError, pad_of};
pub use psn::Psn;
pub use timer::{ack_timeout_ns, rnr_timer_ns};
pub use train::{Train, TrainError};
