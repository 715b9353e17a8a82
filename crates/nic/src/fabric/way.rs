//! Which link a packet takes.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_engine::{Av, Instant};
use adverb_link::{Capabilities, Link, Path, Route, SendError, UdpLink, qpn};

use super::Fabric;
use super::flow::Flow;
use crate::device::Device;
use crate::error::NicError;

/// A destination together with the link that reaches it.
#[derive(Clone)]
pub(crate) struct Way {
    route: Route,
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

    /// Whether it leads over sockets.
    pub(crate) fn is_udp(&self) -> bool {
        matches!(self.route, Route::Udp(_))
    }

    /// The process of this host that it leads to by shared memory.
    pub(crate) fn process(&self) -> Option<u16> {
        match &self.route {
            Route::Shm(route) => Some(route.slot()),
            _ => None,
        }
    }

    /// The group, if it leads to members that are not reached over the network.
    pub(crate) fn group(&self) -> Option<IpAddr> {
        self.group
    }

    /// Whether it leads to a process of this host that is known to have ended.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(&self.route, Route::Shm(route) if route.is_dead())
    }
}

impl Fabric {
    /// Finds the way to a queue pair. Shared memory when the destination is a living process of
    /// this host and user, UDP otherwise, as far as `ADVERB_LINKS` allows.
    pub(crate) fn way_to(&self, device: &Device, av: &Av, remote: u32) -> Result<Way, NicError> {
        let links = self.links;
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
            if slot == self.slot && (links.loopback || links.shm) {
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

    /// Whether the members of a group are reached through the network rather than one by one.
    pub(crate) fn groups_by_udp(&self, device: &Device) -> bool {
        self.links.udp && !device.is_loopback()
    }

    pub(crate) fn capabilities(&self, way: &Way) -> Capabilities {
        self.link(way).capabilities()
    }

    /// Sends a packet on a way that does not lead to a [`Way::group`].
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
        self.link(way).send(&way.route, meta, packet)
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
