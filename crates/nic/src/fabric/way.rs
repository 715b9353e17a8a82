//! Which link a packet takes.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_engine::{Av, Instant};
use adverb_link::shm::ShmRoute;
use adverb_link::udp::UdpRoute;
use adverb_link::{Berth, Link, Meta, Path, SendError, UdpLink, qpn};

use super::Fabric;
use super::flow::Flow;
use crate::device::Device;
use crate::error::NicError;

/// A destination together with the link that reaches it.
#[derive(Clone)]
pub(crate) enum Way {
    /// To this process.
    Loopback,
    /// To another process of this user on this host.
    Shm(ShmRoute),
    /// To an address in the network.
    Udp {
        link: Arc<UdpLink>,
        route: UdpRoute,
        /// To a process of this host: how much of what we sent it has taken in.
        flow: Option<Arc<Flow>>,
    },
    /// To every member of this group that is not reached over the network.
    Group(IpAddr),
}

impl Way {
    /// Without regard to how much the peer has taken in: for the few packets that its queue pairs
    /// do not count.
    pub(crate) fn unpaced(mut self) -> Self {
        if let Self::Udp { flow, .. } = &mut self {
            *flow = None;
        }
        self
    }

    /// Whether packets leave this process, for a peer that does not say that it sleeps.
    pub(crate) fn leaves_an_awake_peer(&self) -> bool {
        match self {
            Self::Loopback | Self::Group(_) => false,
            Self::Shm(route) => !route.is_asleep(),
            Self::Udp { .. } => true,
        }
    }

    /// Whether many packets of a message can go as one.
    pub(crate) fn carries_trains(&self) -> bool {
        matches!(self, Self::Loopback | Self::Shm(_))
    }

    /// Whether it leads to a process of this host that is known to have ended.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self, Self::Shm(route) if route.is_dead())
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
                return Ok(Way::Loopback);
            }
            if links.shm {
                if let Some(route) = self.shm.route(slot) {
                    return Ok(Way::Shm(route));
                }
                // It would take nothing that comes from a socket.
                if self.shm.is_alive(slot) {
                    return Err(unreachable(
                        "no ring to its process could be made: there are no descriptors or no memory".to_owned(),
                    ));
                }
            }
        }
        if here
            && !self.shm.is_alive(slot)
            && let Some(why) = self.shm.place().why_not_here()
        {
            return Err(unreachable(why));
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
            Some(route) => Ok(Way::Udp { link, route, flow }),
            None => Err(unreachable(
                "no address of the device can reach it over UDP".to_owned(),
            )),
        }
    }

    fn way_to_group(&self, device: &Device, av: &Av, remote: u32) -> Result<Way, NicError> {
        if !self.groups_by_udp(device) {
            return Ok(Way::Group(av.dgid.to_ip()));
        }
        let link = self.open_udp(device)?;
        match link.route(&path_of(av), device.gids()) {
            Some(route) => Ok(Way::Udp {
                link,
                route,
                flow: None,
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

    /// How many bytes a queue pair may have in flight on a way.
    pub(crate) fn window_bytes(&self, way: &Way) -> usize {
        match way {
            Way::Loopback | Way::Group(_) => self.loopback.window_bytes(),
            Way::Shm(_) => self.shm.window_bytes(),
            Way::Udp { link, .. } => link.window_bytes(),
        }
    }

    /// Gives a packet to the link that its way says; [`Fabric::wake`] must follow. Groups are [`crate::multicast`]'s:
    /// nothing here reaches one.
    pub(crate) fn send(
        &self,
        way: &Way,
        meta: &Meta,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), SendError> {
        match way {
            Way::Loopback => self.loopback.send(meta, packet),
            Way::Shm(route) => self.shm.send(route, meta, packet),
            Way::Udp { link, route, flow } => match flow {
                Some(flow) if !flow.admits(now) => Err(SendError::Full),
                _ => link.send(route, packet),
            },
            Way::Group(_) => Err(SendError::Unreachable),
        }
    }

    /// Ends a batch of packets on a way: a peer that sleeps is woken. Datagrams leave with the pass, since those of other
    /// queue pairs may travel along.
    pub(crate) fn wake(&self, way: &Way, now: Instant) {
        if let Way::Shm(route) = way {
            self.shm.wake(route, now.as_nanos());
        }
    }

    /// Room for a train with `len` bytes of payload; on ways that carry none there is never any. [`Fabric::wake`] must
    /// follow, whatever becomes of it.
    pub(crate) fn reserve<'a>(
        &'a self,
        way: &Way,
        meta: &Meta,
        len: usize,
    ) -> Result<Berth<'a>, SendError> {
        match way {
            Way::Loopback => self.loopback.reserve(meta, len).map(Berth::Loopback),
            Way::Shm(route) => self.shm.reserve(route, meta, len).map(Berth::Shm),
            Way::Udp { .. } | Way::Group(_) => Err(SendError::Full),
        }
    }

    /// Whether the peer is a living process of this host that has not looked since `sent`. What we
    /// sent it then waits for it and is not lost, however long that takes: the machine is busy, or
    /// somebody holds the process in a debugger. A card would have answered in its stead.
    pub(crate) fn has_not_looked(&self, way: &Way, sent: Instant, now: Instant) -> bool {
        let peer = match way {
            Way::Shm(peer) => peer,
            Way::Udp {
                flow: Some(flow), ..
            } => &flow.peer,
            _ => return false,
        };
        let looked = peer.last_drive_ns();
        let silent_for = now.as_nanos().saturating_sub(looked);
        looked <= sent.as_nanos() && silent_for < MOST_FORGIVEN_NS && self.shm.probe(peer.slot())
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
