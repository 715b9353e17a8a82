//! The part of a queue pair that the table, timers and drivers keep alive: what they ask of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_engine::{Instant, QpNum, QpState, UdAddress};
use adverb_link::{Meta, qpn};
use adverb_wire::Transport;

use super::{QpCell, State};
use crate::async_events::{AsyncKind, Source};
use crate::clock;
use crate::fabric::{Way, path_of};
use crate::host::View;
use crate::nic::Nic;
use crate::pass::Pass;
use crate::sync::LockExt;

impl QpCell {
    pub(crate) fn raise(&self, kind: AsyncKind) {
        for listener in self.listeners.acquire().iter() {
            listener.context.raise(kind, Source::Qp(listener.user));
        }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            nic: self.context.nic(),
            qp: self,
        }
    }

    /// What the queue pair still has to say may be the acknowledgement its peer waits for: another
    /// thread has delivered the message and not come to the answer yet, or a full link holds it
    /// back. A card would send it long after the program has gone; here it is now or never.
    pub(super) fn finish_answers(self: &Arc<Self>) {
        let nic = self.context.nic();
        let until = clock::now().plus_nanos(LAST_WORDS_NS);
        while !self.says_all_before(until) {
            nic.nap_and_drive();
        }
    }

    /// Whether all is said, or `until` has passed.
    fn says_all_before(self: &Arc<Self>, until: Instant) -> bool {
        let nic = self.context.nic();
        let pass = Pass::begin(nic);
        let mut state = self.state.acquire();
        nic.pump_locked(self, &mut state, pass.now());
        state.stuck.is_none() || pass.now() > until
    }

    pub(super) fn forget_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq].into_iter().flatten() {
            cq.forget_qp(QpNum(self.number));
        }
    }

    /// What follows an engine call: a queue pair whose completion found no room fails.
    pub(crate) fn settle(&self, state: &mut State, now: Instant) {
        if self.cq_failed.load(Ordering::Relaxed) && self.cq_failed.swap(false, Ordering::Relaxed) {
            state.machine.fail(now, &mut self.view());
            // The flushed work finds the CQ full as well, and that is no news.
            self.cq_failed.store(false, Ordering::Relaxed);
        }
    }

    /// The way of a datagram; none when nothing reaches the address, and the datagram is lost.
    pub(crate) fn datagram_way<'a>(
        &self,
        state: &'a mut State,
        to: &UdAddress,
    ) -> Option<(&'a Way, Meta)> {
        let meta = Meta::of(&path_of(&to.av));
        let is_known = state
            .recent
            .as_ref()
            .is_some_and(|(known, _)| known.av == to.av && known.remote_qpn == to.remote_qpn);
        if !is_known {
            let device = self.context.device();
            let fabric = &self.context.nic().fabric;
            let way = fabric.way_to(device, &to.av, to.remote_qpn).ok()?;
            state.recent = Some((*to, way));
        }
        state.recent.as_ref().map(|(_, way)| (way, meta))
    }

    /// The process at `slot` has ended. If this queue pair is connected to it, it fails once its
    /// retry budget has passed: what the peer sent last may still be under way.
    pub(crate) fn peer_died(&self, nic: &Nic, slot: u16, now: Instant) {
        let mut state = self.state.acquire();
        if state.destroyed || !is_watched(self.transport) {
            return;
        }
        let peer = state.watched_peer(self.transport, self.context.device());
        if peer != Some(slot) || state.fails_at.is_some() {
            return;
        }
        let attrs = state.machine.attrs();
        // "Never time out" is a promise about packets; that the peer is dead is certain.
        let timeout = adverb_wire::ack_timeout_ns(attrs.timeout).unwrap_or(FORGIVING_TIMEOUT_NS);
        let at = now.plus_nanos(timeout.saturating_mul(u64::from(attrs.retry_cnt) + 1));
        state.fails_at = Some(at);
        nic.fabric.look_again(at, self.number);
    }
}

const FORGIVING_TIMEOUT_NS: u64 = 500_000_000;

/// How long the end of a queue pair waits for room on its link.
pub(crate) const LAST_WORDS_NS: u64 = 50_000_000;

impl State {
    /// The slot of the process this queue pair is connected to, if that is on this host.
    pub(super) fn watched_peer(
        &self,
        transport: Transport,
        device: &crate::device::Device,
    ) -> Option<u16> {
        let connected = matches!(
            self.machine.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd
        );
        if !is_watched(transport) || !connected {
            return None;
        }
        let attrs = self.machine.attrs();
        let peer: IpAddr = attrs.av.dgid.to_ip();
        device
            .owns(peer)
            .then(|| qpn::slot_of(attrs.dest_qpn))
            .filter(|s| *s != 0)
    }
}

/// Whether the death of the peer's process shows in the queue pair.
const fn is_watched(transport: Transport) -> bool {
    matches!(transport, Transport::Rc | Transport::Xrc)
}
