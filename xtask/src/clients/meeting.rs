//! Two programs that meet by the connection manager: how each is called, when the server is ready, and by what we see
//! that they did their work.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::listening::{Ports, Registry};
use super::pair::{Sides, results, sysfs_refusal, wait_for_listener, wait_until, with_options};
use crate::tally::Outcome;
use crate::tree::Release;

/// Stands for a port that nobody uses.
pub(super) const PORT: &str = "PORT";

pub(crate) struct Meeting {
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
    pub(super) ready: Ready,
    pub(super) signs: Vec<Sign>,
    pub(super) server_stays: bool,
    /// Whether they look for the device in files.
    pub(super) sysfs: bool,
}

/// When the client may come.
pub(super) enum Ready {
    /// The server listens by the connection manager. The few programs that take no port always use the same.
    Listens(Option<u16>),
    /// It listens on the TCP port.
    Tcp,
    /// It has printed this.
    Says(&'static str),
}

/// What must be in the output besides an exit status of 0.
pub(super) enum Sign {
    /// So many lines of the server with this in it, or more.
    Server(String, usize),
    /// The same of the client.
    Client(String, usize),
    /// Neither says this.
    Never(&'static str),
    /// So many lines of perftest's results.
    Results(usize),
}

pub(super) fn run(
    release: &Release,
    meeting: &Meeting,
    link: &str,
    logs: &Path,
    ports: &mut Ports,
) -> Result<Outcome> {
    let mut options = vec!["--links", link];
    if meeting.sysfs {
        options.push("--sysfs");
        if let Some(why) = sysfs_refusal(release)? {
            return Ok(Outcome::Skipped(why));
        }
    }
    let port = ports.take();
    let number = port.to_string();
    let side = |words: &[String]| -> Command {
        // stdbuf: most programs do not flush what they print into a file before they end.
        let mut command = with_options(release, &options, "stdbuf");
        command.arg("-oL");
        command.args(words.iter().map(|word| word.replace(PORT, &number)));
        command
    };
    let sides = Sides {
        server: side(&meeting.server),
        client: side(&meeting.client),
        server_stays: meeting.server_stays,
    };
    let judge = |server: &str, client: &str| complaint(&meeting.signs, server, client);
    match meeting.ready {
        Ready::Listens(fixed) => {
            let at = fixed.unwrap_or(port);
            let registry = Registry::look(at);
            let what = format!("listened on port {at} of the connection manager");
            sides.run(
                logs,
                port,
                |server| wait_until(server, &what, |_| registry.has_new_listener()),
                judge,
            )
        }
        Ready::Tcp => sides.run(logs, port, |server| wait_for_listener(server, port), judge),
        Ready::Says(word) => sides.run(
            logs,
            port,
            |server| {
                wait_until(server, &format!("said {word:?}"), |server| {
                    server.output().contains(word)
                })
            },
            judge,
        ),
    }
}

/// Which sign is missing.
pub(super) fn complaint(signs: &[Sign], server: &str, client: &str) -> Option<String> {
    let few = |name: &str, text: &str, sign: &str, wanted: usize| {
        let found = text.lines().filter(|line| line.contains(sign)).count();
        (found < wanted)
            .then(|| format!("the {name} said {sign:?} {found} times instead of {wanted}"))
    };
    signs.iter().find_map(|sign| match sign {
        Sign::Server(sign, count) => few("server", server, sign, *count),
        Sign::Client(sign, count) => few("client", client, sign, *count),
        Sign::Never(sign) => {
            (server.contains(sign) || client.contains(sign)).then(|| format!("one said {sign:?}"))
        }
        Sign::Results(wanted) => {
            let found = results(client);
            (found != *wanted).then(|| format!("{found} lines of results instead of {wanted}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_counts() {
        let signs = [
            Sign::Client("ping data".to_owned(), 2),
            Sign::Never("mismatch"),
        ];
        assert!(complaint(&signs, "", "ping data: 0\nping data: 1\n").is_none());
        assert!(complaint(&signs, "ping data\nping data", "ping data: 0").is_some());
        assert!(complaint(&signs, "mismatch", "ping data: 0\nping data: 1\n").is_some());
    }
}
