//! The software NIC of this process: what all of its contexts share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use adverb_engine::{KeyTable, PdId};
use adverb_link::Place;
use adverb_link::shm::private_dir;

use crate::backing::Backing;
use crate::cm::Cm;
use crate::config::Config;
use crate::context::Context;
use crate::cq::CqCell;
use crate::error::NicError;
use crate::fabric::Fabric;
use crate::multicast::Groups;
use crate::owed::Owed;
use crate::qp::QpCell;
use crate::qp_table::QpTable;
use crate::sync::LockExt;
use crate::xrc::XrcTable;
use crate::{fork, owed, random, thread};

pub(crate) struct Nic {
    generation: u64,
    pub(crate) config: Config,
    pub(crate) keys: RwLock<KeyTable<Backing>>,
    pub(crate) qps: QpTable,
    pub(crate) xrc: XrcTable,
    pub(crate) groups: Groups,
    pub(crate) cm: Cm,
    pub(crate) fabric: Fabric,
    /// CQs with an event that moderation holds back.
    pub(crate) held_back: Mutex<Vec<Weak<CqCell>>>,
    /// Queue pairs that wait for room on their link.
    pub(crate) blocked: Mutex<Vec<Arc<QpCell>>>,
    pub(crate) blocked_count: AtomicUsize,
    /// Queue pairs whose acknowledgement waits for what the application says.
    pub(crate) owed: Owed,
    /// The open devices of this process, and what tells of their interfaces.
    pub(crate) contexts: Mutex<Vec<Weak<Context>>>,
    pub(crate) interfaces: OnceLock<Option<OwnedFd>>,
    /// Looks of polling threads that found their queue empty. Not counted exactly.
    pub(crate) idle_looks: AtomicU32,
    /// Posts so far, not counted exactly either.
    pub(crate) posts: AtomicU32,
    next_pd: AtomicU32,
    pub(crate) counters: Counters,
}

/// Packets that had no effect, by reason.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) malformed: AtomicU64,
    pub(crate) no_such_qp: AtomicU64,
    pub(crate) wrong_peer: AtomicU64,
    /// From a socket, for a queue pair that talks by memory.
    pub(crate) wrong_way: AtomicU64,
    pub(crate) refused: AtomicU64,
}

static CURRENT: Mutex<Option<Arc<Nic>>> = Mutex::new(None);

impl Nic {
    /// The NIC of this process; made at the first call, and made anew in a forked child.
    pub(crate) fn of_process() -> Result<Arc<Self>, NicError> {
        let mut current = CURRENT.acquire();
        let generation = fork::generation();
        if let Some(nic) = current.as_ref() {
            if nic.generation == generation {
                return Ok(Arc::clone(nic));
            }
            // The parent's NIC: dropping it here could wait for locks whose holders do not exist
            // in this process.
            std::mem::forget(current.take());
        }
        let nic = Arc::new(Self::start(generation)?);
        thread::start(&nic)?;
        *current = Some(Arc::clone(&nic));
        owed::pay_at_exit();
        Ok(nic)
    }

    /// The NIC of this process if there is one and nobody is making it just now.
    pub(crate) fn if_any() -> Option<Arc<Self>> {
        let current = CURRENT.try_lock().ok()?;
        current.as_ref().filter(|nic| nic.alive()).cloned()
    }

    /// A NIC without its thread.
    pub(crate) fn start(generation: u64) -> Result<Self, NicError> {
        let config = Config::from_env()?;
        let dir = private_dir(config.udp_port)
            .map_err(NicError::io("joining the other processes of this user"))?;
        let place =
            Place::join(&dir).map_err(NicError::io("joining the other processes of this user"))?;
        Ok(Self {
            generation,
            qps: QpTable::new(place.slot()),
            xrc: XrcTable::default(),
            groups: Groups::new(&dir, place.slot()),
            cm: Cm::new(&dir, place.slot()),
            fabric: Fabric::new(&config, place)?,
            config,
            keys: RwLock::new(KeyTable::new(KEY_LIMIT, random::seed_of_keys())),
            held_back: Mutex::new(Vec::new()),
            blocked: Mutex::new(Vec::new()),
            blocked_count: AtomicUsize::new(0),
            owed: Owed::default(),
            contexts: Mutex::new(Vec::new()),
            interfaces: OnceLock::new(),
            idle_looks: AtomicU32::new(0),
            posts: AtomicU32::new(0),
            next_pd: AtomicU32::new(1),
            counters: Counters::default(),
        })
    }

    /// False in a forked child, for everything it inherited.
    pub(crate) fn alive(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(crate) fn new_pd_id(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }
}

/// Regions and windows together, over all contexts of the process: as many as a key table can hold. A single context has
/// room for as many ([`crate::device::Limits`]).
const KEY_LIMIT: usize = 131_072;
