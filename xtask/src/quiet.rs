//! No thread of ours spins beside a polling application: two processes that poll keep two threads busy, no more.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::clients::{LINKS, Ports, hang_report, under_adverb, wait_for_listener};
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// Both sides poll for this long; perftest counts in whole seconds.
const DURATION: &str = "6";
const WARM: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(2500);
const BOUND: Duration = Duration::from_secs(30);

/// A thread that ran for more than this share of the look is busy. A spinner on a machine with two cores and two
/// polling processes would get a third of a core or more.
const BUSY: f64 = 0.2;

/// Clock ticks per second of /proc/PID/stat: 100 on every Linux of the architectures we build for.
const TICKS: f64 = 100.0;

pub(crate) fn run(release: &Release) -> Result<bool> {
    let mut tally = Tally::new("quiet");
    let logs = release.logs("quiet")?;
    let mut ports = Ports::new();
    for link in LINKS {
        let name = format!("{link:4} two polling ib_send_lat keep two threads busy");
        if !tree::on_path("ib_send_lat") {
            tally.add(
                &name,
                0.0,
                Outcome::Skipped("ib_send_lat is not installed".to_owned()),
            );
            continue;
        }
        let started = Instant::now();
        let port = ports.take();
        let side = |name: &str, peer: Option<&str>| {
            let mut command = under_adverb(release, link, "ib_send_lat");
            command
                .args([
                    "-d",
                    "adverb0",
                    "-x",
                    "1",
                    "-F",
                    "-D",
                    DURATION,
                    "-p",
                    &port.to_string(),
                ])
                .args(peer);
            Job::start(&mut command, Some(&logs.join(format!("{link}-{name}.log"))))
        };
        let mut server = side("server", None)?;
        let outcome = match wait_for_listener(&mut server, port)? {
            Some(why) => Outcome::Failed(why),
            None => watch(&mut server, &mut side("client", Some("127.0.0.1"))?)?,
        };
        tally.add(&name, started.elapsed().as_secs_f64(), outcome);
    }
    Ok(tally.finish())
}

fn watch(server: &mut Job, client: &mut Job) -> Result<Outcome> {
    std::thread::sleep(WARM);
    let before = ticks(&[server, client]);
    let started = Instant::now();
    std::thread::sleep(LOOK);
    let after = ticks(&[server, client]);
    let seconds = started.elapsed().as_secs_f64();

    let mut busy = Vec::new();
    for (thread, (name, now)) in &after {
        let share = (now - before.get(thread).map_or(0.0, |(_, then)| *then)) / TICKS / seconds;
        if share > BUSY {
            busy.push(format!("thread {thread} {name}: {:.0} %", share * 100.0));
        }
    }
    for (name, job) in [("client", client), ("server", server)] {
        match job.wait_until(Instant::now() + BOUND)? {
            Some(status) if status.success() => {}
            Some(status) => {
                return Ok(Outcome::Failed(format!(
                    "{name}: {status}\n{}",
                    tail(&job.output(), 20)
                )));
            }
            None => {
                return Ok(Outcome::Failed(format!(
                    "{name} did not end\n{}",
                    hang_report(job)
                )));
            }
        }
    }
    Ok(if busy.is_empty() {
        Outcome::Failed("nobody was busy, so nothing was seen".to_owned())
    } else if busy.len() > 2 {
        Outcome::Failed(format!(
            "{} threads are busy\n{}",
            busy.len(),
            busy.join("\n")
        ))
    } else {
        Outcome::Passed
    })
}

/// Name and used clock ticks of each thread of some programs.
fn ticks(jobs: &[&mut Job]) -> BTreeMap<u32, (String, f64)> {
    let mut found = BTreeMap::new();
    for job in jobs {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", job.group())) else {
            continue;
        };
        for task in tasks.flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let Some((head, fields)) = stat.rsplit_once(") ") else {
                continue;
            };
            // Behind the name stand the state and ten more fields, then user and system time.
            let used: f64 = fields
                .split_whitespace()
                .skip(11)
                .take(2)
                .filter_map(|word| word.parse::<f64>().ok())
                .sum();
            let name = head
                .split_once('(')
                .map_or("?", |(_, name)| name)
                .to_owned();
            if let Some(id) = task.file_name().to_str().and_then(|text| text.parse().ok()) {
                found.insert(id, (name, used));
            }
        }
    }
    found
}
