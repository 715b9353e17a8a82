//! Which link a packet takes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_engine::Av;
use adverb_link::{Capabilities, Link, Path, Route, SendError, UdpLink, qpn};

use crate::device::Device;
use crate::error::NicError;
use crate::nic::Nic;

/// A destination together with the link that reaches it.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) route: Route,
    udp: Option<Arc<UdpLink>>,
}

impl Nic {
    /// Finds the way to a queue pair. Shared memory when the destination is a living process of
    /// this host and user, UDP otherwise, as far as `ADVERB_LINKS` allows.
    pub(crate) fn way_to(&self, device: &Device, av: &Av, remote: u32) -> Result<Way, NicError> {
        let links = self.config.links;
        let unreachable = |why: String| NicError::Unreachable { gid: av.dgid, qpn: remote, why };
        if av.dgid.is_multicast() {
            return Err(NicError::Unsupported("multicast"));
        }
        if device.owns(av.dgid.to_ip()) {
            let slot = qpn::slot_of(remote);
            // Inside a process the loopback link *is* the shared memory link: there is no ring
            // from a process to itself.
            if slot == self.qps.slot() && (links.loopback || links.shm) {
                return Ok(Way { route: Route::Loopback, udp: None });
            }
            if links.shm
                && let Some(route) = self.shm.route(slot)
            {
                return Ok(Way { route: Route::Shm(route), udp: None });
            }
        }
        if !links.udp {
            return Err(unreachable("ADVERB_LINKS leaves no link that could reach it".to_owned()));
        }
        let link = self.open_udp(device)?;
        let path = path_of(av);
        match link.route(&path, device.gids()) {
            Some(route) => Ok(Way { route: Route::Udp(route), udp: Some(link) }),
            None => Err(unreachable("no address of the device can reach it over UDP".to_owned())),
        }
    }

    /// Opens the sockets of a device on which strangers may speak to us. On the loopback interface
    /// there are no strangers as long as shared memory reaches everybody.
    pub(crate) fn listen(&self, device: &Device) -> Result<(), NicError> {
        let links = self.config.links;
        let alone = device.addresses.iter().all(IpAddr::is_loopback);
        if links.udp && !(alone && links.shm) {
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
    ) -> Result<(), SendError> {
        self.link(way).send(&way.route, meta, packet)
    }

    /// Ends a batch on every link.
    pub(crate) fn flush(&self, now: adverb_engine::Instant) {
        self.shm.flush(now.as_nanos());
        if self.udp_open.load(Ordering::Acquire) {
            self.each_udp(|link| link.flush(now.as_nanos()));
        }
    }

    pub(crate) fn each_udp(&self, mut f: impl FnMut(&UdpLink)) {
        let links = self.udp.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (_, link) in links.iter() {
            f(link);
        }
    }

    fn link<'a>(&'a self, way: &'a Way) -> &'a dyn Link {
        match (&way.route, &way.udp) {
            (Route::Udp(_), Some(link)) => link.as_ref(),
            (Route::Shm(_), _) => &self.shm,
            _ => &self.loopback,
        }
    }
}

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
