//! Random work requests, each with what it must do: the bytes, the message that arrives, the end.

use adverb_engine::{
    Access, Av, FlushTarget, Key, SendFlags, SendOp, Sge, UdAddress, WcOpcode, WcStatus,
};
use adverb_wire::Transport;

use crate::node::gid_of;
use crate::oracle::{Arrival, Data, Effect, Expect, PIECES, Sent, WORDS};
use crate::poison::Poison;
use crate::world::World;

/// A work request in the making.
pub(crate) struct Draft {
    pub(crate) op: SendOp,
    pub(crate) sges: [Sge; 8],
    pub(crate) count: usize,
    pub(crate) flags: SendFlags,
    pub(crate) inline: bool,
    pub(crate) sent: Sent,
    pub(crate) arrival: Option<Arrival>,
    pub(crate) ud: Option<UdAddress>,
    /// XRC: the SRQ that it names.
    pub(crate) srqn: u32,
}

impl Draft {
    /// Whether the peer looks at a key.
    pub(crate) const fn needs_key(&self) -> bool {
        !matches!(
            self.op,
            SendOp::Send
                | SendOp::SendImm(_)
                | SendOp::SendInv(_)
                | SendOp::LocalInv(_)
                | SendOp::BindMw(_)
        )
    }
}

impl World {
    /// A length that finds the edges of packets more often than chance would.
    pub(crate) fn length(&mut self, pmtu: usize) -> usize {
        let max = self.profile.max_len;
        let len = match self.random.below(6) {
            0 => self.random.index(9),
            1 => pmtu * self.random.index(max / pmtu + 1),
            2 => {
                (pmtu * self.random.index(max / pmtu + 1) + self.random.index(3)).saturating_sub(1)
            }
            _ => self.random.index(max + 1),
        };
        len.min(max)
    }

    /// Pieces of the source, as data and as a gather list.
    fn pieces(&mut self, e: usize, len: usize) -> (Data, [Sge; 8], usize) {
        let ep = &self.endpoints[e];
        let node = &self.nodes[ep.node];
        let most = ep.setup.max_sge.min(PIECES) as u64;
        let n = if len == 0 && self.random.chance(5000) {
            0
        } else {
            self.random.between(1, most) as usize
        };
        let mut cut = [(0, 0); PIECES];
        let mut sges = [Sge::default(); 8];
        let mut left = len;
        for i in 0..n {
            let part = if i + 1 == n {
                left
            } else {
                self.random.index(left + 1)
            };
            let at = self.random.index(self.profile.max_len * 2 + 4096 - part);
            cut[i] = (at as u32, part as u32);
            sges[i] = node.common.memory.sge(node.source, at, part);
            left -= part;
        }
        (Data::Source(cut, n as u8), sges, n)
    }

    fn flags(&mut self) -> SendFlags {
        let mut flags = SendFlags::empty();
        if !self.random.chance(self.profile.unsignaled) {
            flags |= SendFlags::SIGNALED;
        }
        if self.random.chance(self.profile.fence) {
            flags |= SendFlags::FENCE;
        }
        if self.random.chance(2000) {
            flags |= SendFlags::SOLICITED;
        }
        flags
    }

    pub(crate) fn blank(&mut self, e: usize, op: SendOp, len: usize, opcode: WcOpcode) -> Draft {
        let (data, sges, count) = self.pieces(e, len);
        let flags = self.flags();
        let srqn = self.srq_number(e);
        let ep = &self.endpoints[e];
        let imm = match op {
            SendOp::SendImm(imm) | SendOp::WriteImm { imm, .. } => Some(imm),
            _ => None,
        };
        let is_send = matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_));
        let arrives = is_send || matches!(op, SendOp::WriteImm { .. });
        let inline = len <= ep.setup.max_inline
            && (is_send || matches!(op, SendOp::Write { .. } | SendOp::WriteImm { .. }))
            && self.random.chance(self.profile.inline);
        let arrival = arrives.then(|| Arrival {
            from_node: ep.node,
            data: is_send.then(|| data.clone()),
            byte_len: len,
            imm,
            invalidated: match op {
                SendOp::SendInv(key) => Some(key),
                _ => None,
            },
            solicited: flags.contains(SendFlags::SOLICITED),
            src_qp: ep.num,
            srqn: (ep.transport == Transport::Xrc).then_some(srqn),
            too_long: false,
            refused: false,
            change: None,
        });
        Draft {
            op,
            sges,
            count,
            flags,
            inline,
            sent: Sent {
                id: ep.next_send,
                opcode,
                signaled: ep.setup.sig_all || flags.contains(SendFlags::SIGNALED),
                len,
                poison: None,
                receives: arrives.then(|| self.endpoints[ep.peer].to_arrive + 1),
                effect: match op {
                    SendOp::Write { .. } | SendOp::WriteImm { .. } => Effect::Write { to: 0, data },
                    _ => Effect::None,
                },
                expect: Expect::Nothing,
                answer: None,
                invalidates: None,
                through: None,
                change: None,
            },
            arrival,
            ud: None,
            srqn,
        }
    }

    pub(crate) fn draft_datagram(&mut self, e: usize) -> Option<Draft> {
        let receivers: Vec<usize> = (0..self.endpoints.len())
            .filter(|i| {
                let ep = &self.endpoints[*i];
                ep.transport == Transport::Ud && ep.cell.is_some()
            })
            .collect();
        let to = self.random.pick(&receivers);
        let len = self.length(512).min(4096);
        let op = if self.random.chance(5000) {
            SendOp::Send
        } else {
            SendOp::SendImm([self.random.next() as u8; 4])
        };
        let mut draft = self.blank(e, op, len, WcOpcode::Send);
        draft.sent.receives = None;
        let there = &self.endpoints[to];
        let wrong_key = self.random.chance(200);
        if wrong_key {
            draft.arrival = None;
        }
        draft.ud = Some(UdAddress {
            av: Av {
                sgid: gid_of(self.endpoints[e].node),
                dgid: gid_of(there.node),
                ..Av::default()
            },
            remote_qpn: there.num,
            remote_qkey: if wrong_key { 0x1111 } else { 0x1234 },
        });
        Some(draft)
    }

    pub(crate) fn draft_uc(&mut self, e: usize) -> Option<Draft> {
        if self.random.chance(self.profile.windows)
            && let Some(draft) = self.draft_window(e)
        {
            return Some(draft);
        }
        let len = self.length(self.endpoints[e].setup.pmtu);
        let door = self.door(e, Access::REMOTE_WRITE, WORDS, self.target_len());
        let len = len.min(door.end - door.first);
        let to = door.first + self.random.index(door.end - door.first - len + 1);
        let (remote_addr, rkey) = (door.addr(to), door.key);
        let imm = [self.random.next() as u8; 4];
        let (op, opcode) = match self.random.below(4) {
            0 => (SendOp::Send, WcOpcode::Send),
            1 => (SendOp::SendImm(imm), WcOpcode::Send),
            2 => (SendOp::Write { remote_addr, rkey }, WcOpcode::RdmaWrite),
            _ => (
                SendOp::WriteImm {
                    remote_addr,
                    rkey,
                    imm,
                },
                WcOpcode::RdmaWrite,
            ),
        };
        let mut draft = self.blank(e, op, len, opcode);
        draft.sent.receives = None;
        if opcode == WcOpcode::RdmaWrite {
            draft.sent.through = door.window;
        }
        // Which of the writes arrive is open, so there is nothing to expect of the target.
        draft.sent.effect = match draft.sent.effect {
            Effect::Write { data, .. } if draft.inline => Effect::Write { to: 0, data },
            _ => Effect::None,
        };
        Some(draft)
    }

    pub(crate) fn draft_rc(&mut self, e: usize) -> Option<Draft> {
        self.choose_lane(e);
        if self.random.chance(self.profile.windows)
            && let Some(draft) = self.draft_window(e)
        {
            return Some(draft);
        }
        let poison = if self.random.chance(self.profile.poison) {
            self.random
                .pick(&[Poison::Remote, Poison::Local, Poison::TooLong])
        } else {
            Poison::None
        };
        match self.random.below(20) {
            _ if poison == Poison::TooLong => self.draft_send(e, poison),
            0..7 => self.draft_send(e, poison),
            7..12 => self.draft_write(e, poison),
            12..16 => self.draft_read(e, poison),
            16..18 => self.draft_atomic(e, poison),
            18 => self.draft_small(e, poison),
            _ => Some(self.draft_local_inv(e)),
        }
    }

    fn draft_send(&mut self, e: usize, poison: Poison) -> Option<Draft> {
        let len = if poison == Poison::TooLong {
            self.recv_len() + 1 + self.random.index(500)
        } else {
            self.length(self.endpoints[e].setup.pmtu)
        };
        let refused = poison == Poison::Remote && self.profile.windows > 0;
        let op = match self.random.below(8) {
            _ if refused => SendOp::SendInv(self.uninvalidatable(e)),
            0..4 => SendOp::Send,
            4..7 => SendOp::SendImm([self.random.next() as u8; 4]),
            _ => {
                let there = &self.endpoints[self.endpoints[e].peer];
                let memory = &mut self.nodes[there.node].common.memory;
                SendOp::SendInv(memory.add_invalidatable(there.target))
            }
        };
        let news = self.news(e);
        let mut draft = self.blank(e, op, len, WcOpcode::Send);
        if let Some(arrival) = &mut draft.arrival {
            (arrival.refused, arrival.change) = (refused, news);
        }
        if refused {
            draft.sent.poison = Some(WcStatus::RemOpErr);
        }
        self.poison(e, &mut draft, poison);
        Some(draft)
    }

    /// What changes the target may not overtake a READ of it.
    fn fence_target(&self, e: usize, draft: &mut Draft) {
        let ep = &self.endpoints[e];
        let oldest = ep.sent.front().map_or(ep.next_send, |s| s.id);
        if ep.target_read.is_some_and(|id| id >= oldest) {
            draft.flags |= SendFlags::FENCE;
        }
    }

    fn draft_write(&mut self, e: usize, poison: Poison) -> Option<Draft> {
        let len = self.length(self.endpoints[e].setup.pmtu);
        let door = self.door(e, Access::REMOTE_WRITE, WORDS, self.target_len());
        let len = len.min(door.end - door.first);
        let to = door.first + self.random.index(door.end - door.first - len + 1);
        let (remote_addr, mut rkey) = (door.addr(to), door.key);
        if len == 0 {
            // Nobody looks at the key of nothing.
            rkey = Key(0xbad);
        }
        let op = if self.random.chance(6000) {
            SendOp::Write { remote_addr, rkey }
        } else {
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm: [self.random.next() as u8; 4],
            }
        };
        let mut draft = self.blank(e, op, len, WcOpcode::RdmaWrite);
        draft.sent.through = door.window;
        if let Effect::Write { to: at, .. } = &mut draft.sent.effect {
            *at = to;
        }
        self.fence_target(e, &mut draft);
        self.poison(e, &mut draft, poison);
        self.apply_latest(e, &draft.sent.effect);
        Some(draft)
    }

    fn apply_latest(&mut self, e: usize, effect: &Effect) -> u64 {
        let ep = &self.endpoints[e];
        let node = &self.nodes[ep.node];
        let source = node.common.memory.bytes(node.source);
        let peer = ep.peer;
        effect.apply(source, &mut self.endpoints[peer].latest)
    }

    /// Gives a draft a slot of the answer region, in one or two pieces.
    fn answer(&mut self, e: usize, draft: &mut Draft, slot: u16, len: usize) {
        let max_len = self.profile.max_len;
        let ep = &self.endpoints[e];
        let memory = &self.nodes[ep.node].common.memory;
        let at = usize::from(slot) * max_len;
        if ep.setup.max_sge > 1 && self.random.chance(3000) {
            let first = self.random.index(len + 1);
            draft.sges[0] = memory.sge(ep.answers, at, first);
            draft.sges[1] = memory.sge(ep.answers, at + first, len - first);
            draft.count = 2;
        } else {
            draft.sges[0] = memory.sge(ep.answers, at, len);
            draft.count = 1;
        }
        draft.sent.answer = Some((slot, true));
    }

    fn draft_read(&mut self, e: usize, poison: Poison) -> Option<Draft> {
        if !self.endpoints[e].setup.reads {
            return None;
        }
        let slot = self.endpoints[e].free_answers.pop()?;
        let mut len = self.length(self.endpoints[e].setup.pmtu);
        let peer = self.endpoints[e].peer;
        let of_target = self.random.chance(5000);
        let mut through = None;
        let (remote_addr, rkey, expect) = if of_target {
            let door = self.door(e, Access::REMOTE_READ, 0, self.target_len());
            len = len.min(door.end - door.first);
            let at = door.first + self.random.index(door.end - door.first - len + 1);
            let bytes = self.endpoints[peer].latest[at..at + len].to_vec();
            through = door.window;
            (door.addr(at), door.key, Expect::Bytes(bytes))
        } else {
            let node = &self.nodes[self.endpoints[peer].node];
            let memory = &node.common.memory;
            let at = self.random.index(self.source_len() - len + 1);
            (
                memory.addr(node.source, at),
                self.remote_key(e, node.source),
                Expect::Source(at),
            )
        };
        let rkey = if len == 0 { Key(0xbad) } else { rkey };
        let mut draft = self.blank(
            e,
            SendOp::Read { remote_addr, rkey },
            len,
            WcOpcode::RdmaRead,
        );
        (draft.sent.expect, draft.sent.through) = (expect, through);
        self.answer(e, &mut draft, slot, len);
        self.poison(e, &mut draft, poison);
        if of_target {
            self.endpoints[e].target_read = Some(draft.sent.id);
        }
        if draft.sent.poison.is_none() && self.random.chance(2000) && self.budget > 1 && len > 0 {
            self.send_what_was_read(e, &mut draft, slot);
        } else if draft.sent.poison.is_none()
            && self.budget > 1
            && let Some(window) = through
            && self.ends_with(e, window)
        {
            self.budget -= 1;
            self.submit(e, draft);
            return Some(self.draft_give_back(e, window));
        }
        Some(draft)
    }

    /// Replaces the draft by a SEND of the very bytes it fetches, after submitting the fetch: only
    /// the fence keeps the SEND from reading the buffer too early.
    fn send_what_was_read(&mut self, e: usize, draft: &mut Draft, slot: u16) {
        let ep = &self.endpoints[e];
        let Some(cell) = &ep.cell else { return };
        if cell.qp.sends_pending() + 2 > cell.qp.config().caps.max_send_wr {
            return;
        }
        let len = draft.sent.len;
        let bytes = match &draft.sent.expect {
            Expect::Source(at) => {
                let node = &self.nodes[self.endpoints[ep.peer].node];
                node.common.memory.bytes(node.source)[*at..*at + len].to_vec()
            }
            Expect::Bytes(bytes) => bytes.clone(),
            Expect::Nothing | Expect::Counter => return,
        };
        let sge = self.nodes[ep.node].common.memory.sge(
            ep.answers,
            usize::from(slot) * self.profile.max_len,
            len,
        );
        let mut send = self.blank(e, SendOp::Send, len, WcOpcode::Send);
        send.sent.id += 1;
        send.flags |= SendFlags::FENCE;
        send.inline = false;
        send.sges[0] = sge;
        send.count = 1;
        send.sent.answer = Some((slot, true));
        if let Some(arrival) = &mut send.arrival {
            arrival.data = Some(Data::Bytes(bytes));
        }
        let mut read = std::mem::replace(draft, send);
        read.sent.answer = Some((slot, false));
        self.budget -= 1;
        self.submit(e, read);
    }

    fn draft_atomic(&mut self, e: usize, poison: Poison) -> Option<Draft> {
        if !self.endpoints[e].setup.reads {
            return None;
        }
        let slot = self.endpoints[e].free_answers.pop()?;
        let door = self.door(e, Access::REMOTE_ATOMIC, 0, WORDS);
        let there = &self.endpoints[self.endpoints[e].peer];
        let there_node = there.node;
        let node = &self.nodes[there.node];
        let memory = &node.common.memory;
        let word = door.first + self.random.index((door.end - door.first) / 8) * 8;
        let (remote_addr, rkey) = (door.addr(word), door.key);
        let add = self.random.next();
        let (op, opcode, effect) = match self.random.below(3) {
            0 => (
                SendOp::FetchAdd {
                    remote_addr: memory.addr(node.counter, 0),
                    rkey: self.remote_key(e, node.counter),
                    add: 1,
                },
                WcOpcode::FetchAdd,
                Effect::None,
            ),
            1 => (
                SendOp::FetchAdd {
                    remote_addr,
                    rkey,
                    add,
                },
                WcOpcode::FetchAdd,
                Effect::Add { at: word, add },
            ),
            _ => {
                let now = u64::from_ne_bytes(
                    there.latest[word..word + 8]
                        .try_into()
                        .expect("eight bytes"),
                );
                let compare = if self.random.chance(6000) { now } else { add };
                (
                    SendOp::CompareSwap {
                        remote_addr,
                        rkey,
                        compare,
                        swap: add,
                    },
                    WcOpcode::CompSwap,
                    Effect::Swap {
                        at: word,
                        compare,
                        swap: add,
                    },
                )
            }
        };
        let mut draft = self.blank(e, op, 8, opcode);
        self.answer(e, &mut draft, slot, 8);
        let shared = matches!(effect, Effect::None);
        if !shared {
            draft.sent.through = door.window;
        }
        draft.sent.effect = effect;
        draft.sent.expect = Expect::Counter;
        self.fence_target(e, &mut draft);
        self.poison(e, &mut draft, poison);
        if draft.sent.poison.is_none() || draft.sent.is_answered_in_vain() {
            if shared {
                self.counter_posted[there_node] += 1;
            } else {
                let effect = draft.sent.effect.clone();
                let old = self.apply_latest(e, &effect);
                draft.sent.expect = Expect::Bytes(old.to_ne_bytes().to_vec());
            }
        }
        Some(draft)
    }

    /// ATOMIC_WRITE and FLUSH, which are answered with nothing.
    fn draft_small(&mut self, e: usize, poison: Poison) -> Option<Draft> {
        if !self.endpoints[e].setup.reads {
            return None;
        }
        if self.random.chance(5000) {
            let door = self.door(e, Access::FLUSH_GLOBAL, 0, self.target_len());
            let at = door.first + self.random.index(door.end - door.first);
            let op = SendOp::Flush(FlushTarget {
                remote_addr: door.addr(at),
                len: self.random.index(64.min(door.end - at)) as u32,
                rkey: door.key,
                placement: 1,
                whole_region: self.random.chance(5000),
            });
            let mut draft = self.blank(e, op, 0, WcOpcode::Flush);
            draft.sent.through = door.window;
            draft.count = 0;
            return Some(draft);
        }
        let door = self.door(e, Access::REMOTE_WRITE, 0, WORDS);
        let word = door.first + self.random.index((door.end - door.first) / 8) * 8;
        let (remote_addr, rkey) = (door.addr(word), door.key);
        let op = SendOp::AtomicWrite { remote_addr, rkey };
        let mut draft = self.blank(e, op, 8, WcOpcode::AtomicWrite);
        let (data, sges, count) = self.pieces(e, 8);
        (draft.sges, draft.count) = (sges, count);
        draft.sent.effect = Effect::Write { to: word, data };
        draft.sent.through = door.window;
        self.fence_target(e, &mut draft);
        self.poison(e, &mut draft, poison);
        self.apply_latest(e, &draft.sent.effect);
        Some(draft)
    }

    fn draft_local_inv(&mut self, e: usize) -> Draft {
        let ep = &self.endpoints[e];
        let key = self.nodes[ep.node]
            .common
            .memory
            .add_invalidatable(ep.target);
        let mut draft = self.blank(e, SendOp::LocalInv(key), 0, WcOpcode::LocalInv);
        draft.count = 0;
        draft.sent.invalidates = Some(key);
        draft
    }
}
