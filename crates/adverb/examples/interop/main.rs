//! Two processes on two implementations of RoCEv2 test each other.
//!
//! ```text
//! interop -d DEVICE -g GID_INDEX [-m MTU] [-p PORT] [--lossy]         the responder; waits for a requester
//! interop -d DEVICE -g GID_INDEX [-m MTU] [-p PORT] [--lossy] HOST    the requester
//! ```
//!
//! Each check opens a connection of its own. What came and what the other side should see is
//! checked on both sides; a line `ok NAME` or `FAIL NAME: why` each. With `--lossy` the checks are
//! left out that need every datagram to arrive.

mod checks;
mod errors;
mod side;

use std::process::ExitCode;

use side::{Outcome, Role, Side};

type Check = fn(&mut Side) -> Outcome;

/// Name, whether it stands a lossy network, the check.
const CHECKS: &[(&str, bool, Check)] = &[
    ("send", true, checks::send),
    ("write", true, checks::write),
    ("read", true, checks::read),
    ("atomic", true, checks::atomic),
    ("send-uc", false, checks::send_unreliable),
    ("write-uc", false, checks::write_unreliable),
    ("send-ud", false, checks::datagrams),
    ("rnr", true, errors::receiver_not_ready),
    ("rnr-exceeded", true, errors::receiver_never_ready),
    ("write-access", true, errors::write_without_right),
    ("read-access", true, errors::read_past_the_end),
    ("too-long", true, errors::message_too_long),
    ("gone", true, errors::peer_is_gone),
];

fn main() -> ExitCode {
    let mut side = match Side::from_args(std::env::args().skip(1)) {
        Ok(side) => side,
        Err(why) => {
            eprintln!("interop: {why}");
            return ExitCode::from(2);
        }
    };
    let mut good = true;
    for (name, stands_loss, check) in CHECKS {
        if side.lossy && !stands_loss {
            continue;
        }
        let outcome = check(&mut side);
        good &= outcome.is_ok();
        match outcome {
            Ok(note) => println!("ok {name}{note}"),
            Err(why) => println!("FAIL {name}: {why}"),
        }
        // After a failure the two sides no longer know what the other one waits for.
        if !good {
            break;
        }
        if let Err(why) = side.next_check() {
            println!("FAIL {name}: the other side is lost: {why}");
            return ExitCode::FAILURE;
        }
    }
    let role = match side.role {
        Role::Requester => "requester",
        Role::Responder => "responder",
    };
    println!("{role}: {}", if good { "all is well" } else { "failed" });
    ExitCode::from(u8::from(!good))
}
