//! The connection manager: how two queue pairs hear of each other, and that one has gone.
//!
//! Messages are datagrams between the QP 1 of two ports. On one host all processes of a user share
//! that QP: a communication ID names its process, as queue pair numbers do, and a port that somebody
//! listens on is found in a registry of files. The protocol is in `adverb_engine::cm`; here are the
//! tables, the links, the timers and the events.
//!
//! | file | what lives there |
//! |---|---|
//! | `id.rs` | what a program does with an identifier |
//! | `cell.rs` | the part of an identifier that tables and timers keep alive |
//! | `channel.rs` | where events are fetched |
//! | `talk.rs` | one exchange: its machine and the way to its peer |
//! | `gsi.rs` | QP 1: which packets are taken in, how messages go out |
//! | `dispatch.rs` | whom an incoming message is for |
//! | `table.rs` | communication IDs, listeners, and who has asked already |
//! | `strangers.rs` | how many exchanges others may have begun, and which of them can be spared |
//! | `ports.rs`, `scope.rs` | which process of the host has which port |
//! | `later.rs` | deadlines, and peers that have died |
//! | `resolve.rs` | which device reaches an address |

mod cell;
mod channel;
mod dispatch;
mod gsi;
mod id;
mod later;
mod ports;
mod resolve;
mod scope;
mod strangers;
mod table;
mod talk;

pub use adverb_link::Path;
pub use channel::{CmChannel, CmEvent, CmEventKind, Peer};
pub use id::{CmId, ConnectSpec, LookupSpec};
pub use resolve::{device_of, resolve};

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_engine::Instant;

use self::gsi::Gsi;
use self::later::Later;
use self::ports::Ports;
use self::table::Table;
use crate::nic::Nic;
use crate::sync::LockExt;

/// What the NIC keeps for connections.
pub(crate) struct Cm {
    gsi: Gsi,
    table: Table,
    ports: Ports,
    later: Later,
    /// Something came in, or came due.
    work: AtomicBool,
    /// Held by whoever works, so that messages are handled in the order in which they came.
    turn: Mutex<()>,
}

impl Cm {
    /// `dir` is where the processes of this user find each other.
    pub(crate) fn new(dir: &std::path::Path, slot: u16) -> Self {
        Self {
            gsi: Gsi::default(),
            table: Table::new(slot),
            ports: Ports::new(dir),
            later: Later::default(),
            work: AtomicBool::new(false),
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn note_work(&self) {
        self.work.store(true, Ordering::Release);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }
}

impl Nic {
    /// Handles what came in for QP 1 and what has come due. Not to be called from where a link hands
    /// out packets: answering may open sockets.
    pub(crate) fn work_cm(&self, now: Instant) {
        let _turn = self.cm.turn.acquire();
        // Lowered first: what is added from here on raises it again.
        self.cm.work.store(false, Ordering::Release);
        self.resend_mads(now);
        while let Some(arrival) = self.cm.gsi.next() {
            self.dispatch(now, &arrival);
        }
        self.take_cm_timers(now);
    }
}
