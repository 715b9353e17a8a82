//! Runs one row of the matrix: starts the processes, bounds them, and judges what they printed.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::listening::{Ports, is_listening};
use super::matrix::{Proof, Row, Shape};
use super::{launcher, meeting};
use crate::process::{self, Job, tail};
use crate::stacks;
use crate::tally::Outcome;
use crate::tree::Release;

/// No row takes a fifth of this on a machine that does nothing else; only a hang gets here.
pub(super) const BOUND: Duration = Duration::from_secs(120);
/// How long a server may take until it listens on its TCP port.
const LISTEN_BOUND: Duration = Duration::from_secs(15);
/// How long the other side gets after one side has failed.
const GRACE: Duration = Duration::from_secs(5);

/// `adverb run --links LINK -- PROGRAM`.
pub(crate) fn under_adverb(release: &Release, link: &str, program: &str) -> Command {
    with_options(release, &["--links", link], program)
}

/// `adverb run OPTIONS -- PROGRAM`.
pub(crate) fn with_options(release: &Release, options: &[&str], program: &str) -> Command {
    let mut command = process::command(&release.adverb);
    command.arg("run").args(options).args(["--", program]);
    command
}

/// Why this system does not let programs see the devices in files, if it does not.
pub(crate) fn sysfs_refusal(release: &Release) -> Result<Option<String>> {
    let tried = with_options(release, &["--sysfs"], "true").output()?;
    let words = String::from_utf8_lossy(&tried.stderr);
    Ok((!tried.status.success()).then(|| words.trim_end().to_owned()))
}

/// Waits until the server listens on a TCP port; an error text when it ended or never did.
pub(crate) fn wait_for_listener(server: &mut Job, port: u16) -> Result<Option<String>> {
    wait_until(server, &format!("listened on TCP port {port}"), |_| {
        is_listening(port)
    })
}

/// Waits until the server has done something; an error text when it ended or never did.
pub(crate) fn wait_until(
    server: &mut Job,
    what: &str,
    done: impl Fn(&Job) -> bool,
) -> Result<Option<String>> {
    let until = Instant::now() + LISTEN_BOUND;
    while !done(server) {
        if let Some(status) = server.poll()? {
            return Ok(Some(format!(
                "the server ended before it {what}: {status}\n{}",
                tail(&server.output(), 20)
            )));
        }
        if Instant::now() > until {
            return Ok(Some(format!(
                "the server never {what}\n{}",
                hang_report(server)
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

/// Output and stacks of a program that does not end.
pub(crate) fn hang_report(job: &Job) -> String {
    format!(
        "{}\n{}",
        tail(&job.output(), 12),
        stacks::of_group(job.group())
    )
}

pub(crate) fn run_row(
    release: &Release,
    row: &Row,
    link: &str,
    logs: &Path,
    ports: &mut Ports,
) -> Result<Outcome> {
    match &row.shape {
        Shape::Pair(proof) => run_pair(release, row, proof, link, logs, ports),
        Shape::Meeting(meeting) => meeting::run(release, meeting, link, logs, ports),
        Shape::Launcher(launcher) => {
            let log = logs.join(format!("{}.log", row.program));
            launcher::run(release, launcher, link, &log)
        }
        Shape::Alone => run_alone(release, row, link, logs),
        Shape::Watcher(word) => run_watcher(release, row, word, link, logs),
    }
}

fn run_pair(
    release: &Release,
    row: &Row,
    proof: &Proof,
    link: &str,
    logs: &Path,
    ports: &mut Ports,
) -> Result<Outcome> {
    let port = ports.take();
    let side = |peer: &[&str]| {
        let mut command = under_adverb(release, link, row.program);
        command
            .args(&row.args)
            .args(["-p", &port.to_string()])
            .args(peer);
        command
    };
    Sides {
        server: side(&[]),
        client: side(&["127.0.0.1"]),
        server_stays: false,
    }
    .run(
        logs,
        port,
        |server| wait_for_listener(server, port),
        |server, client| judge(proof, server, client),
    )
}

/// Two programs, one of which waits for the other.
pub(super) struct Sides {
    pub(super) server: Command,
    pub(super) client: Command,
    /// It serves one client after the other, and is ended when the client has ended well.
    pub(super) server_stays: bool,
}

impl Sides {
    /// Starts the server, the client once the server is `ready` (an error text when it never is), and asks `judge` what
    /// is wrong with the output of a server and a client that both succeeded.
    pub(super) fn run(
        mut self,
        logs: &Path,
        number: u16,
        ready: impl FnOnce(&mut Job) -> Result<Option<String>>,
        judge: impl FnOnce(&str, &str) -> Option<String>,
    ) -> Result<Outcome> {
        let log = |name: &str| logs.join(format!("{number}-{name}.log"));
        let mut server = Job::start(&mut self.server, Some(&log("server")))?;
        if let Some(why) = ready(&mut server)? {
            return Ok(Outcome::Failed(why));
        }
        let mut client = Job::start(&mut self.client, Some(&log("client")))?;

        let mut until = Instant::now() + BOUND;
        let failed = |end: Option<ExitStatus>| end.is_some_and(|status| !status.success());
        let (served, asked) = loop {
            let ends = (server.poll()?, client.poll()?);
            match ends {
                (Some(_), Some(_)) => break ends,
                (None, Some(asked)) if self.server_stays && asked.success() => break ends,
                _ => {}
            }
            if failed(ends.0) || failed(ends.1) {
                until = until.min(Instant::now() + GRACE);
            }
            if Instant::now() > until {
                return Ok(Outcome::Failed(report_hang(&mut server, &mut client)?));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (server_says, client_says) = (server.output(), client.output());
        let verdict = if failed(served) || failed(asked) {
            let say = |end: Option<ExitStatus>| {
                end.map_or_else(|| "still there".to_owned(), |status| status.to_string())
            };
            Some(format!("server: {}, client: {}", say(served), say(asked)))
        } else if self.server_stays && served.is_some() {
            Some("the server did not wait for another client".to_owned())
        } else {
            judge(&server_says, &client_says)
        };
        Ok(match verdict {
            None => Outcome::Passed,
            Some(why) => Outcome::Failed(format!(
                "{why}\n-- server said:\n{}\n-- client said:\n{}",
                essence(&server_says),
                essence(&client_says)
            )),
        })
    }
}

fn report_hang(server: &mut Job, client: &mut Job) -> Result<String> {
    let mut text = String::from("did not end");
    for (name, job) in [("server", server), ("client", client)] {
        match job.poll()? {
            Some(status) => text.push_str(&format!(
                "\n-- {name}: {status}\n{}",
                essence(&job.output())
            )),
            None => text.push_str(&format!("\n-- {name} hangs:\n{}", hang_report(job))),
        }
    }
    Ok(text)
}

/// The end of an output, without the addresses that the programs list for each queue pair, and without rping's data.
fn essence(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| {
            ![" address: ", " GID: ", "ping data: "]
                .iter()
                .any(|noise| line.contains(noise))
        })
        .collect();
    tail(&lines.join("\n"), 40)
}

/// What is wrong with the output of two programs that both said they succeeded.
fn judge(proof: &Proof, server: &str, client: &str) -> Option<String> {
    match proof {
        Proof::PingPong => {
            [("server", server), ("client", client)]
                .iter()
                .find_map(|(name, text)| {
                    if text.contains("invalid data") {
                        Some(format!("the {name} found wrong content"))
                    } else if !text.contains("iters in") {
                        Some(format!("the {name} did not say how long it took"))
                    } else {
                        None
                    }
                })
        }
        Proof::Results(wanted) => {
            let found = results(client);
            (found != *wanted).then(|| format!("{found} lines of results instead of {wanted}"))
        }
    }
}

/// Counts the lines below perftest's headings `#bytes …` that start with a number.
pub(super) fn results(text: &str) -> usize {
    text.lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"))
        .filter(|line| {
            line.split_whitespace()
                .next()
                .is_some_and(|word| word.parse::<u64>().is_ok())
        })
        .count()
}

fn run_alone(release: &Release, row: &Row, link: &str, logs: &Path) -> Result<Outcome> {
    let errors = logs.join(format!("{}-stderr.log", row.program));
    let mut command = under_adverb(release, link, "sh");
    // stderr goes to a file of its own: what a program warns of there is a failure even when it succeeds.
    command
        .args(["-c", "exec \"$@\" 2>\"$0\""])
        .arg(&errors)
        .arg(row.program)
        .args(&row.args);
    let mut job = Job::start(
        &mut command,
        Some(&logs.join(format!("{}.log", row.program))),
    )?;
    let Some(status) = job.wait_until(Instant::now() + BOUND)? else {
        return Ok(Outcome::Failed(format!(
            "did not end\n{}",
            hang_report(&job)
        )));
    };
    let output = job.output();
    let warnings = fs::read_to_string(&errors).unwrap_or_default();
    Ok(if !status.success() {
        Outcome::Failed(format!("{status}\n{output}{warnings}"))
    } else if !warnings.is_empty() {
        Outcome::Failed(format!("it warned:\n{warnings}"))
    } else if !output.contains("adverb0") {
        Outcome::Failed(format!("it does not name adverb0:\n{output}"))
    } else {
        Outcome::Passed
    })
}

fn run_watcher(
    release: &Release,
    row: &Row,
    word: &str,
    link: &str,
    logs: &Path,
) -> Result<Outcome> {
    let mut command = process::command(&release.adverb);
    // stdbuf: the program does not flush what it prints into a file.
    command
        .args(["run", "--links", link, "--", "stdbuf", "-oL", row.program])
        .args(&row.args);
    let mut job = Job::start(
        &mut command,
        Some(&logs.join(format!("{}.log", row.program))),
    )?;
    let until = Instant::now() + LISTEN_BOUND;
    loop {
        if let Some(status) = job.poll()? {
            return Ok(Outcome::Failed(format!(
                "it ended: {status}\n{}",
                job.output()
            )));
        }
        if job.output().contains(word) {
            return Ok(Outcome::Passed);
        }
        if Instant::now() > until {
            return Ok(Outcome::Failed(format!(
                "it never printed {word:?}\n{}",
                hang_report(&job)
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_below_the_headings_only() {
        let text = "\
 Number of qps   : 1
 local address: LID 0000
---------
 #bytes #iterations    t_min[usec]
 2       50          1.10
 4       50          1.12
---------
";
        assert_eq!(results(text), 2);
        assert_eq!(results("12 monkeys"), 0);
    }

    #[test]
    fn silence_of_a_pingpong_is_no_proof() {
        assert!(judge(&Proof::PingPong, "1000 iters in 0.01 seconds", "").is_some());
        let good = "8192000 bytes in 0.01 seconds\n1000 iters in 0.01 seconds = 10.27 usec/iter";
        assert!(judge(&Proof::PingPong, good, good).is_none());
        assert!(
            judge(
                &Proof::PingPong,
                good,
                &format!("invalid data in page 0\n{good}")
            )
            .is_some()
        );
    }
}
