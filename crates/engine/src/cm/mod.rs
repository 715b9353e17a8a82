//! The connection manager's side of one connection or one lookup as a state machine: messages and time in, messages
//! and events out. (IBTA volume 1, chapter 12.)
//!
//! | machine | is |
//! |---|---|
//! | [`Connection`] | one end of a connection, from REQ to the end of its time wait; both roles |
//! | [`Lookup`] | a SIDR_REQ that waits for its answer |
//! | [`Inquiry`] | a SIDR_REQ that somebody else sent and that is to be answered, once and then the same again |
//!
//! [`refuse`] and [`answer_stray`] are what is said to those whom no machine belongs to. [`Agreed`] and [`Depths`] are
//! what a REQ and a REP mean for the two queue pairs. Who listens, which machine a message is for, and the addresses
//! are the NIC's business.
//!
//! The contract is that of the whole crate: after each call `poll_transmit` until it gives nothing, then
//! `poll_timeout`, then `poll_event` until it gives nothing. A machine that `is_over` has nothing more to say and may
//! be forgotten.

mod agreed;
mod connection;
mod lookup;
mod outbox;
mod receive;
mod stray;
mod wait;

use adverb_wire::cm::Message;

pub use agreed::{Agreed, Depths, ack_timeout};
pub use connection::{Connection, ConnectionEvent, ConnectionState};
pub use lookup::{Inquiry, Lookup, LookupEvent};
pub use stray::{answer_stray, refuse};

/// Timer code for both response timeouts of a REQ: about 4.3 s, which is what Linux asks for.
pub const RESPONSE_TIMEOUT: u8 = 20;
/// How often an unanswered message is repeated; the field has no more bits.
pub const MAX_CM_RETRIES: u8 = 15;
/// Timer code of the time that a packet may spend on a RoCE network, as Linux assumes it.
pub const PACKET_LIFETIME: u8 = 16;
/// Timer code of an MRA: about 69 s more to think.
const THINKING_TIME: u8 = 24;

/// Why a call was refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmError {
    #[error("cannot {call} a connection in state {state:?}")]
    State {
        call: &'static str,
        state: ConnectionState,
    },
    #[error("the lookup has been answered already")]
    Answered,
}

/// Why a message had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum CmDrop {
    #[error("a {message} that belongs to another connection")]
    Stranger { message: &'static str },
    #[error("a {message} in state {state:?}, where it has been dealt with or makes no sense")]
    State {
        message: &'static str,
        state: ConnectionState,
    },
    #[error("a DREQ for queue pair {given:#x} where {expected:#x} is connected")]
    QueuePair { given: u32, expected: u32 },
    #[error("a {message}, which is not for a machine of this kind")]
    Kind { message: &'static str },
}

impl CmDrop {
    const fn stranger(message: &Message) -> Self {
        Self::Stranger {
            message: message.name(),
        }
    }

    const fn kind(message: &Message) -> Self {
        Self::Kind {
            message: message.name(),
        }
    }
}
