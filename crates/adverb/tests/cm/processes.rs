//! Two processes, one of which may die.
//!
//! The peer is this very test program, started again with its task and an address in its
//! environment.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Child;

use adverb::WcStatus;
use adverb::cm::{ConnectionEvent, Failure, Params, Request};

use super::*;

const TASK: &str = "ADVERB_TEST_TASK";
const PEER: &str = "ADVERB_TEST_PEER";
const OVER: Option<ConnectionEvent> = Some(ConnectionEvent::Disconnected);

/// What the other process does; without a task this is an ordinary run.
#[test]
fn peer() {
    let Ok(task) = env::var(TASK) else { return };
    match task.as_str() {
        "echo" => {
            let listener = announced();
            let request = listener.accept(LONG).unwrap().unwrap();
            echo(request);
        }
        "ask and wait" => {
            let to: SocketAddr = env::var(PEER).unwrap().parse().unwrap();
            let way = connector().resolve(to, LONG).unwrap();
            let ends = Ends::on(&way.context().unwrap());
            let connection = way.connect(ends.qp(), &Params::default(), LONG).unwrap();
            connection.next_event(LONG).unwrap();
        }
        "listen and wait" => {
            let _listener = announced();
            std::thread::sleep(LONG.unwrap());
        }
        other => panic!("{other}"),
    }
}

/// A listener whose address the parent reads from our output.
fn announced() -> Listener {
    let listener = listener();
    println!("\nlistening {}", listener.local_addr().unwrap());
    listener
}

/// Sends back what comes until the peer hangs up.
fn echo(request: Request) {
    let ends = Ends::on(&request.context().unwrap());
    let qp = ends.qp();
    let _ = qp.post_recv(ends.pd.alloc_buf(4096).unwrap()).unwrap();
    let connection = request.accept(qp, &Params::default(), LONG).unwrap();
    loop {
        let mut done = Vec::new();
        ends.cq.poll(&mut done).unwrap();
        for c in done.drain(..).filter(|c| c.payload().is_some()) {
            let _ = connection
                .post_recv(ends.pd.alloc_buf(4096).unwrap())
                .unwrap();
            let _ = connection.post_send(c.into_buf().unwrap()).unwrap();
        }
        if connection.try_event().unwrap() == OVER {
            return;
        }
    }
}

struct Peer {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(task: &str, to: Option<SocketAddr>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["processes::peer", "--exact", "--nocapture"])
            .env(TASK, task)
            .stdout(Stdio::piped());
        if let Some(to) = to {
            command.env(PEER, to.to_string());
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Where it listens.
    fn address(&mut self) -> SocketAddr {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(address) = line.strip_prefix("listening ") {
                return address.trim().parse().unwrap();
            }
            line.clear();
        }
        panic!("the peer does not listen");
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(to: SocketAddr) -> (Ends, Connection) {
    let way = connector().resolve(to, LONG).unwrap();
    let ends = Ends::on(&way.context().unwrap());
    let connection = way.connect(ends.qp(), &Params::default(), LONG).unwrap();
    (ends, connection)
}

#[test]
fn two_processes_talk_until_one_hangs_up() {
    let mut peer = Peer::start("echo", None);
    let (ends, connection) = connect(peer.address());
    for round in 0..100u32 {
        let _ = connection
            .post_recv(ends.pd.alloc_buf(4096).unwrap())
            .unwrap();
        let bytes = round.to_ne_bytes().repeat(1 + round as usize * 7);
        let _ = connection
            .post_send(ends.pd.reg_mr(bytes.clone()).unwrap())
            .unwrap();
        let done = ends.completions(2);
        assert!(done.iter().any(|c| c.payload() == Some(&bytes[..])));
    }
    connection.close(LONG).unwrap();
    assert!(peer.child.wait().unwrap().success());
}

#[test]
fn a_killed_server_is_heard_of() {
    let mut peer = Peer::start("echo", None);
    let (ends, connection) = connect(peer.address());
    let _ = connection
        .post_recv(ends.pd.alloc_buf(64).unwrap())
        .unwrap();
    peer.kill();
    assert_eq!(connection.next_event(LONG).unwrap(), OVER);
    let flushed = ends.completions(1).remove(0).result.unwrap_err();
    assert_eq!(flushed.status, WcStatus::WR_FLUSH_ERR);
    assert!(connection.close(LONG).unwrap().is_empty());
    assert_eq!(adverb::leaked_bytes(), 0);
}

#[test]
fn a_killed_client_is_heard_of() {
    let listener = listener();
    let mut peer = Peer::start("ask and wait", Some(listener.local_addr().unwrap()));
    let request = listener.accept(LONG).unwrap().unwrap();
    let ends = Ends::on(&request.context().unwrap());
    let connection = request.accept(ends.qp(), &Params::default(), LONG).unwrap();
    peer.kill();
    assert_eq!(connection.next_event(LONG).unwrap(), OVER);
}

#[test]
fn a_client_that_is_killed_before_it_is_accepted_fails_the_acceptance() {
    let listener = listener();
    let mut peer = Peer::start("ask and wait", Some(listener.local_addr().unwrap()));
    let request = listener.accept(LONG).unwrap().unwrap();
    let ends = Ends::on(&request.context().unwrap());
    peer.kill();
    let late = request.accept(ends.qp(), &Params::default(), LONG);
    failure(late.unwrap_err());
}

#[test]
fn a_server_that_is_killed_before_it_accepts_fails_the_request() {
    let mut peer = Peer::start("listen and wait", None);
    let way = connector().resolve(peer.address(), LONG).unwrap();
    let ends = Ends::on(&way.context().unwrap());
    let asking = way.start(ends.qp(), &Params::default()).unwrap();
    peer.kill();
    let refused = failure(asking.wait(LONG).unwrap_err());
    assert!(
        matches!(
            refused,
            Failure::Rejected { .. } | Failure::Unreachable { .. }
        ),
        "{refused}"
    );
}
