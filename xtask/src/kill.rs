//! `kill -9` of one side of a running ping-pong at a random moment, again and again.
//!
//! The pair is tests/c/survivor.c: two processes that ping-pong, and probe a silent peer with an empty RDMA WRITE so
//! that there is always something to be missed. The side that survives must end by itself with error completions, use
//! its device again in the same process, a fresh pair must work at once, and then no process and no file of the dead may be
//! left over. Of five pairs one is perftest instead, where
//! the survivor learns of the death by TCP or by its own completions, whichever is first, and one is rping
//! (`kill_manager`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::args::Args;
use crate::clients::{LINKS, Ports, hang_report, under_adverb, wait_for_listener};
use crate::ctests;
use crate::kill_manager::{self, Death, MANAGED};
use crate::leftovers::Before;
use crate::process::{Job, tail};
use crate::tally::{Outcome, Tally};
use crate::tree::{self, Release};

/// Retry budget of survivor.c: 8 tries of 67 ms, at most four times that by the specification; the rest is the margin
/// for a machine that does other things.
const BOUND: Duration = Duration::from_secs(20);
/// The exit status by which survivor.c says: I lost my peer, saw it by completions, and used the device again.
const LOST_PEER: i32 = 7;
/// The same before both sides were connected, seen by TCP.
const LOST_EARLY: i32 = 8;

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let count = args.value("--count")?.unwrap_or(20);
    let seed = args.value("--seed")?;
    args.finish()?;
    run(&Release::built()?, count, seed)
}

pub(crate) fn run(release: &Release, count: u32, seed: Option<u64>) -> Result<bool> {
    let mut tally = Tally::new("kill");
    if !ctests::possible() {
        tally.add(
            "all",
            0.0,
            Outcome::Skipped("no cc, or no infiniband/verbs.h".to_owned()),
        );
        return Ok(tally.finish());
    }
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) | 1);
    println!("moments come from --seed {seed}");
    let mut test = Test {
        release,
        survivor: ctests::compile(release, "survivor")?,
        logs: release.logs("kill")?,
        ports: Ports::new(),
        random: Random(seed),
    };
    let before = Before::look();
    for round in 0..count {
        let started = Instant::now();
        let plan = test.plan(round);
        let name = plan.to_string();
        let wrong = if plan.program == MANAGED {
            test.kill_managed(&plan)?
        } else {
            test.kill_one(&plan)?
        };
        let outcome = match wrong {
            None => match test.fresh(&plan)? {
                None => match test.still_there(&before)?.as_slice() {
                    [] => Outcome::Passed,
                    left => Outcome::Failed(format!("left over:\n{}", left.join("\n"))),
                },
                Some(why) => Outcome::Failed(format!("a fresh pair afterwards: {why}")),
            },
            Some(why) => Outcome::Failed(why),
        };
        tally.add(&name, started.elapsed().as_secs_f64(), outcome);
    }
    println!(
        "files where processes meet, before the first death: {}",
        before.count()
    );
    Ok(tally.finish())
}

struct Test<'a> {
    release: &'a Release,
    survivor: PathBuf,
    logs: PathBuf,
    ports: Ports,
    random: Random,
}

struct Plan {
    link: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    kill_server: bool,
    after_us: u64,
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.kill_server { "server" } else { "client" };
        write!(
            f,
            "{:4} {} {}: {side} after {} us",
            self.link,
            self.program,
            self.args.join(" "),
            self.after_us
        )
    }
}

impl Test<'_> {
    fn plan(&mut self, round: u32) -> Plan {
        let (program, args): (_, &[&str]) = match round % 5 {
            0 => ("survivor", &["poll"]),
            1 => ("survivor", &["event"]),
            2 => ("survivor", &["event", "65536"]),
            3 if tree::on_path("ib_write_bw") => (
                "ib_write_bw",
                &["-d", "adverb0", "-x", "1", "-F", "-D", "10"],
            ),
            4 if tree::on_path(MANAGED) => (MANAGED, &[]),
            _ => ("survivor", &["poll", "65536"]),
        };
        Plan {
            link: LINKS[(self.random.next() % 2) as usize],
            program,
            args,
            kill_server: self.random.next().is_multiple_of(2),
            // From the client's first instruction on, so some deaths fall into the set-up.
            after_us: self.random.next() % 300_000,
        }
    }

    fn side(&self, plan: &Plan, name: &str, port: u16, peer: Option<&str>) -> Result<Job> {
        let port_text = port.to_string();
        let mut command = if plan.program == "survivor" {
            let path = self
                .survivor
                .to_str()
                .context("the target directory's name is not UTF-8")?;
            let mut command = under_adverb(self.release, plan.link, path);
            command
                .arg(&port_text)
                .arg(peer.unwrap_or("-"))
                .args(plan.args);
            command
        } else {
            let mut command = under_adverb(self.release, plan.link, plan.program);
            command.args(plan.args).args(["-p", &port_text]).args(peer);
            command
        };
        Job::start(
            &mut command,
            Some(&self.logs.join(format!("{port}-{name}.log"))),
        )
    }

    fn kill_managed(&mut self, plan: &Plan) -> Result<Option<String>> {
        let death = Death {
            of_server: plan.kill_server,
            after: Duration::from_micros(plan.after_us),
        };
        let port = self.ports.take();
        kill_manager::round(self.release, &self.logs, plan.link, port, &death)
    }

    /// Kills one side; says what the other did wrong.
    fn kill_one(&mut self, plan: &Plan) -> Result<Option<String>> {
        let port = self.ports.take();
        let mut server = self.side(plan, "server", port, None)?;
        if let Some(why) = wait_for_listener(&mut server, port)? {
            return Ok(Some(why));
        }
        let mut client = self.side(plan, "client", port, Some("127.0.0.1"))?;
        std::thread::sleep(Duration::from_micros(plan.after_us));
        let (victim, survivor) = if plan.kill_server {
            (&mut server, &mut client)
        } else {
            (&mut client, &mut server)
        };
        victim.kill_leader()?;
        victim.wait_until(Instant::now() + BOUND)?;

        let Some(status) = survivor.wait_until(Instant::now() + BOUND)? else {
            return Ok(Some(format!(
                "the survivor did not end\n{}",
                hang_report(survivor)
            )));
        };
        let expected = match status.code() {
            Some(code) if plan.program == "survivor" => code == LOST_PEER || code == LOST_EARLY,
            Some(code) => code != 0,
            None => false,
        };
        if !expected {
            return Ok(Some(format!(
                "the survivor ended with {status}\n{}",
                tail(&survivor.output(), 25)
            )));
        }
        for job in [&server, &client] {
            if !job.group_is_gone() {
                return Ok(Some("a process of the pair is left over".to_owned()));
            }
        }
        Ok(None)
    }

    /// What is left over when somebody has come: he removes what is the dead's. While he is there, because whoever goes
    /// leaves his own files to the next one.
    fn still_there(&mut self, before: &Before) -> Result<Vec<String>> {
        if !tree::on_path(MANAGED) {
            return Ok(before.processes_left_over());
        }
        let port = self.ports.take();
        let _visitor = kill_manager::visitor(self.release, &self.logs, port)?;
        // A process that has just been killed takes a moment to go.
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            let mut left = before.left_over();
            left.retain(|line| !line.contains(&format!("-p {port}")));
            if left.is_empty() || Instant::now() > until {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A pair of the same kind as the one that was killed, which nobody kills.
    fn fresh(&mut self, plan: &Plan) -> Result<Option<String>> {
        if plan.program == MANAGED {
            let port = self.ports.take();
            return kill_manager::fresh_pair(self.release, &self.logs, plan.link, port);
        }
        self.fresh_pair(plan.link)
    }

    /// Says what is wrong with a pair that nobody kills.
    fn fresh_pair(&mut self, link: &'static str) -> Result<Option<String>> {
        let plan = Plan {
            link,
            program: "survivor",
            args: &["poll", "64", "200"],
            kill_server: false,
            after_us: 0,
        };
        let port = self.ports.take();
        let mut server = self.side(&plan, "server", port, None)?;
        if let Some(why) = wait_for_listener(&mut server, port)? {
            return Ok(Some(why));
        }
        let mut client = self.side(&plan, "client", port, Some("127.0.0.1"))?;
        for (name, job) in [("client", &mut client), ("server", &mut server)] {
            match job.wait_until(Instant::now() + BOUND)? {
                Some(status) if status.success() => {}
                Some(status) => {
                    return Ok(Some(format!(
                        "{name}: {status}\n{}",
                        tail(&job.output(), 25)
                    )));
                }
                None => return Ok(Some(format!("{name} did not end\n{}", hang_report(job)))),
            }
        }
        Ok(None)
    }
}

/// A xorshift generator: the moments need to be scattered and repeatable, nothing more.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}
