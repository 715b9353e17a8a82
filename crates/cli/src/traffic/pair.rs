//! The coordinator's view: a client and a server that have been started, connected, and can be
//! given one measurement after the other.

use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::control::{self, Answer, Card, Control, Opening, Order, Outcome, Role, Run};
use super::peer::obey;
use crate::args::Link;
use crate::measure::cores::Cores;

pub(crate) struct Pair {
    client: Side,
    server: Side,
}

impl Pair {
    /// Two processes, both this program again; `links` restrict the ways that packets take, unless there are none.
    pub(crate) fn processes(links: &[Link]) -> Result<Self> {
        Ok(Self {
            client: Side::process("client", links)?,
            server: Side::process("server", links)?,
        })
    }

    /// Two threads of this process, for the loopback link.
    pub(crate) fn threads() -> Result<Self> {
        Ok(Self {
            client: Side::thread("client")?,
            server: Side::thread("server")?,
        })
    }

    /// Opens the device on both sides and connects them; returns the name of the device.
    pub(crate) fn connect(
        &mut self,
        device: Option<&str>,
        size: usize,
        cores: Cores,
        sockets: bool,
    ) -> Result<String> {
        let opening = |core| Opening {
            device: device.map(str::to_owned),
            core,
            size,
            sockets,
        };
        let server = self.server.open(opening(cores.server))?;
        let client = self.client.open(opening(cores.client))?;
        let name = client.device.clone();
        self.server.order(&Order::Connect(client))?;
        self.client.order(&Order::Connect(server))?;
        for side in [&mut self.server, &mut self.client] {
            match side.answer(SETUP_LIMIT)? {
                Answer::Connected => {}
                other => return side.unexpected(&other),
            }
        }
        Ok(name)
    }

    /// One measurement: what the client saw, and what the server did.
    pub(crate) fn run(&mut self, run: Run) -> Result<(Outcome, Outcome)> {
        let limit = SETUP_LIMIT + 2 * Duration::from_nanos(run.warm_ns + run.time_ns);
        let order = |role| {
            Order::Run(Run {
                role,
                ..run.clone()
            })
        };
        self.server.order(&order(Role::Server))?;
        match self.server.answer(SETUP_LIMIT)? {
            Answer::Listening => {}
            other => return self.server.unexpected(&other),
        }
        self.client.order(&order(Role::Client))?;
        let client = match self.done(Role::Client, limit)? {
            Ok(outcome) => outcome,
            // The server's own words say more than the client's retries, if it has any.
            Err(client) => match self.server.answers.recv_timeout(AFTERMATH_LIMIT) {
                Ok(Answer::Failed(server)) => bail!("{client}; server: {server}"),
                _ => bail!(client),
            },
        };
        match self.done(Role::Server, SETUP_LIMIT)? {
            Ok(server) => Ok((client, server)),
            Err(message) => bail!(message),
        }
    }

    fn done(&mut self, role: Role, limit: Duration) -> Result<Result<Outcome, String>> {
        let side = match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        };
        match side.answer(limit) {
            Ok(Answer::Done(outcome)) => Ok(Ok(outcome)),
            Ok(other) => side.unexpected(&other),
            Err(error) => Ok(Err(format!("{error:#}"))),
        }
    }
}

impl Pair {
    /// The processes of both sides; none where they are threads of this one.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        [&self.client, &self.server]
            .into_iter()
            .filter_map(|side| side.child.as_ref().map(Child::id))
            .collect()
    }
}

struct Side {
    name: &'static str,
    answers: Receiver<Answer>,
    /// None once it has been closed, which tells the peer to end.
    orders: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl Side {
    fn process(name: &'static str, links: &[Link]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let mut command = Command::new(program);
        command
            .arg("peer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !links.is_empty() {
            command.env("ADVERB_LINKS", crate::plan::names(links));
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start the {name} process"))?;
        let output = child.stdout.take().context("no pipe to the peer")?;
        let input = child.stdin.take().context("no pipe to the peer")?;
        Ok(Self::new(name, Control::new(output, input), Some(child)))
    }

    fn thread(name: &'static str) -> Result<Self> {
        let (order_out, order_in) = io::pipe().context("cannot make a pipe")?;
        let (answer_out, answer_in) = io::pipe().context("cannot make a pipe")?;
        let control = Control::new(order_out, answer_in);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Whatever went wrong has been answered, or nobody listens any more.
                let _ = obey(control);
            })?;
        Ok(Self::new(name, Control::new(answer_out, order_in), None))
    }

    /// Reading happens on a thread, so that the coordinator can give up.
    fn new(name: &'static str, control: Control, child: Option<Child>) -> Self {
        let (mut lines, orders) = control.split();
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let answer = match control::read::<Answer>(&mut *lines) {
                    Ok(Some(answer)) => answer,
                    Ok(None) => break,
                    Err(error) => Answer::Failed(format!("{error:#}")),
                };
                let last = matches!(answer, Answer::Failed(_));
                if sender.send(answer).is_err() || last {
                    break;
                }
            }
        });
        Self {
            name,
            answers,
            orders: Some(orders),
            child,
        }
    }

    fn open(&mut self, opening: Opening) -> Result<Card> {
        self.order(&Order::Open(opening))?;
        match self.answer(SETUP_LIMIT)? {
            Answer::Card(card) => Ok(card),
            other => self.unexpected(&other),
        }
    }

    fn order(&mut self, order: &Order) -> Result<()> {
        let orders = self
            .orders
            .as_mut()
            .context("the peer has been told to end")?;
        // Not as an io::Error: a broken pipe here must not pass for one of our own output.
        if let Err(error) = control::write(&mut **orders, order) {
            let fate = self.fate();
            bail!("the {} is gone: {error:#}; {fate}", self.name);
        }
        Ok(())
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer> {
        match self.answers.recv_timeout(limit) {
            Ok(Answer::Failed(message)) => bail!("{}: {message}", self.name),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => bail!(
                "the {} gave no answer within {} s; it has been stopped (another link may work: ADVERB_LINKS=shm or udp)",
                self.name,
                limit.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => {
                let fate = self.fate();
                bail!("the {} ended in the middle of its work; {fate}", self.name)
            }
        }
    }

    fn unexpected<T>(&self, answer: &Answer) -> Result<T> {
        bail!("the {} said {answer:?}, which nobody asked for", self.name)
    }

    /// How a process that closed its pipe ended.
    fn fate(&mut self) -> String {
        let Some(child) = &mut self.child else {
            return "it was a thread of this process".to_owned();
        };
        match ended(child, AFTERMATH_LIMIT) {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "its process still runs".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// How the process ended, if it does so in time.
fn ended(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            status => return Ok(status),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.orders = None;
        let Some(mut child) = self.child.take() else {
            return;
        };
        if matches!(ended(&mut child, FAREWELL_LIMIT), Ok(Some(_))) {
            return;
        }
        // Errors: it ended just now.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// For whatever takes no time on a healthy machine.
const SETUP_LIMIT: Duration = Duration::from_secs(10);
/// For the other side's report after one side has failed.
const AFTERMATH_LIMIT: Duration = Duration::from_millis(500);
/// For a peer that has been told to end.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
