//! Clients of the connection manager: Debian's rdmacm-utils, perftest with `-R`, qperf with `-cm1`.

use super::matrix::{Row, Shape, words};
use super::meeting::{Meeting, PORT, Ready, Sign};

const V4: &str = "127.0.0.1";
const V6: &str = "::1";

/// udaddy takes no port.
const UDADDY_PORT: u16 = 7174;

/// Address, options of both sides, and how many messages that means. `-q` moves its queue pair itself. 65535 is the
/// largest size.
const RPING: &[(&str, &str, usize)] = &[
    (V4, "-C 100", 100),
    (V4, "-C 50 -S 4096", 50),
    (V4, "-C 50 -S 65535", 50),
    (V4, "-C 50 -q", 50),
    (V6, "-C 50 -S 1024", 50),
];

/// Address, options of both sides, options of the client. `-c` is connections, `-m` moves them to another event
/// channel.
const UCMATOSE: &[(&str, &str, &str)] = &[
    (V4, "", ""),
    (V4, "-C 50 -S 65536", "-t 32"),
    (V4, "-c 20 -C 20 -S 4096", ""),
    (V4, "-c 5 -m", ""),
    (V4, "-a 10", ""),
    (V6, "-c 3 -S 1000", ""),
];

const UDADDY: &[(&str, &str)] = &[
    (V4, ""),
    (V4, "-c 5 -C 20 -S 1024"),
    (V4, "-S 4096"),
    (V6, "-S 512"),
];

/// Options of both sides and of the sender. Both wait three seconds between joining and sending, so there are few.
const MCKEY: &[(&str, &str)] = &[
    ("-m 239.1.2.3 -b 127.0.0.1", ""),
    ("-m 239.1.2.4 -b 127.0.0.1 -c 3 -C 20 -S 1024", "-o"),
];

/// Program, options, and whether it can wait for events.
const PERFTEST: &[(&str, &str, bool)] = &[
    ("ib_send_lat", "-R -s 8 -n 1000", true),
    ("ib_send_lat", "-R -s 1048576 -n 50", false),
    ("ib_send_lat", "-R -c UD -s 1024 -n 400", true),
    ("ib_send_bw", "-R -n 1000", true),
    ("ib_send_bw", "-R -b -q 4 -n 300", false),
    ("ib_send_bw", "-R -c UD -s 1024 -n 400", true),
    ("ib_write_lat", "-R -s 8 -n 1000", false),
    ("ib_write_bw", "-R -n 1000", false),
    ("ib_write_bw", "-R -q 4 -T 96 -n 300", false),
    ("ib_read_lat", "-R -s 8 -n 1000", true),
    ("ib_read_bw", "-R -n 1000", true),
    ("ib_atomic_lat", "-R -A FETCH_AND_ADD -n 1000", true),
    ("ib_atomic_bw", "-R -n 1000", true),
    // The queue pairs are perftest's own, only what they say about themselves goes over the connection manager.
    ("ib_send_lat", "-z -x 1 -s 8 -n 1000", true),
    ("ib_write_bw", "-z -x 1 -n 1000", false),
];

/// qperf takes a second for each test. Of its transports only RC can use the connection manager.
const QPERF: &[&str] = &[
    "rc_lat rc_bw rc_bi_bw",
    "rc_rdma_write_lat rc_rdma_write_poll_lat rc_rdma_write_bw",
    "rc_rdma_read_lat rc_rdma_read_bw",
    "rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add",
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(
        RPING
            .iter()
            .map(|(address, options, count)| rping(address, options, *count)),
    );
    rows.push(rping_persistent());
    rows.extend(
        UCMATOSE
            .iter()
            .map(|(address, both, client)| ucmatose(address, both, client)),
    );
    rows.extend(
        UDADDY
            .iter()
            .map(|(address, options)| udaddy(address, options)),
    );
    rows.extend(MCKEY.iter().map(|(both, sender)| mckey(both, sender)));
    rows.push(simple(
        "rdma_client",
        &format!("rdma_server -s {V4} -p {PORT}"),
        &format!("rdma_client -s {V4} -p {PORT}"),
    ));
    // `-c x` is XRC, which we do not have over the connection manager.
    rows.push(simple(
        "rdma_xclient",
        &format!("rdma_xserver -p {PORT} -c r"),
        &format!("rdma_xclient -s {V4} -p {PORT} -c r"),
    ));
    rows.push(cmtime());
    for (program, options, waits) in PERFTEST {
        rows.push(perftest(program, options));
        if *waits {
            rows.push(perftest(program, &format!("{options} -e")));
        }
    }
    rows.extend(QPERF.iter().map(|tests| qperf(tests)));
    rows
}

/// Those that sleep on events, in a short form.
pub(super) fn sleeping_rows() -> Vec<Row> {
    vec![
        rping(V4, "-C 100 -S 1000", 100),
        ucmatose(V4, "-c 5 -C 10", ""),
        perftest("ib_send_lat", "-R -s 8 -n 300 -e"),
        simple(
            "rdma_client",
            &format!("rdma_server -s {V4} -p {PORT}"),
            &format!("rdma_client -s {V4} -p {PORT}"),
        ),
    ]
}

fn row(program: &'static str, meeting: Meeting) -> Row {
    Row {
        program,
        args: meeting.client.iter().skip(1).cloned().collect(),
        shape: Shape::Meeting(meeting),
    }
}

fn both(word: &str, count: usize) -> Vec<Sign> {
    vec![
        Sign::Server(word.to_owned(), count),
        Sign::Client(word.to_owned(), count),
    ]
}

/// `-v` prints what came, `-V` compares it with what was sent.
fn rping(address: &str, options: &str, count: usize) -> Row {
    let mut signs = both("ping data: rdma-ping-", count);
    // The client that disconnects seldom lives until it hears of it.
    signs.push(Sign::Server("DISCONNECT EVENT".to_owned(), 1));
    signs.push(Sign::Never("mismatch"));
    row(
        "rping",
        Meeting {
            server: words(&format!("rping -s -a {address} -p {PORT} -v -V {options}")),
            client: words(&format!("rping -c -a {address} -p {PORT} -v -V {options}")),
            ready: Ready::Listens(None),
            signs,
            server_stays: false,
            sysfs: false,
        },
    )
}

/// One server for as many clients as come. One after the other: of two requests at once rping itself forgets the first.
fn rping_persistent() -> Row {
    let once = format!("rping -c -a {V4} -p {PORT} -v -V -C 20");
    let mut signs = both("ping data: rdma-ping-", 60);
    signs.push(Sign::Never("mismatch"));
    let mut row = row(
        "rping",
        Meeting {
            server: words(&format!("rping -s -P -a {V4} -p {PORT} -v -V")),
            client: vec![
                "sh".to_owned(),
                "-c".to_owned(),
                format!("{once} && {once} && {once}"),
            ],
            ready: Ready::Listens(None),
            signs,
            server_stays: true,
            sysfs: false,
        },
    );
    row.args = vec!["-P with three clients".to_owned()];
    row
}

fn ucmatose(address: &str, both_sides: &str, client: &str) -> Row {
    let mut signs = both("data transfers complete", 1);
    signs.extend(both("test complete", 1));
    signs.extend(both("return status 0", 1));
    row(
        "ucmatose",
        Meeting {
            server: words(&format!("ucmatose -b {address} -p {PORT} {both_sides}")),
            client: words(&format!(
                "ucmatose -s {address} -p {PORT} {both_sides} {client}"
            )),
            ready: Ready::Listens(None),
            signs,
            server_stays: false,
            sysfs: false,
        },
    )
}

fn udaddy(address: &str, options: &str) -> Row {
    let mut signs = both("data transfers complete", 1);
    signs.extend(both("return status 0", 1));
    row(
        "udaddy",
        Meeting {
            server: words(&format!("udaddy -b {address} {options}")),
            client: words(&format!("udaddy -s {address} {options}")),
            ready: Ready::Listens(Some(UDADDY_PORT)),
            signs,
            server_stays: false,
            sysfs: false,
        },
    )
}

/// The receiver is the server: it must have joined before anything is sent.
fn mckey(both_sides: &str, sender: &str) -> Row {
    let mut signs = both("joined dgid", 1);
    signs.extend(both("data transfers complete", 1));
    signs.extend(both("return status 0", 1));
    row(
        "mckey",
        Meeting {
            server: words(&format!("mckey {both_sides}")),
            client: words(&format!("mckey {both_sides} -s {sender}")),
            ready: Ready::Says("joined dgid"),
            signs,
            server_stays: false,
            sysfs: false,
        },
    )
}

/// The small examples say how they ended.
fn simple(program: &'static str, server: &str, client: &str) -> Row {
    row(
        program,
        Meeting {
            server: words(server),
            client: words(client),
            ready: Ready::Listens(None),
            signs: both(" end 0", 1),
            server_stays: false,
            sysfs: false,
        },
    )
}

/// A hundred connections at once; the client tells how long each step took.
fn cmtime() -> Row {
    let steps = ["resolve route:", "connect      :", "destroy      :"];
    row(
        "cmtime",
        Meeting {
            server: words(&format!("cmtime -b {V4} -p {PORT} -c 100")),
            client: words(&format!("cmtime -s {V4} -p {PORT} -c 100")),
            ready: Ready::Listens(None),
            signs: steps.map(|step| Sign::Client(step.to_owned(), 1)).into(),
            server_stays: true,
            sysfs: false,
        },
    )
}

/// `-F` only silences a warning about the CPU's frequency.
fn perftest(program: &'static str, options: &str) -> Row {
    let line = format!("{program} -d adverb0 -F -p {PORT} {options}");
    row(
        program,
        Meeting {
            server: words(&line),
            client: words(&format!("{line} {V4}")),
            ready: Ready::Listens(None),
            signs: vec![Sign::Results(1)],
            server_stays: false,
            sysfs: false,
        },
    )
}

fn qperf(tests: &str) -> Row {
    let named = tests
        .split_whitespace()
        .map(|test| Sign::Client(format!("{test}:"), 1));
    let mut signs: Vec<Sign> = named.collect();
    // One figure for each test at least.
    signs.push(Sign::Client(" = ".to_owned(), signs.len()));
    row(
        "qperf",
        Meeting {
            server: words(&format!("qperf -lp {PORT}")),
            client: words(&format!("qperf {V4} -lp {PORT} -cm1 -t 1 {tests}")),
            ready: Ready::Tcp,
            signs,
            server_stays: true,
            sysfs: false,
        },
    )
}
