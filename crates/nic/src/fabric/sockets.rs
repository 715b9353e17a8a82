//! The RoCE sockets of each device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use adverb_link::udp::{BindError, Meeting, UdpConfig};
use adverb_link::{Arrival, Link, Meta, UdpLink};

use super::Fabric;
use crate::device::Device;
use crate::error::NicError;
use crate::fork;

pub(super) struct Sockets {
    port: u16,
    /// By device; opened when a queue pair first needs one.
    open: RwLock<Vec<(u32, Arc<UdpLink>)>>,
    any: AtomicBool,
}

impl Sockets {
    pub(super) fn new(port: u16) -> Self {
        Self {
            port,
            open: RwLock::new(Vec::new()),
            any: AtomicBool::new(false),
        }
    }

    fn of(&self, device: &Device) -> Option<Arc<UdpLink>> {
        let links = self.open.read().unwrap_or_else(PoisonError::into_inner);
        link_of(&links, device)
    }

    fn at(&self, at: usize) -> Option<Arc<UdpLink>> {
        let links = self.open.read().unwrap_or_else(PoisonError::into_inner);
        links.get(at).map(|(_, link)| Arc::clone(link))
    }
}

fn link_of(links: &[(u32, Arc<UdpLink>)], device: &Device) -> Option<Arc<UdpLink>> {
    let (_, link) = links.iter().find(|(index, _)| *index == device.index)?;
    Some(Arc::clone(link))
}

impl Fabric {
    /// Whether any socket is open.
    pub(crate) fn has_sockets(&self) -> bool {
        self.sockets.any.load(Ordering::Acquire)
    }

    /// Opens the sockets of a device, once.
    pub(crate) fn open_udp(&self, device: &Device) -> Result<Arc<UdpLink>, NicError> {
        if let Some(link) = self.sockets.of(device) {
            return Ok(link);
        }
        let mut links = self
            .sockets
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker.
        if let Some(link) = link_of(&links, device) {
            return Ok(link);
        }
        let config = UdpConfig {
            addresses: device.addresses.clone(),
            port: self.sockets.port,
            scope_id: device.ifindex,
            meeting: Some(Meeting {
                dir: self.place().dir().to_path_buf(),
                slot: self.slot,
            }),
        };
        let link = UdpLink::bind(&config).map_err(|e| match e {
            BindError::PortTaken { .. } => NicError::PortTaken(e.to_string()),
            e => NicError::Io {
                what: "opening the RoCE sockets",
                source: io::Error::other(e),
            },
        })?;
        let link = Arc::new(link);
        for fd in link.fds() {
            self.adopt_socket(fd)
                .map_err(NicError::io("watching the RoCE sockets"))?;
        }
        links.push((device.index, Arc::clone(&link)));
        self.sockets.any.store(true, Ordering::Release);
        Ok(link)
    }

    /// From now on a datagram in the socket wakes who sleeps, and a forked child closes it.
    pub(crate) fn adopt_socket(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        fork::guard_socket(fd.as_raw_fd());
        self.watch.socket(fd)
    }

    /// Opens the sockets of a device on which strangers may speak to us. On the loopback interface
    /// there are no strangers as long as shared memory reaches everybody.
    pub(crate) fn listen(&self, device: &Device) -> Result<(), NicError> {
        if self.links.udp && !(device.is_loopback() && self.links.shm) {
            self.open_udp(device)?;
        }
        Ok(())
    }

    /// Whether another thread is just taking datagrams out of a socket.
    pub(crate) fn reads_sockets(&self) -> bool {
        let mut reads = false;
        self.each_udp(|link| reads |= link.is_being_read());
        reads
    }

    /// Calls `f` with the sockets of each device. Whoever holds the lock of a queue pair may open sockets, and `f` may ask for
    /// such a lock, so none of ours is held meanwhile. Sockets once open stay.
    pub(crate) fn each_udp(&self, mut f: impl FnMut(&UdpLink)) {
        for at in 0.. {
            let Some(link) = self.sockets.at(at) else {
                return;
            };
            f(&link);
        }
    }

    /// Hands what the sockets hold to `sink`, at most `budget` packets of each device: how many, and whether one may hold
    /// more. Quickly is for threads that will look again in a moment: not each socket is asked each time.
    pub(crate) fn receive_datagrams(
        &self,
        budget: usize,
        quickly: bool,
        sink: &mut dyn FnMut(&Meta, Arrival<'_>),
    ) -> (usize, bool) {
        let (mut taken, mut full) = (0, false);
        self.each_udp(|link| {
            let found = match quickly {
                true => link.receive_quickly(budget, sink),
                false => link.receive(budget, sink),
            };
            taken += found;
            full |= found >= budget || link.has_inbound();
        });
        (taken, full)
    }

    /// Whether a socket's packets have been fetched and not handled yet.
    pub(super) fn datagrams_wait(&self) -> bool {
        let mut waits = false;
        if self.has_sockets() {
            self.each_udp(|link| waits |= link.has_inbound());
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Nic;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Otherwise a thread that holds a queue pair and opens sockets waits for one that looks into sockets and wants the
    /// queue pair.
    #[test]
    fn sockets_are_opened_while_another_thread_looks_into_others() {
        let nic = Nic::of_process().unwrap();
        let device = crate::device::devices().unwrap().remove(0);
        nic.fabric.open_udp(&device).unwrap();
        let mut looked = false;
        nic.fabric.each_udp(|_| {
            let (opened, wait) = mpsc::channel();
            let (nic, device) = (Arc::clone(&nic), Arc::clone(&device));
            std::thread::spawn(move || {
                drop(nic.fabric.sockets.open.write());
                opened.send(nic.fabric.open_udp(&device).is_ok())
            });
            looked |= wait.recv_timeout(Duration::from_secs(30)).unwrap();
        });
        assert!(looked);
    }
}
