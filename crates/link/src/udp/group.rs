//! Multicast groups: a socket of its own for each group that somebody of this process has joined.
//!
//! The sockets of the device are bound to its addresses and do not see datagrams for a group. The kernel tells the
//! network (IGMP, MLD) that the interface is a member for as long as the socket is open, and gives a copy of each
//! datagram to every process that has one, the sender's included.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;

use socket2::{InterfaceIndexOrAddress, Socket};

use super::{Endpoint, UdpLink};

impl UdpLink {
    /// Joins a group, unless that was done before. `watch` gets the descriptor to wait for.
    pub fn join(
        &self,
        group: IpAddr,
        watch: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if groups.iter().any(|endpoint| endpoint.address == group) {
            return Ok(());
        }
        let (endpoint, _) = Endpoint::open(group, self.port, self.scope_id, None)?;
        match group {
            IpAddr::V4(ip) => endpoint
                .socket
                .join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(self.scope_id))?,
            IpAddr::V6(ip) => endpoint.socket.join_multicast_v6(&ip, self.scope_id)?,
        }
        watch(endpoint.socket.as_fd())?;
        groups.push(endpoint);
        Ok(())
    }

    /// Leaves a group, if it was joined. `forget` gets the descriptor just before it is closed.
    pub fn leave(&self, group: IpAddr, mut forget: impl FnMut(BorrowedFd<'_>)) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|endpoint| {
            let leaves = endpoint.address == group;
            if leaves {
                forget(endpoint.socket.as_fd());
            }
            !leaves
        });
    }
}

/// Datagrams for groups leave through the interface of the socket's address, whatever the routes say.
pub(super) fn send_through(socket: &Socket, address: IpAddr, scope_id: u32) -> io::Result<()> {
    match address {
        IpAddr::V4(ip) => socket.set_multicast_if_v4(&ip),
        IpAddr::V6(_) => socket.set_multicast_if_v6(scope_id),
    }
}
