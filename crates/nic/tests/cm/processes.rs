//! Two processes: this test program, started again as a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use adverb_nic::NicError;
use adverb_nic::cm::{CmChannel, CmEventKind, CmId};
use adverb_wire::cm::SPACE_TCP;

use crate::world::{Client, LONG, event_within, rep, req, serve};

const ROLE: &str = "ADVERB_TEST_CM_SERVER";

/// A server in another process, killed when dropped.
struct Other {
    child: Child,
    port: u16,
}

impl Other {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::the_server", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let port = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("port ")?.parse().ok());
        Self {
            child,
            port: port.expect("the server says its port"),
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what the other process runs. It accepts whoever asks, or fetches requests and no more.
#[test]
fn the_server() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let server = serve(SPACE_TCP);
    println!("\nport {}", server.port);
    // By their tokens.
    let mut ids = Vec::new();
    while let Some(event) = event_within(&server.channel, LONG) {
        match event.kind {
            CmEventKind::Request { id, .. } => {
                id.set_user(ids.len() as u64);
                if role == "accepts" {
                    id.accept(rep(b"from afar")).unwrap();
                }
                ids.push(id);
            }
            CmEventKind::Disconnected => ids[event.user as usize].disconnect().unwrap(),
            _ => {}
        }
    }
}

fn connected(other: &Other) -> Client {
    let client = Client::new();
    client.connect("127.0.0.1", req(other.port, b"hello"));
    let CmEventKind::Response(rep) = client.event() else {
        panic!("no response");
    };
    assert!(rep.private.starts_with(b"from afar\0"));
    client.id.establish().unwrap();
    client
}

#[test]
fn connections_reach_another_process() {
    let other = Other::start("accepts");
    for _ in 0..5 {
        let client = connected(&other);
        client.id.disconnect().unwrap();
        let kind = client.event();
        assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    }
    // Several at a time, and of several threads.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).map(|_| connected(&other)).collect::<Vec<_>>());
        }
    });
}

#[test]
fn the_death_of_the_peers_process_ends_the_connection() {
    let mut other = Other::start("accepts");
    let client = connected(&other);
    other.kill();
    let kind = client.event();
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
    client.id.disconnect().unwrap();
    let kind = client.event();
    assert!(matches!(kind, CmEventKind::TimewaitExit), "{kind:?}");
}

#[test]
fn the_death_of_the_peers_process_ends_the_wait_for_an_answer() {
    let mut other = Other::start("thinks");
    let client = Client::new();
    client.connect("127.0.0.1", req(other.port, b"hello"));
    // Until it has certainly been asked.
    std::thread::sleep(std::time::Duration::from_millis(100));
    other.kill();
    let kind = client.event();
    assert!(matches!(kind, CmEventKind::Unreachable(_)), "{kind:?}");
}

#[test]
fn a_port_belongs_to_one_process_until_it_ends() {
    let mut other = Other::start("accepts");
    let channel = CmChannel::new().unwrap();
    let id = CmId::new(&channel, 0).unwrap();
    let error = id.bind(SPACE_TCP, None, other.port, false).unwrap_err();
    let pid = other.child.id().to_string();
    assert!(matches!(error, NicError::PortCovered(_)), "{error}");
    assert!(error.to_string().contains(&pid), "{error}");
    other.kill();
    let client = Client::new();
    client.connect("127.0.0.1", req(other.port, b""));
    let kind = client.event();
    assert!(
        matches!(kind, CmEventKind::Rejected { reason: 8, .. }),
        "{kind:?}"
    );
    assert_eq!(
        id.bind(SPACE_TCP, None, other.port, false).unwrap(),
        other.port
    );
}

#[test]
fn who_sleeps_for_another_process_is_woken() {
    let other = Other::start("accepts");
    let (done, rounds) = std::sync::mpsc::channel();
    let port = other.port;
    std::thread::spawn(move || {
        for _ in 0..50 {
            let client = Client::new();
            client.connect("127.0.0.1", req(port, b"hello"));
            for expected in ["Response", "Disconnected"] {
                let kind = adverb_nic::wait(|w| client.channel.next_event(w))
                    .unwrap()
                    .kind;
                assert!(format!("{kind:?}").starts_with(expected), "{kind:?}");
                client.id.ack_events(1);
                if let CmEventKind::Response(_) = kind {
                    client.id.establish().unwrap();
                    client.id.disconnect().unwrap();
                }
            }
            done.send(()).unwrap();
        }
    });
    for round in 0..50 {
        rounds
            .recv_timeout(LONG)
            .unwrap_or_else(|_| panic!("asleep for ever in round {round}"));
    }
}
