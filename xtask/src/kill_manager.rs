//! `kill -9` of one side of a pair that the connection manager has brought together, or is about to.
//!
//! The pair is rping without end, its server one that takes one client after the other. A server whose client dies must
//! hear of it and serve the next client; a client whose server dies must end by itself.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::clients::{Registry, hang_report, under_adverb, wait_until};
use crate::process::{Job, tail};
use crate::tree::Release;

/// A death on the same host shows at once; before there is a connection, what is said twice needs seconds.
const BOUND: Duration = Duration::from_secs(30);

/// The program.
pub(crate) const MANAGED: &str = "rping";

pub(crate) struct Death {
    pub(crate) of_server: bool,
    pub(crate) after: Duration,
}

/// Says what the survivor did wrong.
pub(crate) fn round(
    release: &Release,
    logs: &Path,
    link: &str,
    port: u16,
    death: &Death,
) -> Result<Option<String>> {
    let start = |name: &str, words: &str| {
        let mut command: Command = under_adverb(release, link, "stdbuf");
        command.args(["-oL", "rping", "-a", "127.0.0.1", "-v", "-V"]);
        command.args(["-p", &port.to_string()]);
        command.args(words.split_whitespace());
        Job::start(&mut command, Some(&logs.join(format!("{port}-{name}.log"))))
    };
    let registry = Registry::look(port);
    let mut server = start("server", "-s -P")?;
    let ready = wait_until(&mut server, "listened", |_| registry.has_new_listener())?;
    if ready.is_some() {
        return Ok(ready);
    }
    let mut client = start("client", "-c")?;
    std::thread::sleep(death.after);
    if death.of_server {
        server.kill_leader()?;
        return ends_by_itself(&mut client);
    }
    client.kill_leader()?;
    client.wait_until(Instant::now() + BOUND)?;
    // Whether they were connected, only the server knows.
    let connected = server.output().contains("ping data");
    let heard = |server: &Job| server.output().contains("DISCONNECT EVENT");
    if connected {
        let until = Instant::now() + BOUND;
        while !heard(&server) {
            if Instant::now() > until {
                return Ok(Some(format!(
                    "the server did not hear of its client's death\n{}",
                    hang_report(&server)
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut next = start("next", "-c -C 5")?;
    match next.wait_until(Instant::now() + BOUND)? {
        Some(status) if status.success() => {}
        Some(status) => {
            return Ok(Some(format!(
                "the next client: {status}\n{}\n-- server\n{}",
                tail(&next.output(), 12),
                tail(&server.output(), 12)
            )));
        }
        None => {
            return Ok(Some(format!(
                "the next client hangs\n{}\n-- server\n{}",
                hang_report(&next),
                hang_report(&server)
            )));
        }
    }
    Ok(server
        .poll()?
        .map(|status| format!("the server ended: {status}\n{}", tail(&server.output(), 12))))
}

/// Says what is wrong with a pair that nobody kills. Its server claims a port, and with that removes the claims of the dead.
pub(crate) fn fresh_pair(
    release: &Release,
    logs: &Path,
    link: &str,
    port: u16,
) -> Result<Option<String>> {
    let start = |name: &str, words: &str| {
        let mut command: Command = under_adverb(release, link, MANAGED);
        command.args(["-a", "127.0.0.1", "-C", "3", "-p", &port.to_string()]);
        command.args(words.split_whitespace());
        Job::start(&mut command, Some(&logs.join(format!("{port}-{name}.log"))))
    };
    let registry = Registry::look(port);
    let mut server = start("fresh-server", "-s")?;
    let ready = wait_until(&mut server, "listened", |_| registry.has_new_listener())?;
    if ready.is_some() {
        return Ok(ready);
    }
    let mut client = start("fresh-client", "-c")?;
    // The server's status says nothing: rping ends with an error when its client goes.
    let until = Instant::now() + BOUND;
    for (name, job, judged) in [
        ("client", &mut client, true),
        ("server", &mut server, false),
    ] {
        match job.wait_until(until)? {
            None => {
                return Ok(Some(format!(
                    "the {name} did not end\n{}",
                    hang_report(job)
                )));
            }
            Some(status) if judged && !status.success() => {
                return Ok(Some(format!(
                    "{name}: {status}\n{}",
                    tail(&job.output(), 12)
                )));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

/// A server that is there to look: it joins, and claims a port, and with both removes what the dead left.
pub(crate) fn visitor(release: &Release, logs: &Path, port: u16) -> Result<Job> {
    let registry = Registry::look(port);
    let mut command: Command = under_adverb(release, "shm", MANAGED);
    command.args(["-s", "-a", "127.0.0.1", "-p", &port.to_string()]);
    let mut job = Job::start(&mut command, Some(&logs.join("visitor.log")))?;
    match wait_until(&mut job, "listened", |_| registry.has_new_listener())? {
        None => Ok(job),
        Some(why) => bail!("the visitor: {why}"),
    }
}

/// With any status, but not by a signal.
fn ends_by_itself(client: &mut Job) -> Result<Option<String>> {
    Ok(match client.wait_until(Instant::now() + BOUND)? {
        None => Some(format!("the client did not end\n{}", hang_report(client))),
        Some(status) if status.code().is_some() => None,
        Some(status) => Some(format!(
            "the client ended with {status}\n{}",
            tail(&client.output(), 12)
        )),
    })
}
