//! Whom an incoming message is for: an exchange of ours, a listener, or another process of this user.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_engine::Instant;
use adverb_engine::cm::{Connection, Inquiry, answer_stray, refuse};
use adverb_link::{Meta, Path};
use adverb_wire::Gid;
use adverb_wire::cm::{CmaHeader, Mad, Message, RejReason, Req, ServiceId, SidrReq};

use super::cell::{Cell, State};
use super::channel::{CmEventKind, Peer};
use super::gsi::{Arrival, count};
use super::id::CmId;
use super::later::Reason;
use super::ports::Port;
use super::strangers::{Room, Source};
use super::table::{Keys, slot_of};
use super::talk::{Machine, Talk};
use crate::device::{Device, devices};
use crate::nic::Nic;
use crate::sync::LockExt;

/// Hop limit of answers, as the kernel's.
const HOP_LIMIT: u8 = 64;

/// Where a request belongs.
enum Listener {
    Here(Arc<Cell>),
    /// In the process at a slot.
    Elsewhere(u16),
    /// Somebody has bound the port and does not listen, or not yet.
    Expected,
    Nobody,
}

impl Nic {
    pub(super) fn dispatch(&self, now: Instant, arrival: &Arrival) {
        let dropped = &self.cm.gsi.dropped;
        let Ok(mad) = Mad::parse(&arrival.mad) else {
            return count(&dropped.not_cm);
        };
        match &mad.message {
            Message::Req(req) => self.requested(now, arrival, &mad, req),
            Message::SidrReq(req) => self.inquired(now, arrival, &mad, req),
            message => match self.exchange_of(arrival, message) {
                Some(cell) => cell.handle(now, arrival, &mad),
                None => self.astray(now, arrival, &mad),
            },
        }
    }

    fn exchange_of(&self, arrival: &Arrival, message: &Message) -> Option<Arc<Cell>> {
        match message {
            // He gave up before he knew our ID.
            Message::Rej(rej) if rej.remote_id == 0 => {
                let guid = rej.gives_up()?;
                self.cm.table.asked((arrival.meta.src, guid, rej.local_id))
            }
            _ => self.cm.table.find(message.remote_id()?),
        }
    }

    /// For nobody here: it belongs to another process, or answers what nobody remembers.
    fn astray(&self, now: Instant, arrival: &Arrival, mad: &Mad) {
        let slot = slot_of(mad.message.remote_id().unwrap_or(0));
        if self.hand_mad_over(slot, arrival, now) {
            return;
        }
        count(&self.cm.gsi.dropped.nobody);
        // An ID of ours, long forgotten: the peer may still be waiting for a last word.
        if slot == self.qps.slot()
            && let Some(answer) = answer_stray(mad)
        {
            self.reply(now, arrival, &answer, mad.message.local_id());
        }
    }

    fn requested(&self, now: Instant, arrival: &Arrival, mad: &Mad, req: &Req) {
        let asker = (arrival.meta.src, req.ca_guid, req.local_id);
        if let Some(known) = self.cm.table.asked(asker) {
            return known.handle(now, arrival, mad);
        }
        let Some(listener) = self.find_listener(now, arrival, mad, req.service_id, &req.private)
        else {
            return;
        };
        let rival = (arrival.meta.src, req.ca_guid, req.qpn);
        if let Some(old) = self.cm.table.connected(rival) {
            // The queue pair that asks cannot be connected already. Either the peer has forgotten that it
            // was, or somebody asks in its name: the peer is asked. The newcomer may come again.
            old.step(now, |c| {
                c.probe(now);
                Ok(())
            })
            .unwrap_or_default();
            count(&self.cm.gsi.dropped.stale);
            return self.refuse(now, arrival, mad, RejReason::STALE_CONNECTION);
        }
        if !self.makes_room(arrival, now) {
            return;
        }
        let begin = |number| {
            let machine = Connection::requested(now, number, mad.tid, req);
            let keys = Keys {
                number,
                asked: Some(asker),
                ..Keys::default()
            };
            (keys, Machine::Connection(Box::new(machine)))
        };
        let announce = |id, from| CmEventKind::Request {
            id,
            req: Box::new(*req),
            from,
        };
        if !self.announce(now, arrival, &listener, begin, announce) {
            self.refuse(now, arrival, mad, RejReason::NO_RESOURCES);
        }
    }

    fn inquired(&self, now: Instant, arrival: &Arrival, mad: &Mad, req: &SidrReq) {
        let asker = (arrival.meta.src, req.request_id);
        if let Some(known) = self.cm.table.inquiry(asker) {
            return known.handle(now, arrival, mad);
        }
        let Some(listener) = self.find_listener(now, arrival, mad, req.service_id, &req.private)
        else {
            return;
        };
        if !self.makes_room(arrival, now) {
            return;
        }
        let begin = |number| {
            let machine = Inquiry::requested(now, mad.tid, req);
            let keys = Keys {
                number,
                inquiry: Some(asker),
                ..Keys::default()
            };
            (keys, Machine::Inquiry(Box::new(machine)))
        };
        let announce = |id, from| CmEventKind::LookupRequest {
            id,
            req: Box::new(*req),
            from,
        };
        if !self.announce(now, arrival, &listener, begin, announce) {
            self.refuse(now, arrival, mad, RejReason::NO_RESOURCES);
        }
    }

    /// Whether there is room for a request; if need be, somebody who was refused is forgotten. For a moment a source
    /// that asks for many at a time may wait; beyond that its messages are lost, and said again.
    fn makes_room(&self, arrival: &Arrival, now: Instant) -> bool {
        match self.cm.table.room_for(Source::of(arrival.meta.src)) {
            Room::Free => true,
            Room::Instead(number) => {
                if let Some(answered) = self.cm.table.find(number) {
                    answered.forget();
                }
                true
            }
            Room::None => {
                if !self.put_off(arrival, Reason::Crowd, now) {
                    count(&self.cm.gsi.dropped.crowd);
                }
                false
            }
        }
    }

    /// Makes an identifier for a request and tells the listener. False if there is no room for one.
    fn announce(
        &self,
        now: Instant,
        arrival: &Arrival,
        listener: &Arc<Cell>,
        begin: impl FnOnce(u32) -> (Keys, Machine),
        announce: impl FnOnce(Arc<CmId>, Peer) -> CmEventKind,
    ) -> bool {
        let heard = listener.state.acquire();
        let Some(listening) = heard.listening.as_ref().filter(|_| !heard.closed) else {
            // It ended this moment.
            return false;
        };
        if listener.requests_waiting() >= listening.backlog {
            // Said again later, when the program has come to the others.
            count(&self.cm.gsi.dropped.backlog);
            return true;
        }
        let to = arrival.meta.dst;
        let device = listening.devices.iter().find(|d| d.owns(to));
        let device = device.or_else(|| listening.devices.first());
        let (Some(device), Some(channel)) = (device, listener.channel()) else {
            return false;
        };
        let source = Source::of(arrival.meta.src);
        let Ok(number) = self.cm.table.reserve_for(Some(source)) else {
            return false;
        };
        let (keys, machine) = begin(number);
        let mut talk = Talk::new(keys, machine, device, path_back(&arrival.meta));
        talk.peer_qp = arrival.from_qp;
        let state = State {
            talk: Some(Box::new(talk)),
            ..State::default()
        };
        let cell = Arc::new(Cell::new(&listener.nic, &channel, 0, state));
        self.cm.table.enter(&keys, &cell);
        // Sets the first deadline, and sees whether the peer still lives.
        cell.settle(&mut cell.state.acquire(), now);
        let from = Peer {
            src: arrival.meta.src,
            dst: to,
        };
        // Under the listener's lock: if it closes now, it finds the event in its queue.
        listener.push(announce(CmId::of(cell), from));
        true
    }

    /// The listener in this process. If it is elsewhere, or there is none, that has been seen to.
    fn find_listener(
        &self,
        now: Instant,
        arrival: &Arrival,
        mad: &Mad,
        service: ServiceId,
        private: &[u8],
    ) -> Option<Arc<Cell>> {
        match self.listener_of(service, arrival.meta.dst, private) {
            Listener::Here(cell) => return Some(cell),
            Listener::Elsewhere(slot) if self.hand_mad_over(slot, arrival, now) => {}
            Listener::Expected if self.put_off(arrival, Reason::Claimed, now) => {}
            Listener::Nobody if self.put_off(arrival, Reason::Nobodys, now) => {}
            _ => self.refuse(now, arrival, mad, RejReason::INVALID_SERVICE_ID),
        }
        None
    }

    fn listener_of(&self, service: ServiceId, to: IpAddr, private: &[u8]) -> Listener {
        let (space, number) = (service.space(), service.port());
        if service != ServiceId::new(space, number) {
            return Listener::Nobody;
        }
        let port = Port { space, number };
        // The packet's destination is a GID of the device; the listener may have named another
        // address of it, and that one is in the header.
        let named = CmaHeader::parse(private).ok().map(|header| header.dst);
        let addresses = || [Some(to), named.filter(|n| *n != to)].into_iter().flatten();
        if let Some(cell) = addresses().find_map(|ip| self.cm.table.listener(port, ip)) {
            return Listener::Here(cell);
        }
        if let Some(slot) = addresses().find_map(|ip| self.listener_elsewhere(port, ip)) {
            return Listener::Elsewhere(slot);
        }
        let place = self.fabric.place();
        match addresses().any(|ip| self.cm.ports.is_claimed(place, port, ip)) {
            true => Listener::Expected,
            false => Listener::Nobody,
        }
    }

    /// The slot of another process that listens.
    pub(super) fn listener_elsewhere(&self, port: Port, address: IpAddr) -> Option<u16> {
        let slot = self.cm.ports.find(self.fabric.place(), port, address)?;
        (slot != self.qps.slot()).then_some(slot)
    }

    fn refuse(&self, now: Instant, arrival: &Arrival, mad: &Mad, reason: RejReason) {
        if let Some(answer) = refuse(mad, reason) {
            self.reply(now, arrival, &answer, mad.message.local_id());
        }
    }

    /// Answers without an exchange. `peer` is what the sender calls his.
    fn reply(&self, now: Instant, to: &Arrival, answer: &Mad, peer: u32) {
        let Some(device) = self.device_at(to.meta.dst) else {
            return;
        };
        let path = path_back(&to.meta);
        if let Ok(way) = self.way_of_mad(&device, &path, slot_of(peer)) {
            self.send_mad(&way, &Meta::of(&path), to.from_qp, answer, now);
        }
    }

    /// The device with one of our addresses.
    fn device_at(&self, address: IpAddr) -> Option<Arc<Device>> {
        let contexts = self.contexts.acquire().clone();
        let open = contexts.iter().filter_map(|c| c.upgrade());
        open.map(|c| Arc::clone(c.device()))
            .find(|d| d.owns(address))
            .or_else(|| devices().ok()?.into_iter().find(|d| d.owns(address)))
    }
}

fn path_back(meta: &Meta) -> Path {
    Path {
        sgid: Gid::from_ip(meta.dst),
        dgid: Gid::from_ip(meta.src),
        traffic_class: meta.traffic_class,
        hop_limit: HOP_LIMIT,
        flow_label: 0,
    }
}
