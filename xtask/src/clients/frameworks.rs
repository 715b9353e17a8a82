//! Programs that stand on something which itself stands on verbs: fio's engine, libfabric, UCX, Open MPI.
//!
//! Those on UCX see the device only with `adverb run --sysfs`.

use std::path::Path;

use super::launcher::Launcher;
use super::matrix::{Row, Shape, words};
use super::meeting::{Meeting, PORT, Ready, Sign};

const V4: &str = "127.0.0.1";

/// Which verb, and what both sides are told of sizes. fio asks for no retries where the receiver is not ready, so the
/// server has a receive for each of the 64 blocks; to the other verbs that does no harm.
const FIO: &[(&str, &str)] = &[
    ("write", "--bs=64k --size=4m"),
    ("read", "--bs=1m --size=64m"),
    ("send", "--bs=64k --size=4m"),
];

/// Provider, kind of endpoint, further options, how many sizes that makes. `-c` compares what comes with what was sent.
/// Reliable datagrams are made of connections by rxm. What makes them of unreliable ones, rxd, is not here: its client
/// crashed once in some fifty runs on a busy machine, and nobody knows yet whose fault that is.
const LIBFABRIC: &[(&str, &str, &str, usize)] = &[
    ("verbs", "msg", "-c -I 50", 6),
    ("verbs;ofi_rxm", "rdm", "-c -I 50", 6),
    ("verbs;ofi_rxm", "rdm", "-c -I 50 -m tagged", 6),
    ("verbs", "dgram", "-c -I 50", 4),
];

/// Why a failed row is run once more and must pass then: a fault of the program's own that shows in what it said, and where
/// it is described. Whatever else fails has failed.
pub(super) fn known_flaw(row: &Row, why: &str) -> Option<&'static str> {
    // libfabric's rxm destroys its queue pair before it has read the last message. The other side is through.
    let lines: Vec<&str> = why.lines().collect();
    let hangs = lines
        .iter()
        .filter(|l| l.starts_with("-- ") && l.ends_with(" hangs:"));
    let through = lines
        .iter()
        .filter(|l| l.starts_with("-- ") && l.ends_with(": exit status: 0"));
    let at_the_end = row.program == "fi_pingpong"
        && row.args.iter().any(|arg| arg.contains("ofi_rxm"))
        && why.starts_with("did not end")
        && hangs.count() == 1
        && through.count() == 1;
    at_the_end.then_some(
        "one side is through and the other waits for a message that libfabric threw away (docs/programs.md)",
    )
}

/// UCX makes its connections with the help of UD.
const OVER_RC: &str = "rc_verbs,ud_verbs,self";
const OVER_UD: &str = "ud_verbs,self";

/// UCX_TLS, and a test of UCX's upper layer.
const UCX: &[(&str, &str)] = &[
    (OVER_RC, "tag_lat -n 1000"),
    (OVER_RC, "tag_bw -n 100 -s 1048576"),
    (OVER_RC, "ucp_put_bw -n 1000"),
    (OVER_RC, "ucp_get -n 1000"),
    (OVER_RC, "ucp_am_lat -n 1000"),
    (OVER_UD, "tag_lat -n 1000"),
    (OVER_UD, "tag_bw -n 100 -s 65536"),
];

/// A test of UCX's lower layer, which is the transport itself.
const UCT: &[&str] = &[
    "am_lat -n 1000 -x rc_verbs",
    "put_bw -n 1000 -x rc_verbs",
    "am_lat -n 1000 -x ud_verbs",
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(FIO.iter().map(|(verb, sizes)| fio(verb, sizes)));
    rows.extend(
        LIBFABRIC
            .iter()
            .map(|(provider, endpoint, options, sizes)| {
                pingpong(provider, endpoint, options, *sizes)
            }),
    );
    for (transports, test) in UCX {
        rows.push(ucx(&format!("UCX_TLS={transports}"), test));
    }
    for test in UCT {
        rows.push(ucx("UCX_TLS=all", &format!("{test} -d adverb0:1")));
    }
    rows.push(mpi(
        "--mca pml ucx",
        &format!("UCX_NET_DEVICES=adverb0:1 UCX_TLS={OVER_RC} UCX_LOG_LEVEL=info"),
        // UCX's log: one line for each process at least.
        Sign::Client("rc_verbs/adverb0:1".to_owned(), 2),
    ));
    rows.push(mpi(
        "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm",
        "FI_LOG_LEVEL=warn",
        Sign::Never("not found"),
    ));
    rows
}

/// `--thread`, because a job in a process of its own would outlive its parent if it hung.
fn fio(verb: &str, sizes: &str) -> Row {
    let engine = format!("--ioengine=rdma --thread --port={PORT} {sizes}");
    let server = format!("fio --name=server {engine} --rw=read --filename={V4} --iodepth=64");
    let client =
        format!("fio --name=client {engine} --rw=write --hostname={V4} --verb={verb} --iodepth=16");
    let none_short = "short=0,0,0,0 dropped=0,0,0,0";
    let mut signs = vec![
        Sign::Client(format!("issued rwts: total=0,64,0,0 {none_short}"), 1),
        Sign::Client("err= 0:".to_owned(), 1),
        Sign::Server("err= 0:".to_owned(), 1),
        Sign::Never("cq completion status"),
    ];
    if verb == "send" {
        let all = format!("issued rwts: total=64,0,0,0 {none_short}");
        signs.push(Sign::Server(all, 1));
    }
    Row {
        program: "fio",
        args: words(&format!("--ioengine=rdma --verb={verb} {sizes}")),
        shape: Shape::Meeting(Meeting {
            server: words(&server),
            client: words(&client),
            ready: Ready::Listens(None),
            signs,
            server_stays: false,
            sysfs: false,
        }),
    }
}

/// Each side prints a line for each size, with how many came back.
fn pingpong(provider: &str, endpoint: &str, options: &str, sizes: usize) -> Row {
    let line = format!("-p {provider} -e {endpoint} {options}");
    let iterations = options
        .split_whitespace()
        .skip_while(|word| *word != "-I")
        .nth(1)
        .unwrap_or_default();
    let acknowledged = format!(" ={iterations} ");
    Row {
        program: "fi_pingpong",
        args: words(&line),
        shape: Shape::Meeting(Meeting {
            server: words(&format!("fi_pingpong -B {PORT} {line}")),
            client: words(&format!("fi_pingpong -P {PORT} {line} {V4}")),
            ready: Ready::Tcp,
            signs: vec![
                Sign::Server(acknowledged.clone(), sizes),
                Sign::Client(acknowledged, sizes),
                Sign::Never("[error]"),
            ],
            server_stays: false,
            sysfs: false,
        }),
    }
}

/// The line of results at the end is the client's; the server's exit status says that it did not give up.
fn ucx(setting: &str, test: &str) -> Row {
    let line =
        format!("env UCX_NET_DEVICES=adverb0:1 {setting} ucx_perftest -p {PORT} -w 100 -t {test}");
    Row {
        program: "ucx_perftest",
        args: words(&format!("-t {test} ({setting})")),
        shape: Shape::Meeting(Meeting {
            server: words(&line),
            client: words(&format!("{line} {V4}")),
            ready: Ready::Tcp,
            signs: vec![Sign::Client("Final:".to_owned(), 1), Sign::Never("ERROR")],
            server_stays: false,
            sysfs: true,
        }),
    }
}

/// Messages go round between two processes, and have no other way than the one named here.
fn mpi(component: &str, setting: &str, sign: Sign) -> Row {
    let line = format!(
        "env {setting} mpirun --allow-run-as-root --oversubscribe -n 2 --mca btl self --mca osc ucx {component} \
         /usr/bin/python3 -m mpi4py.bench ringtest -n 65536 -l 100"
    );
    Row {
        program: "mpirun",
        args: words(&format!("-n 2 {component} mpi4py.bench ringtest")),
        shape: Shape::Launcher(Launcher {
            needs: Path::new("/usr/lib/python3/dist-packages/mpi4py"),
            command: words(&line),
            signs: vec![
                Sign::Client("time for 100 loops".to_owned(), 1),
                sign,
                Sign::Never("ERROR"),
            ],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hang_at_the_end_of_rxm_is_known() {
        let rows = rows();
        let of = |word: &str| {
            let found = rows.iter().find(|r| {
                r.program == "fi_pingpong" && r.args.iter().any(|arg| arg.contains(word))
            });
            found.expect("there is such a row")
        };
        let (rxm, dgram) = (of("ofi_rxm"), of("dgram"));
        let hang =
            "did not end\n-- server: exit status: 0\n1024 50 =50 1k\n-- client hangs:\nprocess 7";
        assert!(known_flaw(rxm, hang).is_some());
        assert!(known_flaw(dgram, hang).is_none());
        let both = "did not end\n-- server hangs:\n-- client hangs:\nprocess 7";
        assert!(known_flaw(rxm, both).is_none());
        assert!(known_flaw(rxm, "server: exit status: 0, client: signal: 11 (SIGSEGV)").is_none());
    }
}
