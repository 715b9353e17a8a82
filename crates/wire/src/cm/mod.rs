//! Messages of the connection manager: 256-byte management datagrams between the QP 1 of two ports.
//!
//! A [`Mad`] is a transaction ID and a [`Message`]; everything else in the common header is the same for all of them.
//! Reserved bits are ignored when parsed and 0 when emitted, private data always has the full length of its field.
//! What the messages mean to a connection is no matter here; the engine's `cm` knows.
//!
//! ```
//! use adverb_wire::cm::{Mad, Message, Rtu};
//!
//! let mad = Mad { tid: 7, message: Message::Rtu(Rtu { local_id: 1, remote_id: 2, ..Rtu::default() }) };
//! assert_eq!(Mad::parse(&mad.emit()), Ok(mad));
//! ```

mod private;
mod rep;
mod req;
mod service;
mod short;
mod sidr;

pub use private::{CmaHeader, CmaHeaderError, padded};
pub use rep::Rep;
pub use req::{CmTransport, Ece, Path, Req};
pub use service::{SPACE_IB, SPACE_IPOIB, SPACE_TCP, SPACE_UDP, ServiceId};
pub use short::{Concerning, Drep, Dreq, Mra, Rej, RejReason, Rtu};
pub use sidr::{SidrRep, SidrReq, SidrStatus};

use crate::bytes::{Reader, Writer};

/// Every message of the connection manager has this length, header included.
pub const MAD_LEN: usize = 256;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// One message and the transaction it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Chosen by whoever opens the exchange, and kept in answers and retransmissions. Connections are found by their
    /// communication IDs, not by this.
    pub tid: u64,
    pub message: Message,
}

/// The messages, by the names that the specification gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

/// Why bytes are not a message of the connection manager. Whoever receives such bytes drops them and counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MadError {
    #[error("{0} bytes, a management datagram has {MAD_LEN}")]
    Length(usize),
    #[error("base version {0}, only {BASE_VERSION} exists")]
    BaseVersion(u8),
    #[error("management class {0:#04x}, the connection manager's is {CLASS_CM:#04x}")]
    Class(u8),
    #[error("class version {0}, only {CLASS_VERSION} exists")]
    ClassVersion(u8),
    #[error("method {0:#04x}, the connection manager only sends ({METHOD_SEND:#04x})")]
    Method(u8),
    /// Among them LAP and APR: alternate paths do not exist on RoCE.
    #[error("attribute {0:#06x} is no message of the connection manager that is understood here")]
    Attribute(u16),
}

impl Mad {
    pub fn parse(bytes: &[u8]) -> Result<Self, MadError> {
        let length = MadError::Length(bytes.len());
        if bytes.len() != MAD_LEN {
            return Err(length);
        }
        Self::parse_whole(&mut Reader::new(bytes)).ok_or(length)?
    }

    /// `None` if the bytes run out, which 256 of them do not.
    fn parse_whole(r: &mut Reader<'_>) -> Option<Result<Self, MadError>> {
        let [base, class, class_version, method] = r.take()?;
        if base != BASE_VERSION {
            return Some(Err(MadError::BaseVersion(base)));
        }
        if class != CLASS_CM {
            return Some(Err(MadError::Class(class)));
        }
        if class_version != CLASS_VERSION {
            return Some(Err(MadError::ClassVersion(class_version)));
        }
        if method != METHOD_SEND {
            return Some(Err(MadError::Method(method)));
        }
        let _status_and_class_specific = r.u32()?;
        let tid = r.u64()?;
        let attribute = r.u16()?;
        let _reserved = r.u16()?;
        let modifier = r.u32()?;
        let message = match attribute {
            Req::ATTRIBUTE => Message::Req(Req::parse(modifier, r)?),
            Mra::ATTRIBUTE => Message::Mra(Mra::parse(r)?),
            Rej::ATTRIBUTE => Message::Rej(Rej::parse(r)?),
            Rep::ATTRIBUTE => Message::Rep(Rep::parse(modifier, r)?),
            Rtu::ATTRIBUTE => Message::Rtu(Rtu::parse(r)?),
            Dreq::ATTRIBUTE => Message::Dreq(Dreq::parse(r)?),
            Drep::ATTRIBUTE => Message::Drep(Drep::parse(r)?),
            SidrReq::ATTRIBUTE => Message::SidrReq(SidrReq::parse(r)?),
            SidrRep::ATTRIBUTE => Message::SidrRep(SidrRep::parse(r)?),
            other => return Some(Err(MadError::Attribute(other))),
        };
        Some(Ok(Self { tid, message }))
    }

    #[must_use]
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let (attribute, modifier) = match &self.message {
            Message::Req(req) => (Req::ATTRIBUTE, req.ece.options),
            Message::Mra(_) => (Mra::ATTRIBUTE, 0),
            Message::Rej(_) => (Rej::ATTRIBUTE, 0),
            Message::Rep(rep) => (Rep::ATTRIBUTE, rep.ece.options),
            Message::Rtu(_) => (Rtu::ATTRIBUTE, 0),
            Message::Dreq(_) => (Dreq::ATTRIBUTE, 0),
            Message::Drep(_) => (Drep::ATTRIBUTE, 0),
            Message::SidrReq(_) => (SidrReq::ATTRIBUTE, 0),
            Message::SidrRep(_) => (SidrRep::ATTRIBUTE, 0),
        };
        let mut bytes = [0; MAD_LEN];
        let out = &mut Writer::new(&mut bytes);
        out.put([BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND]);
        out.put([0; 4]);
        out.put(self.tid.to_be_bytes());
        out.put(attribute.to_be_bytes());
        out.put([0; 2]);
        out.put(modifier.to_be_bytes());
        match &self.message {
            Message::Req(m) => m.emit(out),
            Message::Mra(m) => m.emit(out),
            Message::Rej(m) => m.emit(out),
            Message::Rep(m) => m.emit(out),
            Message::Rtu(m) => m.emit(out),
            Message::Dreq(m) => m.emit(out),
            Message::Drep(m) => m.emit(out),
            Message::SidrReq(m) => m.emit(out),
            Message::SidrRep(m) => m.emit(out),
        }
        bytes
    }
}

impl Message {
    /// The sender's communication ID; 0 in a REJ of somebody who has none. For the two SIDR messages the request ID.
    #[must_use]
    pub const fn local_id(&self) -> u32 {
        match self {
            Self::Req(m) => m.local_id,
            Self::Mra(m) => m.local_id,
            Self::Rej(m) => m.local_id,
            Self::Rep(m) => m.local_id,
            Self::Rtu(m) => m.local_id,
            Self::Dreq(m) => m.local_id,
            Self::Drep(m) => m.local_id,
            Self::SidrReq(m) => m.request_id,
            Self::SidrRep(m) => m.request_id,
        }
    }

    /// The communication ID of whom the message is for; `None` in those that open an exchange. A REJ of somebody who
    /// gave up before he was answered has a 0 here (see [`Rej::gives_up`]). For SIDR_REP the request ID.
    #[must_use]
    pub const fn remote_id(&self) -> Option<u32> {
        match self {
            Self::Req(_) | Self::SidrReq(_) => None,
            Self::Mra(m) => Some(m.remote_id),
            Self::Rej(m) => Some(m.remote_id),
            Self::Rep(m) => Some(m.remote_id),
            Self::Rtu(m) => Some(m.remote_id),
            Self::Dreq(m) => Some(m.remote_id),
            Self::Drep(m) => Some(m.remote_id),
            Self::SidrRep(m) => Some(m.request_id),
        }
    }

    /// The specification's name, for logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }
}
