//! The same exchange without verbs, for comparison: stream sockets that are read by blocking calls.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use anyhow::{Context as _, Result, bail, ensure};

use super::control::{Card, Role};
use super::session::{Arrival, Mark};
use super::talk::Talk;
use crate::way::Way;

/// What a side listens on, and what it has connected.
pub(crate) struct Sockets {
    tcp: TcpListener,
    unix: UnixListener,
    unix_name: String,
    /// Addresses of the other side.
    peer: Option<(u16, String)>,
    tcp_line: Option<Line<TcpStream>>,
    unix_line: Option<Line<UnixStream>>,
}

impl Sockets {
    pub(crate) fn open() -> Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("cannot listen on a TCP port of the loopback interface")?;
        // The name of a port that is ours is nobody else's.
        let unix_name = format!(
            "adverb-compare-{}-{}",
            std::process::id(),
            tcp.local_addr()?.port()
        );
        let address = SocketAddr::from_abstract_name(&unix_name)?;
        let unix = UnixListener::bind_addr(&address).context("cannot listen on a Unix socket")?;
        Ok(Self {
            tcp,
            unix,
            unix_name,
            peer: None,
            tcp_line: None,
            unix_line: None,
        })
    }

    /// TCP port and name of the Unix socket, for the card.
    pub(crate) fn names(&self) -> Result<(u16, String)> {
        Ok((self.tcp.local_addr()?.port(), self.unix_name.clone()))
    }

    pub(crate) fn know(&mut self, card: &Card) {
        self.peer = card.sockets.clone();
    }

    /// The connection, made when it is first needed: the server has said by then that it listens.
    pub(crate) fn talk(&mut self, way: Way, role: Role) -> Result<&mut dyn Talk> {
        let (port, name) = self.peer.as_ref().context("not connected")?;
        match way {
            Way::Tcp => {
                if self.tcp_line.is_none() {
                    let stream = match role {
                        Role::Client => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)),
                        Role::Server => self.tcp.accept().map(|(stream, _)| stream),
                    };
                    let stream =
                        stream.context("cannot connect by TCP on the loopback interface")?;
                    stream.set_nodelay(true)?;
                    self.tcp_line = Some(Line::new(stream));
                }
                Ok(self.tcp_line.as_mut().context("not connected")?)
            }
            Way::Unix => {
                if self.unix_line.is_none() {
                    let stream = match role {
                        Role::Client => SocketAddr::from_abstract_name(name)
                            .and_then(|address| UnixStream::connect_addr(&address)),
                        Role::Server => self.unix.accept().map(|(stream, _)| stream),
                    };
                    let stream = stream.context("cannot connect by a Unix socket")?;
                    self.unix_line = Some(Line::new(stream));
                }
                Ok(self.unix_line.as_mut().context("not connected")?)
            }
            other => bail!("{other} goes over verbs"),
        }
    }
}

/// A stream of messages of one size: number, kind, padding.
struct Line<S> {
    stream: S,
    out: Vec<u8>,
    input: Vec<u8>,
    arrived: VecDeque<Arrival>,
    size: usize,
    sleeps: u64,
}

impl<S: Read + Write> Line<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            out: Vec::with_capacity(BUFFER),
            input: Vec::with_capacity(BUFFER),
            arrived: VecDeque::new(),
            size: SIZE,
            sleeps: 0,
        }
    }

    fn put(&mut self, sequence: u64, kind: u8) {
        let begin = self.out.len();
        self.out.extend(sequence.to_le_bytes());
        self.out.push(kind);
        self.out.resize(begin + self.size, 0);
    }

    fn flush(&mut self) -> Result<()> {
        self.stream
            .write_all(&self.out)
            .context("cannot write to the socket")?;
        self.out.clear();
        Ok(())
    }
}

impl<S: Read + Write> Talk for Line<S> {
    fn send(&mut self, sequence: u64, size: usize) -> Result<()> {
        self.send_all(&[sequence], size)
    }

    fn send_all(&mut self, sequences: &[u64], size: usize) -> Result<()> {
        ensure!(
            size == self.size,
            "messages over sockets have {SIZE} bytes, not {size}"
        );
        for &sequence in sequences {
            self.put(sequence, DATA);
        }
        self.flush()
    }

    fn send_mark(&mut self, mark: Mark) -> Result<()> {
        self.put(0, if mark == Mark::Start { START } else { STOP });
        self.flush()
    }

    fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool> {
        let any = !self.arrived.is_empty();
        arrivals.extend(self.arrived.drain(..));
        Ok(any)
    }

    /// Reads what there is, and sleeps until there is something.
    fn idle(&mut self) -> Result<()> {
        self.sleeps += 1;
        let kept = self.input.len();
        self.input.resize(BUFFER, 0);
        let read = self
            .stream
            .read(&mut self.input[kept..])
            .context("cannot read from the socket")?;
        ensure!(read > 0, "the other side has closed the socket");
        self.input.truncate(kept + read);
        let whole = self.input.len() / self.size * self.size;
        for message in self.input[..whole].chunks(self.size) {
            let (number, rest) = message
                .split_first_chunk::<8>()
                .context("a short message")?;
            let mark = match rest.first() {
                Some(&START) => Some(Mark::Start),
                Some(&STOP) => Some(Mark::Stop),
                _ => None,
            };
            self.arrived
                .push_back(Arrival::new(mark, u64::from_le_bytes(*number), self.size));
        }
        self.input.drain(..whole);
        Ok(())
    }

    fn sleeps(&self) -> u64 {
        self.sleeps
    }
}

/// Bytes of a message over sockets, as `compare` sends them.
pub(crate) const SIZE: usize = 32;
/// More than a window of messages.
const BUFFER: usize = 64 << 10;
const DATA: u8 = 0;
const START: u8 = 1;
const STOP: u8 = 2;
