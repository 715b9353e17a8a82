//! The software NIC of this process: what all of its contexts share.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use adverb_engine::{KeyTable, PdId};
use adverb_link::shm::private_dir;
use adverb_link::udp::{BindError, UdpConfig};
use adverb_link::{Loopback, Place, ShmLink, UdpLink};
use adverb_mem::{EventFd, Leadership, Sleepers};
use rustix::event::epoll;

use crate::backing::Backing;
use crate::cm::Cm;
use crate::config::Config;
use crate::context::Context;
use crate::cq::CqCell;
use crate::device::Device;
use crate::error::NicError;
use crate::flow::Flow;
use crate::hand_over::HandOver;
use crate::multicast::Groups;
use crate::owed::Owed;
use crate::peers::Peers;
use crate::qp::QpCell;
use crate::qp_table::QpTable;
use crate::sync::LockExt;
use crate::timers::{Alarm, Timers};
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
    pub(crate) timers: Timers,
    /// Wakes the NIC thread when an application thread has stood in for it for a while.
    pub(crate) relief: Alarm,
    /// CQs with an event that moderation holds back.
    pub(crate) held_back: Mutex<Vec<Weak<CqCell>>>,
    pub(crate) loopback: Loopback,
    pub(crate) shm: ShmLink,
    /// UDP links by device; opened when a queue pair first needs one.
    pub(crate) udp: RwLock<Vec<(u32, Arc<UdpLink>)>>,
    pub(crate) udp_open: AtomicBool,
    /// Whether a datagram makes `wakeups` readable. Not while a thread polls: it finds them itself.
    pub(crate) sockets_watched: AtomicBool,
    /// Until then threads that poll are not relied upon to find datagrams, in nanoseconds.
    pub(crate) pollers_pause_until: AtomicU64,
    pub(crate) flows: Mutex<HashMap<u16, Arc<Flow>>>,
    /// Packets for other processes whose rings were full. Nothing is read from sockets meanwhile.
    pub(crate) handing_over: Mutex<HandOver>,
    /// Queue pairs that wait for room on their link.
    pub(crate) blocked: Mutex<Vec<Arc<QpCell>>>,
    pub(crate) blocked_count: AtomicUsize,
    /// Queue pairs whose acknowledgement waits for what the application says.
    pub(crate) owed: Owed,
    pub(crate) peers: Peers,
    /// The open devices of this process, and what tells of their interfaces.
    pub(crate) contexts: Mutex<Vec<Weak<Context>>>,
    pub(crate) interfaces: OnceLock<Option<OwnedFd>>,
    /// When an application thread last drove, in nanoseconds.
    pub(crate) last_user_drive: AtomicU64,
    /// Looks of polling threads that found their queue empty.
    pub(crate) idle_looks: AtomicU32,
    /// CQs that are armed and have a channel: somebody may be asleep for them.
    pub(crate) armed: AtomicU64,
    /// Which thread sleeps on everything the NIC waits for: this NIC's own, or one of the application's.
    pub(crate) leadership: Leadership,
    /// The threads of this process that sleep on `wakeups`.
    pub(crate) sleepers: Sleepers,
    pub(crate) kick: EventFd,
    /// Everything that can wake the NIC: the bell, the timer, sockets, the deaths of peers.
    pub(crate) wakeups: OwnedFd,
    next_pd: AtomicU32,
    pub(crate) counters: Counters,
}

/// Packets that had no effect, by reason.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) malformed: AtomicU64,
    pub(crate) no_such_qp: AtomicU64,
    pub(crate) wrong_peer: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Keys of `wakeups`.
pub(crate) mod wake {
    pub(crate) const BELL: u64 = 1;
    pub(crate) const TIMER: u64 = 2;
    pub(crate) const UDP: u64 = 3;
    pub(crate) const INTERFACES: u64 = 4;
    pub(crate) const RELIEF: u64 = 5;
    /// Plus the slot of the peer.
    pub(crate) const PEER: u64 = 1 << 32;
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

    fn start(generation: u64) -> Result<Self, NicError> {
        let config = Config::from_env()?;
        let dir = private_dir(config.udp_port)
            .map_err(NicError::io("joining the other processes of this user"))?;
        let place =
            Place::join(&dir).map_err(NicError::io("joining the other processes of this user"))?;
        fork::guard_life_lock(place.life_fd().as_raw_fd());
        let timers = Timers::new().map_err(NicError::io("making the timer"))?;
        let wakeups = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| NicError::Io {
            what: "making the epoll set",
            source: e.into(),
        })?;
        let watch = |fd: &dyn std::os::fd::AsFd, key| {
            epoll::add(
                &wakeups,
                fd.as_fd(),
                epoll::EventData::new_u64(key),
                epoll::EventFlags::IN,
            )
            .map_err(|e| NicError::Io {
                what: "filling the epoll set",
                source: e.into(),
            })
        };
        watch(&place.bell_fd(), wake::BELL)?;
        watch(&timers.fd(), wake::TIMER)?;
        let relief = Alarm::new().map_err(NicError::io("making the timer"))?;
        watch(&relief.fd(), wake::RELIEF)?;
        Ok(Self {
            generation,
            qps: QpTable::new(place.slot(), random::seed()),
            xrc: XrcTable::default(),
            groups: Groups::new(&dir, place.slot()),
            cm: Cm::new(&dir, place.slot()),
            shm: ShmLink::new(place),
            config,
            keys: RwLock::new(KeyTable::new(KEY_LIMIT, random::seed())),
            timers,
            relief,
            held_back: Mutex::new(Vec::new()),
            loopback: Loopback::default(),
            udp: RwLock::new(Vec::new()),
            udp_open: AtomicBool::new(false),
            sockets_watched: AtomicBool::new(true),
            pollers_pause_until: AtomicU64::new(0),
            flows: Mutex::new(HashMap::new()),
            handing_over: Mutex::new(HandOver::default()),
            blocked: Mutex::new(Vec::new()),
            blocked_count: AtomicUsize::new(0),
            owed: Owed::default(),
            peers: Peers::default(),
            contexts: Mutex::new(Vec::new()),
            interfaces: OnceLock::new(),
            last_user_drive: AtomicU64::new(0),
            idle_looks: AtomicU32::new(0),
            armed: AtomicU64::new(0),
            leadership: Leadership::new(),
            sleepers: Sleepers::default(),
            kick: EventFd::semaphore().map_err(NicError::io("making an eventfd"))?,
            wakeups,
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

    /// Opens the sockets of a device, once.
    pub(crate) fn open_udp(&self, device: &Device) -> Result<Arc<UdpLink>, NicError> {
        let links = self.udp.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = link_of(&links, device) {
            return Ok(link);
        }
        drop(links);
        let mut links = self.udp.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker.
        if let Some(link) = link_of(&links, device) {
            return Ok(link);
        }
        let config = UdpConfig {
            addresses: device.addresses.clone(),
            port: self.config.udp_port,
            scope_id: device.ifindex,
        };
        let link = UdpLink::bind(&config).map_err(|e| match e {
            BindError::PortTaken { .. } => NicError::PortTaken(e.to_string()),
            e => NicError::Io {
                what: "opening the RoCE sockets",
                source: std::io::Error::other(e),
            },
        })?;
        let link = Arc::new(link);
        for fd in link.fds() {
            fork::guard_socket(fd.as_raw_fd());
            epoll::add(
                &self.wakeups,
                fd,
                epoll::EventData::new_u64(wake::UDP),
                epoll::EventFlags::IN,
            )
            .map_err(|e| NicError::Io {
                what: "watching the RoCE sockets",
                source: e.into(),
            })?;
        }
        links.push((device.index, Arc::clone(&link)));
        self.udp_open.store(true, Ordering::Release);
        Ok(link)
    }
}

fn link_of(links: &[(u32, Arc<UdpLink>)], device: &Device) -> Option<Arc<UdpLink>> {
    let (_, link) = links.iter().find(|(index, _)| *index == device.index)?;
    Some(Arc::clone(link))
}

/// Regions and windows together, over all contexts of the process.
const KEY_LIMIT: usize = 1 << 20;
