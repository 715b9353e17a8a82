//! The table of clients: which programs, with which arguments, and by what we see that they did their work.

use std::fmt;

use super::launcher::Launcher;
use super::meeting::Meeting;
use super::{frameworks, manager};

/// How a row is run and judged.
pub(crate) enum Shape {
    /// Two processes; the client gets the server's address as its last argument.
    Pair(Proof),
    /// Two processes that meet by the connection manager.
    Meeting(Meeting),
    /// One program that starts processes which talk to each other.
    Launcher(Launcher),
    /// One process that ends by itself, prints nothing on stderr, and names the device.
    Alone,
    /// One process that waits for events for ever once it has printed this.
    Watcher(&'static str),
}

/// What the output of both sides must show besides an exit status of 0.
pub(crate) enum Proof {
    /// A ping-pong program: the line with the time it took, and no word of wrong content.
    PingPong,
    /// perftest on the client's side: this many lines of results.
    Results(usize),
}

pub(crate) struct Row {
    pub(crate) program: &'static str,
    pub(crate) args: Vec<String>,
    pub(crate) shape: Shape,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.args.join(" "))
    }
}

/// Debian's ping-pong programs and what they are run with; each line polling, and with `-e`.
/// `-c` checks the contents of the last message. UD messages end at the MTU of 4096, UC and RC segments at 1024 unless
/// `-m` says otherwise, so a MiB is 1024 or 256 packets.
const PINGPONGS: &[(&str, &[&str])] = &[
    (
        "ibv_rc_pingpong",
        &[
            "-c -s 1",
            "-c -s 4096",
            "-c -s 1048576 -n 50",
            "-c -s 1048576 -m 4096 -n 50",
            "-c -s 4096 -N",
            "-s 4096 -t",
        ],
    ),
    (
        "ibv_uc_pingpong",
        &[
            "-c -s 1",
            "-c -s 4096",
            "-c -s 1048576 -n 50",
            "-c -s 1048576 -m 4096 -n 50",
        ],
    ),
    ("ibv_ud_pingpong", &["-c -s 1", "-c -s 2048", "-c -s 4096"]),
    (
        "ibv_srq_pingpong",
        &[
            "-c -s 1",
            "-c -s 4096",
            "-c -s 1048576 -n 10",
            "-c -s 4096 -q 1",
        ],
    ),
];

/// Whether a perftest program has `-e`; those that write refuse it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Polling,
    Both,
}

/// Arguments, and how many lines of results they give.
type Variants = &'static [(&'static str, usize)];

/// perftest. `-a` walks the sizes 2 to 2^23. For each size perftest measures the CPU's clock for a good part of a
/// second, so only some programs do that, and polling only; all do 1 MiB.
///
/// UC and UD have no flow control: whoever sends more messages than the other side has receives posted loses the rest,
/// on every device. So those rows send fewer messages than the receive queue of 512 holds.
const PERFTEST: &[(&str, Waits, Variants)] = &[
    (
        "ib_send_lat",
        Waits::Both,
        &[
            ("-s 8 -n 1000", 1),
            ("-s 1048576 -n 50", 1),
            ("-a -n 50", 23),
            ("-c UC -s 8 -n 400", 1),
            ("-c UC -s 65536 -n 100", 1),
            ("-c UD -s 8 -n 400", 1),
            ("-c UD -s 4096 -n 400", 1),
        ],
    ),
    (
        "ib_send_bw",
        Waits::Both,
        &[
            ("-n 1000", 1),
            ("-s 1048576 -n 100", 1),
            ("-a -n 50", 23),
            ("-q 4 -n 500", 1),
            ("-b -n 500", 1),
            ("-b -q 4 -n 300", 1),
            ("-c UC -s 4096 -n 400", 1),
            ("-c UD -s 1024 -n 400", 1),
        ],
    ),
    (
        "ib_write_lat",
        Waits::Polling,
        &[
            ("-s 8 -n 1000", 1),
            ("-s 1048576 -n 50", 1),
            ("-a -n 50", 23),
            ("-c UC -s 8 -n 400", 1),
        ],
    ),
    (
        "ib_write_bw",
        Waits::Polling,
        &[
            ("-n 1000", 1),
            ("-s 1048576 -n 100", 1),
            ("-q 4 -n 500", 1),
            ("-b -n 500", 1),
            ("-c UC -s 4096 -n 400", 1),
        ],
    ),
    (
        "ib_read_lat",
        Waits::Both,
        &[("-s 8 -n 1000", 1), ("-s 1048576 -n 50", 1)],
    ),
    (
        "ib_read_bw",
        Waits::Both,
        &[
            ("-n 1000", 1),
            ("-s 1048576 -n 100", 1),
            ("-a -n 50", 23),
            ("-q 4 -n 500", 1),
            ("-b -n 500", 1),
        ],
    ),
    (
        "ib_atomic_lat",
        Waits::Both,
        &[
            ("-A CMP_AND_SWAP -n 1000", 1),
            ("-A FETCH_AND_ADD -n 1000", 1),
        ],
    ),
    (
        "ib_atomic_bw",
        Waits::Both,
        &[
            ("-A CMP_AND_SWAP -n 1000", 1),
            ("-A FETCH_AND_ADD -n 1000", 1),
            ("-A FETCH_AND_ADD -q 4 -n 500", 1),
            ("-A FETCH_AND_ADD -b -n 500", 1),
        ],
    ),
];

/// The rows whose runs are repeated to look for lost wake-ups: short, and asleep most of the time.
const SLEEPERS: &[(&str, &str)] = &[
    ("ib_send_lat", "-s 8 -n 1000"),
    ("ib_send_bw", "-n 300"),
    ("ib_read_lat", "-s 8 -n 1000"),
    ("ib_read_bw", "-n 300"),
    ("ib_atomic_lat", "-A FETCH_AND_ADD -n 1000"),
    ("ib_atomic_lat", "-A CMP_AND_SWAP -n 1000"),
    ("ib_atomic_bw", "-A FETCH_AND_ADD -n 300"),
    ("ib_atomic_bw", "-A CMP_AND_SWAP -n 300"),
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = vec![
        alone("ibv_devices", ""),
        alone("ibv_devinfo", ""),
        alone("ibv_devinfo", "-v"),
        alone("fi_info", "-p verbs"),
        Row {
            program: "ibv_asyncwatch",
            args: Vec::new(),
            shape: Shape::Watcher("async event FD"),
        },
    ];
    for (program, variants) in PINGPONGS {
        for variant in *variants {
            rows.push(pingpong(program, variant));
            // With -t the program takes an empty queue after an event for an error. But an event for a completion that
            // it has polled already together with an earlier one is legal, and common in a ping-pong.
            if !variant.contains("-t") {
                rows.push(pingpong(program, &format!("{variant} -e")));
            }
        }
    }
    for (program, waits, variants) in PERFTEST {
        for (variant, results) in *variants {
            rows.push(perftest(program, variant, *results));
            if *waits == Waits::Both && !variant.contains("-a ") {
                rows.push(perftest(program, &format!("{variant} -e"), *results));
            }
        }
    }
    rows.extend(manager::rows());
    rows.extend(frameworks::rows());
    rows
}

/// Every client that sleeps on events, in a short form.
pub(crate) fn sleeping_rows() -> Vec<Row> {
    let pingpongs = PINGPONGS
        .iter()
        .map(|(program, _)| pingpong(program, "-c -s 1024 -n 300 -e"));
    let perftests = SLEEPERS
        .iter()
        .map(|(program, variant)| perftest(program, &format!("{variant} -e"), 1));
    let meetings = manager::sleeping_rows();
    pingpongs.chain(perftests).chain(meetings).collect()
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn alone(program: &'static str, args: &str) -> Row {
    Row {
        program,
        args: words(args),
        shape: Shape::Alone,
    }
}

fn pingpong(program: &'static str, args: &str) -> Row {
    Row {
        program,
        args: words(&format!("-g 1 {args}")),
        shape: Shape::Pair(Proof::PingPong),
    }
}

/// `-F` only silences a warning about the CPU's frequency, which these tests do not depend on.
fn perftest(program: &'static str, args: &str, results: usize) -> Row {
    Row {
        program,
        args: words(&format!("-d adverb0 -x 1 -F {args}")),
        shape: Shape::Pair(Proof::Results(results)),
    }
}
