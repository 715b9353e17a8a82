//! Connections by address and port: within a process, between processes, over both links.
//!
//! `ADVERB_TEST_ADDRESS` names an address of a device of the system to use instead of the software
//! NIC. `the_same_over_udp` runs everything again where only UDP is allowed.

mod arguments;
mod connecting;
mod ending;
mod futures;
mod processes;
mod refusing;
mod waiting;

use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use adverb::cm::{Connecting, Connection, Connector, Listener, Params, Request, Route};
use adverb::transport::Rc;
use adverb::{
    Completion, CompletionQueue, Context, Error, Origin, ProtectionDomain, QueuePair, Wait,
};

/// How long a test waits for what must come. Never reached unless something is broken.
const LONG: Option<Duration> = Some(Duration::from_secs(20));

#[test]
fn the_same_over_udp() {
    if env::var_os("ADVERB_LINKS").is_some() || env::var_os("ADVERB_TEST_ADDRESS").is_some() {
        return;
    }
    // A process that is killed takes along what its socket held, also what was for others.
    over_udp(19_091, &["--skip", "processes::"]);
    over_udp(19_092, &["processes::", "--test-threads=1"]);
}

fn over_udp(port: u16, tests: &[&str]) {
    let output = Command::new(env::current_exe().unwrap())
        .args(tests)
        .env("ADVERB_LINKS", "udp")
        .env("ADVERB_UDP_PORT", port.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

/// Which address, and whose devices.
fn place() -> (IpAddr, Origin) {
    match env::var("ADVERB_TEST_ADDRESS") {
        Ok(address) => (address.parse().unwrap(), Origin::System),
        Err(_) => (Ipv4Addr::LOCALHOST.into(), Origin::Software),
    }
}

fn listener() -> Listener {
    let (address, origin) = place();
    let builder = Listener::builder().origin(origin);
    builder.bind((address, 0)).unwrap()
}

fn connector() -> Connector {
    Connector::new().origin(place().1)
}

fn route(to: &Listener) -> Route {
    let address = to.local_addr().unwrap();
    connector().resolve(address, LONG).unwrap()
}

/// What a queue pair needs.
struct Ends {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Ends {
    fn on(ctx: &Context) -> Self {
        Self {
            pd: ctx.alloc_pd().unwrap(),
            cq: ctx.create_cq(1024).build().unwrap(),
        }
    }

    fn qp(&self) -> QueuePair<Rc> {
        self.pd.create_qp::<Rc>(&self.cq).build().unwrap()
    }

    /// The next `count` completions; more are a mistake.
    fn completions(&self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            assert!(self.cq.wait(&mut done, Wait::default(), LONG).unwrap() > 0);
        }
        assert_eq!(done.len(), count, "{done:?}");
        done
    }
}

/// A request that has arrived, and the side that asks.
fn asked(listener: &Listener, ends: &Ends, params: &Params) -> (Connecting, Request) {
    let asking = route(listener).start(ends.qp(), params).unwrap();
    let request = listener.accept(LONG).unwrap().unwrap();
    (asking, request)
}

/// Two connected ends: who asked, who accepted.
fn pair(listener: &Listener, ends: &Ends) -> (Connection, Connection) {
    let (asking, request) = asked(listener, ends, &Params::default());
    let accepting = request.start(ends.qp(), &Params::default()).unwrap();
    (asking.wait(LONG).unwrap(), accepting.wait(LONG).unwrap())
}

/// Why there is no connection.
fn failure(error: Error) -> adverb::cm::Failure {
    match error {
        Error::Connection { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

/// Descriptors that this process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
