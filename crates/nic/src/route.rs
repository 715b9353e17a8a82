//! Which link a packet takes.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use adverb_engine::{Av, Instant};
use adverb_link::{Capabilities, Link, Path, Route, SendError, UdpLink, qpn};

use crate::device::Device;
use crate::error::NicError;
use crate::flow::Flow;
use crate::nic::Nic;
use crate::sync::LockExt;

/// A destination together with the link that reaches it.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) route: Route,
    udp: Option<Arc<UdpLink>>,
    /// Over UDP to a process of this host: how much of what we sent it has taken in.
    flow: Option<Arc<Flow>>,
    /// To every member of this group that is not reached over the network.
    group: Option<IpAddr>,
}

impl Way {
    /// Without regard to how much the peer has taken in: for the few packets that its queue pairs
    /// do not count.
    pub(crate) fn unpaced(self) -> Self {
        Self { flow: None, ..self }
    }

    /// Whether packets leave this process, for a peer that does not say that it sleeps.
    pub(crate) fn leaves_an_awake_peer(&self) -> bool {
        match &self.route {
            Route::Loopback => false,
            Route::Shm(route) => !route.is_asleep(),
            Route::Udp(_) => true,
        }
    }

    /// Whether it leads to a process of this host that is known to have ended.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(&self.route, Route::Shm(route) if route.is_dead())
    }
}

impl Nic {
    /// Finds the way to a queue pair. Shared memory when the destination is a living process of
    /// this host and user, UDP otherwise, as far as `ADVERB_LINKS` allows.
    pub(crate) fn way_to(&self, device: &Device, av: &Av, remote: u32) -> Result<Way, NicError> {
        let links = self.config.links;
        let unreachable = |why: String| NicError::Unreachable {
            gid: av.dgid,
            qpn: remote,
            why,
        };
        if av.dgid.is_multicast() {
            return self.way_to_group(device, av, remote);
        }
        let slot = qpn::slot_of(remote);
        let here = device.owns(av.dgid.to_ip());
        if here {
            // Inside a process the loopback link *is* the shared memory link: there is no ring
            // from a process to itself.
            if slot == self.qps.slot() && (links.loopback || links.shm) {
                return Ok(Way {
                    route: Route::Loopback,
                    udp: None,
                    flow: None,
                    group: None,
                });
            }
            if links.shm
                && let Some(route) = self.shm.route(slot)
            {
                return Ok(Way {
                    route: Route::Shm(route),
                    udp: None,
                    flow: None,
                    group: None,
                });
            }
        }
        if !links.udp {
            return Err(unreachable(
                "ADVERB_LINKS leaves no link that could reach it".to_owned(),
            ));
        }
        let flow = if here { self.flow_to(slot) } else { None };
        let link = self.open_udp(device)?;
        let path = path_of(av);
        match link.route(&path, device.gids()) {
            Some(route) => Ok(Way {
                route: Route::Udp(route),
                udp: Some(link),
                flow,
                group: None,
            }),
            None => Err(unreachable(
                "no address of the device can reach it over UDP".to_owned(),
            )),
        }
    }

    fn way_to_group(&self, device: &Device, av: &Av, remote: u32) -> Result<Way, NicError> {
        if !self.groups_by_udp(device) {
            let group = Some(av.dgid.to_ip());
            return Ok(Way {
                route: Route::Loopback,
                udp: None,
                flow: None,
                group,
            });
        }
        let link = self.open_udp(device)?;
        match link.route(&path_of(av), device.gids()) {
            Some(route) => Ok(Way {
                route: Route::Udp(route),
                udp: Some(link),
                flow: None,
                group: None,
            }),
            None => Err(NicError::Unreachable {
                gid: av.dgid,
                qpn: remote,
                why: "the device has no address of the group's family".to_owned(),
            }),
        }
    }

    /// Opens the sockets of a device on which strangers may speak to us. On the loopback interface
    /// there are no strangers as long as shared memory reaches everybody.
    pub(crate) fn listen(&self, device: &Device) -> Result<(), NicError> {
        let links = self.config.links;
        if links.udp && !(device.is_loopback() && links.shm) {
            self.open_udp(device)?;
        }
        Ok(())
    }

    pub(crate) fn capabilities(&self, way: &Way) -> Capabilities {
        self.link(way).capabilities()
    }

    pub(crate) fn send(
        &self,
        way: &Way,
        meta: &adverb_link::Meta,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), SendError> {
        if way.flow.as_ref().is_some_and(|flow| !flow.admits(now)) {
            return Err(SendError::Full);
        }
        if let Some(group) = way.group {
            return self.send_to_group(group, meta, packet);
        }
        self.link(way).send(&way.route, meta, packet)
    }

    /// All queue pairs that talk to one process of this host over UDP share its pace.
    fn flow_to(&self, slot: u16) -> Option<Arc<Flow>> {
        let peer = self.shm.route(slot)?;
        let mut flows = self.flows.acquire();
        if let Some(flow) = flows.get(&slot).filter(|f| !f.is_dead()) {
            return Some(Arc::clone(flow));
        }
        let flow = Arc::new(Flow::new(peer, self.qps.slot(), crate::clock::now()));
        flows.insert(slot, Arc::clone(&flow));
        Some(flow)
    }

    /// Ends a batch on every link.
    pub(crate) fn flush(&self, now: Instant) {
        self.shm.flush(now.as_nanos());
        if self.udp_open.load(Ordering::Acquire) {
            self.each_udp(|link| link.flush(now.as_nanos()));
        }
    }

    /// Calls `f` with the sockets of each device. Whoever holds the lock of a queue pair may open sockets, and `f` may ask for
    /// such a lock, so none of ours is held meanwhile. Sockets once open stay.
    pub(crate) fn each_udp(&self, mut f: impl FnMut(&UdpLink)) {
        for at in 0.. {
            let Some(link) = self.udp_at(at) else { return };
            f(&link);
        }
    }

    fn udp_at(&self, at: usize) -> Option<Arc<UdpLink>> {
        let links = self.udp.read().unwrap_or_else(PoisonError::into_inner);
        links.get(at).map(|(_, link)| Arc::clone(link))
    }

    /// Whether the peer is a living process of this host that has not looked since `sent`. What we
    /// sent it then waits for it and is not lost, however long that takes: the machine is busy, or
    /// somebody holds the process in a debugger. A card would have answered in its stead.
    pub(crate) fn has_not_looked(&self, way: &Way, sent: Instant, now: Instant) -> bool {
        let peer = match (&way.route, &way.flow) {
            (Route::Shm(peer), _) => peer,
            (_, Some(flow)) => &flow.peer,
            _ => return false,
        };
        let looked = peer.last_drive_ns();
        let silent_for = now.as_nanos().saturating_sub(looked);
        looked <= sent.as_nanos() && silent_for < MOST_FORGIVEN_NS && self.shm.probe(peer.slot())
    }

    fn link<'a>(&'a self, way: &'a Way) -> &'a dyn Link {
        match (&way.route, &way.udp) {
            (Route::Udp(_), Some(link)) => link.as_ref(),
            (Route::Shm(_), _) => &self.shm,
            _ => &self.loopback,
        }
    }
}

/// A peer that has not looked for this long is treated like one that is gone.
const MOST_FORGIVEN_NS: u64 = 30_000_000_000;

pub(crate) fn path_of(av: &Av) -> Path {
    Path {
        sgid: av.sgid,
        dgid: av.dgid,
        traffic_class: av.traffic_class,
        hop_limit: av.hop_limit,
        flow_label: av.flow_label,
    }
}

/// Whether a packet from `src` can come from the peer `expected`. All addresses of a device on
/// this host are one peer: the made-up link-local GID has no address a socket could send from.
pub(crate) fn same_peer(device: &Device, src: IpAddr, expected: IpAddr) -> bool {
    src == expected || (device.owns(src) && device.owns(expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Otherwise a thread that holds a queue pair and opens sockets waits for one that looks into sockets and wants the
    /// queue pair.
    #[test]
    fn sockets_are_opened_while_another_thread_looks_into_others() {
        let nic = Nic::of_process().unwrap();
        let device = crate::device::devices().unwrap().remove(0);
        nic.open_udp(&device).unwrap();
        let mut looked = false;
        nic.each_udp(|_| {
            let (opened, wait) = mpsc::channel();
            let (nic, device) = (Arc::clone(&nic), Arc::clone(&device));
            std::thread::spawn(move || {
                drop(nic.udp.write());
                opened.send(nic.open_udp(&device).is_ok())
            });
            looked |= wait.recv_timeout(Duration::from_secs(30)).unwrap();
        });
        assert!(looked);
    }
}
