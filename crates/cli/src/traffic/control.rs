//! What coordinator and peers say to each other: one JSON value a line.

use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::measure::summary::Summary;
use crate::shape::Schedule;
use crate::way::Way;

/// From the coordinator to a peer. Each gets one answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Answered by `Answer::Card`.
    Open(Opening),
    /// The card of the other side. Answered by `Answer::Connected`.
    Connect(Card),
    /// Answered by `Answer::Done`; a server says `Answer::Listening` before.
    Run(Run),
}

/// From a peer to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Card(Card),
    Connected,
    Listening,
    Done(Outcome),
    Failed(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// None: the default device.
    pub(crate) device: Option<String>,
    /// The core to stay on.
    pub(crate) core: usize,
    /// Largest message in bytes.
    pub(crate) size: usize,
    /// Whether it is to talk over sockets, too.
    pub(crate) sockets: bool,
}

/// How to reach a queue pair and the memory behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    /// Name of the device.
    pub(crate) device: String,
    pub(crate) endpoint: String,
    pub(crate) region: String,
    /// TCP port, and name of a Unix socket.
    pub(crate) sockets: Option<(u16, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Client,
    Server,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) role: Role,
    pub(crate) traffic: Traffic,
    pub(crate) waiting: Waiting,
    /// Message size in bytes.
    pub(crate) size: usize,
    /// Not measured, before what is.
    pub(crate) warm_ns: u64,
    pub(crate) time_ns: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Traffic {
    /// Request and reply, by SEND or over sockets.
    Exchange(Schedule),
    /// Ping-pong by WRITE.
    WritePingPong,
    /// Operations of the client with so many in flight; the server is passive, or receives.
    Stream { op: StreamOp, window: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StreamOp {
    Send,
    Write,
    Read,
    FetchAdd,
}

/// How both sides wait.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) way: Way,
    /// Both sides share one core: give it away after every look.
    pub(crate) one_core: bool,
}

/// What a peer measured. The latencies are the client's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    /// Part of `cpu_ns` that the client spent until the next request was due.
    pub(crate) pacing_ns: u64,
    /// Operations finished in the measured time.
    pub(crate) ops: u64,
    /// How often the process went to sleep.
    pub(crate) sleeps: u64,
    /// Round trips.
    pub(crate) latency: Summary,
    /// The same in full: each latency in ns, and how often it was met.
    #[serde(default)]
    pub(crate) counts: Vec<(u64, u64)>,
}

/// One end of the conversation.
pub(crate) struct Control {
    lines: Box<dyn BufRead + Send>,
    out: Box<dyn Write + Send>,
}

impl Control {
    pub(crate) fn new(
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
    ) -> Self {
        Self {
            lines: Box::new(BufReader::new(input)),
            out: Box::new(output),
        }
    }

    pub(crate) fn split(self) -> (Box<dyn BufRead + Send>, Box<dyn Write + Send>) {
        (self.lines, self.out)
    }

    /// The next order; None when the other end has closed.
    pub(crate) fn next(&mut self) -> Result<Option<Order>> {
        read(&mut *self.lines)
    }

    pub(crate) fn answer(&mut self, answer: &Answer) -> Result<()> {
        write(&mut *self.out, answer)
    }
}

pub(crate) fn read<T: DeserializeOwned>(from: &mut dyn BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line).context("control channel")? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line)
        .map(Some)
        .with_context(|| format!("control channel said {:?}", line.trim_end()))
}

pub(crate) fn write<T: Serialize>(to: &mut dyn Write, what: &T) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()?;
    Ok(())
}
