//! One of the two processes: its device, and its TCP connection to the other.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use adverb::transport::{Connected, Transport};
use adverb::{
    Completion, CompletionQueue, ConnectOptions, Context, Introduction, Mtu, Origin,
    ProtectionDomain, QueuePair, RemoteRegion, Wait, WcStatus,
};

/// A remark for the line of the check, or what is wrong.
pub(crate) type Outcome = Result<String, String>;

/// The longest that anything expected may take, retries on an emulated machine included.
const LONG: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Requester,
    Responder,
}

pub(crate) struct Side {
    pub(crate) role: Role,
    pub(crate) lossy: bool,
    pub(crate) ctx: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) gid: u8,
    pub(crate) options: ConnectOptions,
    stream: TcpStream,
    /// Completions that came together with an earlier one.
    done: VecDeque<Completion>,
}

/// A connected queue pair, and the memory that the other side offers through it.
pub(crate) struct Connection<T: Transport> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) theirs: Vec<RemoteRegion>,
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Side {
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut device, mut gid, mut mtu, mut port, mut lossy, mut host) =
            (None, 1, Mtu::B4096, 18_515_u16, false, None);
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "-d" => device = Some(value()?),
                "-g" => gid = value()?.parse().map_err(text)?,
                "-p" => port = value()?.parse().map_err(text)?,
                "-m" => {
                    let bytes: usize = value()?.parse().map_err(text)?;
                    mtu = (1..=5)
                        .filter_map(Mtu::from_ibv)
                        .find(|m| m.bytes() == bytes)
                        .ok_or("no MTU of RoCE")?;
                }
                "--lossy" => lossy = true,
                _ => host = Some(arg),
            }
        }
        let ctx = match device {
            Some(name) => adverb::open(&name).map_err(text)?,
            None => adverb::open_default().map_err(text)?,
        };
        let pd = ctx.alloc_pd().map_err(text)?;
        let cq = ctx.create_cq(256).build().map_err(text)?;
        let stream = match &host {
            Some(host) => TcpStream::connect((host.as_str(), port)).map_err(text)?,
            None => {
                let listener = TcpListener::bind(("0.0.0.0", port)).map_err(text)?;
                listener.accept().map_err(text)?.0
            }
        };
        stream.set_read_timeout(Some(LONG * 2)).map_err(text)?;
        let options = ConnectOptions {
            max_mtu: mtu,
            ..ConnectOptions::default()
        };
        let role = if host.is_some() {
            Role::Requester
        } else {
            Role::Responder
        };
        Ok(Self {
            role,
            lossy,
            ctx,
            pd,
            cq,
            gid,
            options,
            stream,
            done: VecDeque::new(),
        })
    }

    /// Whether this side is the software NIC, of which is asked what the specification says.
    pub(crate) fn is_soft(&self) -> bool {
        self.ctx.device().origin() == Origin::Software
    }

    /// Leaves nothing of a failed check to the next one. Whether the other side is still there.
    pub(crate) fn next_check(&mut self) -> Result<(), String> {
        self.done.clear();
        let mut stale = Vec::new();
        self.cq.poll(&mut stale).map_err(text)?;
        self.meet()
    }

    /// Both sides are here now.
    pub(crate) fn meet(&mut self) -> Result<(), String> {
        self.stream.write_all(&[1]).map_err(text)?;
        self.stream.read_exact(&mut [0]).map_err(text)
    }

    /// Swaps endpoints and `mine` with the other side, for a queue pair that is not connected yet.
    pub(crate) fn introduce<T: Transport>(
        &mut self,
        qp: &QueuePair<T>,
        mine: &[RemoteRegion],
    ) -> Result<Introduction, String> {
        let me = mine
            .iter()
            .fold(Introduction::new(qp.endpoint()), |me, region| {
                me.with_region(*region)
            });
        me.exchange(&mut self.stream).map_err(text)
    }

    pub(crate) fn connect<T: Connected>(
        &mut self,
        mine: &[RemoteRegion],
    ) -> Result<Connection<T>, String> {
        let options = self.options;
        self.connect_with(mine, &options)
    }

    pub(crate) fn connect_with<T: Connected>(
        &mut self,
        mine: &[RemoteRegion],
        options: &ConnectOptions,
    ) -> Result<Connection<T>, String> {
        let builder = self.pd.create_qp::<T>(&self.cq).gid_index(self.gid);
        let qp = builder.max_recv_wr(64).build().map_err(text)?;
        let them = self.introduce(&qp, mine)?;
        qp.connect_with(&them.endpoint, options).map_err(text)?;
        Ok(Connection {
            qp,
            theirs: them.regions,
        })
    }

    /// The next completion, whatever it says.
    pub(crate) fn next(&mut self) -> Result<Completion, String> {
        if self.done.is_empty() {
            let mut done = Vec::new();
            let waited = self.cq.wait(&mut done, Wait::default(), Some(LONG));
            waited.map_err(text)?;
            self.done.extend(done);
        }
        self.done
            .pop_front()
            .ok_or_else(|| "no completion came".to_owned())
    }

    /// The next completion, which must be a success.
    pub(crate) fn success(&mut self) -> Result<Completion, String> {
        let done = self.next()?;
        match &done.result {
            Ok(_) => Ok(done),
            Err(error) => Err(error.to_string()),
        }
    }

    /// As [`success`](Self::success), for operations of which nothing else is of interest.
    pub(crate) fn done(&mut self) -> Result<(), String> {
        self.success().map(drop)
    }

    /// The next completion, which must be an error of one of `wanted`.
    pub(crate) fn failure(&mut self, wanted: &[WcStatus]) -> Result<WcStatus, String> {
        match self.next()?.result {
            Ok(_) => Err("a success instead of an error".to_owned()),
            Err(error) if wanted.contains(&error.status) => Ok(error.status),
            Err(error) => Err(format!("{error} instead of {wanted:?}")),
        }
    }
}

/// Bytes that differ from place to place, and from one `salt` to the next.
pub(crate) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + i / 251 + salt * 7) as u8)
        .collect()
}

/// Compares without printing megabytes.
pub(crate) fn same(what: &str, found: &[u8], wanted: &[u8]) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!(
            "{what}: {} bytes instead of {}",
            found.len(),
            wanted.len()
        ));
    }
    match found.iter().zip(wanted).position(|(a, b)| a != b) {
        Some(at) => Err(format!(
            "{what}: byte {at} of {} is {:#04x}, not {:#04x}",
            wanted.len(),
            found[at],
            wanted[at]
        )),
        None => Ok(()),
    }
}
