//! What the tests have in common.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use adverb_nic::cm::{CmChannel, CmEvent, CmEventKind, CmId, ConnectSpec, Path};
use adverb_nic::{Device, Gid, devices};
use adverb_wire::Psn;
use adverb_wire::cm::{self, CmaHeader, Rep, Req, SPACE_TCP, ServiceId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A port for the UDP links of this run, so that runs beside each other do not meet.
pub(crate) fn own_port() -> u16 {
    10_000 + (std::process::id() % 20_000) as u16
}

pub(crate) fn over_udp() -> bool {
    std::env::var("ADVERB_LINKS").is_ok_and(|links| links == "udp")
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn device() -> Arc<Device> {
    static DEVICE: LazyLock<Arc<Device>> = LazyLock::new(|| devices().unwrap().remove(0));
    Arc::clone(&DEVICE)
}

pub(crate) fn path_to(dst: &str) -> Path {
    Path {
        sgid: Gid::from_ip(ip("127.0.0.1")),
        dgid: Gid::from_ip(ip(dst)),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}

/// A queue pair's number, other than all the others here.
pub(crate) fn qpn() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(2);
    (std::process::id() << 12 | NEXT.fetch_add(1, Ordering::Relaxed)) & 0xff_ffff
}

pub(crate) fn req(port: u16, private: &[u8]) -> Req {
    let header = CmaHeader {
        src_port: 40_000,
        src: ip("127.0.0.1"),
        dst: ip("127.0.0.1"),
    };
    Req {
        service_id: ServiceId::new(SPACE_TCP, port),
        ca_guid: device().guid,
        qpn: qpn(),
        psn: Psn::new(17),
        remote_response_timeout: 20,
        local_response_timeout: 20,
        max_cm_retries: 15,
        primary: cm::Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            // Four milliseconds of timewait.
            ack_timeout: 10,
            ..cm::Path::default()
        },
        private: header.join(private).unwrap(),
        ..Req::default()
    }
}

pub(crate) fn rep(private: &[u8]) -> Rep {
    Rep {
        qpn: qpn(),
        psn: Psn::new(18),
        ca_guid: device().guid,
        private: cm::padded(private).unwrap(),
        ..Rep::default()
    }
}

/// Waits for an event as programs do that have a loop of their own.
pub(crate) fn event(channel: &CmChannel) -> CmEvent {
    event_within(channel, LONG).expect("an event within a bound")
}

pub(crate) fn event_within(channel: &CmChannel, bound: Duration) -> Option<CmEvent> {
    // SAFETY: the channel keeps its descriptor open.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(channel.fd()) };
    rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK).unwrap();
    let end = Instant::now() + bound;
    loop {
        match adverb_nic::wait(|w| channel.next_event(w)) {
            Ok(event) => return Some(event),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(e) => panic!("{e}"),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)).unwrap();
    }
}

/// Whether a program that polls the descriptor would think that there is an event.
pub(crate) fn readable(channel: &CmChannel) -> bool {
    // SAFETY: the channel keeps its descriptor open.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(channel.fd()) };
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() > 0
}

pub(crate) struct Server {
    pub(crate) channel: Arc<CmChannel>,
    pub(crate) listener: Arc<CmId>,
    pub(crate) port: u16,
}

pub(crate) const LISTENER: u64 = 1;
pub(crate) const CLIENT: u64 = 2;
pub(crate) const ACCEPTED: u64 = 3;

/// Somebody who listens on all addresses, on a port of its own.
pub(crate) fn serve(space: u16) -> Server {
    let channel = CmChannel::new().unwrap();
    let listener = CmId::new(&channel, LISTENER).unwrap();
    let port = listener.bind(space, None, 0, false).unwrap();
    listener.listen(&[device()], 0).unwrap();
    Server {
        channel,
        listener,
        port,
    }
}

impl Server {
    /// The next request, which must be one for a connection.
    pub(crate) fn request(&self) -> (Arc<CmId>, Box<Req>) {
        let event = event(&self.channel);
        assert_eq!(event.user, LISTENER);
        let CmEventKind::Request { id, req, from } = event.kind else {
            panic!("{:?}", event.kind);
        };
        assert_eq!(from.dst, ip("127.0.0.1"));
        self.listener.ack_events(1);
        id.set_user(ACCEPTED);
        (id, req)
    }
}

pub(crate) struct Client {
    pub(crate) channel: Arc<CmChannel>,
    pub(crate) id: Arc<CmId>,
}

impl Client {
    pub(crate) fn new() -> Self {
        let channel = CmChannel::new().unwrap();
        let id = CmId::new(&channel, CLIENT).unwrap();
        Self { channel, id }
    }

    pub(crate) fn connect(&self, dst: &str, req: Req) {
        let spec = ConnectSpec {
            device: device(),
            path: path_to(dst),
            req,
        };
        self.id.connect(&spec).unwrap();
    }

    pub(crate) fn event(&self) -> CmEventKind {
        let event = event(&self.channel);
        assert_eq!(event.user, CLIENT);
        self.id.ack_events(1);
        event.kind
    }
}

/// A client that asks a server for a connection.
pub(crate) fn ask(server: &Server, private: &[u8]) -> Client {
    let client = Client::new();
    client.connect("127.0.0.1", req(server.port, private));
    client
}

/// A connection that stands: the client, and the server's end of it.
pub(crate) fn connected(server: &Server) -> (Client, Arc<CmId>) {
    let client = ask(server, b"let me in");
    let (id, _) = server.request();
    id.accept(rep(b"welcome")).unwrap();
    assert!(matches!(client.event(), CmEventKind::Response(_)));
    client.id.establish().unwrap();
    let kind = server_event(server, &id);
    assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
    (client, id)
}

/// The next event of an accepted identifier.
pub(crate) fn server_event(server: &Server, id: &CmId) -> CmEventKind {
    let event = event(&server.channel);
    assert_eq!(event.user, ACCEPTED);
    id.ack_events(1);
    event.kind
}
