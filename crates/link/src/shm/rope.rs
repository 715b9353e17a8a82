//! How another process is woken: a byte into the datagram socket that it sleeps on.
//!
//! One socket of ours sends to everybody, so that peers cost no descriptors.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, sendto};

use super::BELL;

/// Leads to the bell of one process.
#[derive(Debug, Clone)]
pub(super) struct Rope {
    socket: Arc<UnixDatagram>,
    to: SocketAddrUnix,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bell {
    /// Rung, or so many bells wait already that one more would say nothing new.
    Rung,
    /// Nobody owns the bell any more.
    Gone,
}

impl Rope {
    /// From `socket` to the bell at `path`, whether or not there is one.
    pub(super) fn new(socket: &Arc<UnixDatagram>, path: &Path) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::clone(socket),
            to: SocketAddrUnix::new(path)?,
        })
    }

    /// Wakes the owner of the bell. Never waits.
    pub(super) fn ring(&self) -> Bell {
        loop {
            match self.say(&[BELL]) {
                Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Bell::Rung,
                Err(Errno::INTR) => {}
                Err(_) => return Bell::Gone,
            }
        }
    }

    /// Sends a message to the owner of the bell. Never waits.
    pub(super) fn say(&self, message: &[u8]) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendto(&self.socket, message, flags, &self.to)?;
        Ok(())
    }

    pub(super) fn socket(&self) -> &UnixDatagram {
        &self.socket
    }

    pub(super) fn address(&self) -> &SocketAddrUnix {
        &self.to
    }
}
