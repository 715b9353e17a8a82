//! Whether the port of a device works: the kernel tells when an interface goes up or down.
//!
//! What it says is not read, only that it says something; then each open device looks for itself.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::async_events::{AsyncKind, Source};
use crate::context::Context;
use crate::nic::Nic;
use crate::sync::LockExt;

/// The multicast group of interfaces that change (RTMGRP_LINK).
const INTERFACES: u32 = 1;

fn listen() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Routes and interfaces are protocol 0, which is also that of no choice.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, INTERFACES))?;
    Ok(socket)
}

impl Nic {
    /// From now on the context hears when its port goes up or down.
    pub(crate) fn watch_port(&self, context: &Arc<Context>) {
        let mut contexts = self.contexts.acquire();
        contexts.retain(|c| c.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
        drop(contexts);
        // A container may forbid such sockets. Then ports never change, as far as we know.
        self.interfaces.get_or_init(|| {
            let socket = listen().ok()?;
            self.fabric.watch_interfaces(&socket).ok()?;
            Some(socket)
        });
    }

    /// Some interface has changed.
    pub(crate) fn interfaces_changed(&self) {
        let Some(Some(socket)) = self.interfaces.get() else {
            return;
        };
        // One message may be cut off, and some may have been lost: neither matters.
        let mut ignored = [0u8; 4096];
        let more = |r: rustix::io::Result<_>| matches!(r, Ok(_) | Err(rustix::io::Errno::NOBUFS));
        while more(recv(socket, &mut ignored, RecvFlags::DONTWAIT)) {}
        let contexts = self.contexts.acquire().clone();
        for context in contexts.iter().filter_map(|c| c.upgrade()) {
            let active = context.device().port().active;
            if context.port_active.swap(active, Ordering::AcqRel) != active {
                let kind = match active {
                    true => AsyncKind::PortActive,
                    false => AsyncKind::PortErr,
                };
                context.raise(kind, Source::Device);
            }
        }
    }
}
