//! Two processes introduce themselves over a socket and talk; then one of them is killed.
//!
//! The peer is this very test program, started again with the socket's path in its environment.

use std::env;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adverb::transport::Rc;
use adverb::{
    AccessFlags, Completion, CompletionQueue, Context, Introduction, QueuePair, Wait, WcStatus,
};

const SOCKET: &str = "ADVERB_TEST_SOCKET";
const LONG: Duration = Duration::from_secs(20);

/// The software NIC's first device, or the one that `ADVERB_TEST_DEVICE` names.
fn context() -> Context {
    match env::var("ADVERB_TEST_DEVICE") {
        Ok(name) => adverb::open(&name).unwrap(),
        Err(_) => adverb::open_default().unwrap(),
    }
}

/// Echoes messages until it is killed or nothing comes for long.
#[test]
fn peer() {
    // Without the variable this is an ordinary run, and there is nobody to talk to.
    let Some(path) = env::var_os(SOCKET) else {
        return;
    };
    let mut stream = UnixStream::connect(path).unwrap();
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(64).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
    let window = pd
        .expose(4096, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ)
        .unwrap();
    qp.post_recv(pd.alloc_buf(4096).unwrap()).unwrap();
    let me = Introduction::new(qp.endpoint()).with_region(window.remote());
    let other = me.exchange(&mut stream).unwrap();
    qp.connect(&other.endpoint).unwrap();
    // The second exchange says: connected.
    me.exchange(&mut stream).unwrap();
    let mut done = Vec::new();
    while cq.wait(&mut done, Wait::Event, Some(LONG)).unwrap() > 0 {
        for c in done.drain(..).filter(|c| c.payload().is_some()) {
            qp.post_recv(pd.alloc_buf(4096).unwrap()).unwrap();
            qp.post_send(c.into_buf().unwrap()).unwrap();
        }
    }
}

struct Peer {
    child: Child,
    stream: UnixStream,
    path: PathBuf,
}

impl Peer {
    fn start(name: &str) -> Self {
        let path = env::temp_dir().join(format!("adverb-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args(["peer", "--exact"])
            .env(SOCKET, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + LONG;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(Instant::now() < deadline, "the peer does not come up"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self {
            child,
            stream,
            path,
        }
    }

    /// Who the peer is, once it has connected to us.
    fn introduce(&mut self, qp: &QueuePair<Rc>) -> Introduction {
        let me = Introduction::new(qp.endpoint());
        me.exchange(&mut self.stream).unwrap();
        me.exchange(&mut self.stream).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

fn next(cq: &CompletionQueue) -> Completion {
    let mut done = Vec::new();
    // One at a time is all these tests have outstanding, but for a send and its echo.
    assert!(
        cq.wait(&mut done, Wait::default(), Some(LONG)).unwrap() > 0,
        "nothing came"
    );
    assert_eq!(done.len(), 1);
    done.remove(0)
}

#[test]
fn two_processes_talk_until_one_is_killed() {
    let mut peer = Peer::start("talk");
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let (sends, receives) = (
        ctx.create_cq(64).build().unwrap(),
        ctx.create_cq(64).build().unwrap(),
    );
    let qp = pd
        .create_qp::<Rc>(&sends)
        .recv_cq(&receives)
        .build()
        .unwrap();
    let other = peer.introduce(&qp);
    qp.connect(&other.endpoint).unwrap();

    for round in 0..100u32 {
        qp.post_recv(pd.alloc_buf(4096).unwrap()).unwrap();
        let bytes = round.to_ne_bytes().repeat(1 + round as usize * 7);
        qp.post_send(pd.reg_mr(bytes.clone()).unwrap()).unwrap();
        next(&sends).ok().unwrap();
        let echo = next(&receives);
        assert!(echo.payload().unwrap() == bytes, "round {round}");
    }

    // One-sided: the peer sleeps meanwhile, as far as its program goes.
    let window = other.regions[0];
    qp.post_write(
        pd.reg_mr(b"written".to_vec()).unwrap(),
        window.slice(100..).unwrap(),
    )
    .unwrap();
    next(&sends).ok().unwrap();
    qp.post_read(pd.alloc_buf(7).unwrap(), window.slice(100..107).unwrap())
        .unwrap();
    assert_eq!(&next(&sends).into_buf().unwrap()[..], b"written");

    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    qp.post_send(pd.alloc_buf(8).unwrap()).unwrap();
    let error = next(&sends).result.unwrap_err();
    assert_eq!(error.status, WcStatus::RETRY_EXC_ERR);
    assert!(qp.close().unwrap().is_empty());
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn waking_a_sleeping_peer_works_under_every_model_of_ours() {
    for (name, how) in [
        ("busy", Wait::Busy),
        ("event", Wait::Event),
        ("adaptive", Wait::default()),
    ] {
        let mut peer = Peer::start(name);
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let cq = ctx.create_cq(64).build().unwrap();
        let qp = pd.create_qp::<Rc>(&cq).build().unwrap();
        let other = peer.introduce(&qp);
        qp.connect(&other.endpoint).unwrap();
        let mut done = Vec::new();
        for round in 0..200 {
            qp.post_recv(pd.alloc_buf(64).unwrap()).unwrap();
            qp.post_send(pd.alloc_buf(8).unwrap()).unwrap();
            while done.len() < 2 {
                assert!(
                    cq.wait(&mut done, how, Some(LONG)).unwrap() > 0,
                    "{name} round {round}"
                );
            }
            assert!(done.drain(..).all(|c| c.result.is_ok()));
        }
    }
}
