//! Messages of the connection manager: their bytes, and machines that get them from a stranger.

use adverb_engine::Instant;
use adverb_engine::cm::{
    Connection, ConnectionEvent, ConnectionState, Inquiry, Lookup, answer_stray, refuse,
};
use adverb_wire::cm::{
    CmaHeader, Concerning, Drep, Dreq, MAD_LEN, Mad, Message, Mra, Path, Rej, RejReason, Rep, Req,
    Rtu, SidrRep, SidrReq,
};
use arbitrary::{Arbitrary, Result, Unstructured};

use crate::traced;

const LOCAL: u32 = 0x4011;
const PEER: u32 = 0x8012;
const LOCAL_QPN: u32 = 0x11;
const PEER_QPN: u32 = 0x22;
const LOCAL_GUID: u64 = 0xA;
const PEER_GUID: u64 = 0xB;
/// One message never makes a machine say more than this.
const MOST_ANSWERS: usize = 4;
/// 15 repetitions, a time in which a REJ or a DREP is kept, and the time wait.
const MOST_TIMEOUTS: usize = 40;

/// The input is a message, and it is a stranger's and a user's doings with one machine of each kind.
pub fn run(input: &[u8]) {
    bytes(input);
    let mut u = Unstructured::new(input);
    let Ok(mut story) = Story::new(&mut u) else {
        return;
    };
    while !u.is_empty() {
        if story.step(&mut u).is_err() {
            break;
        }
        story.drain();
    }
    story.settle();
}

/// What can be parsed is emitted to bytes that say the same.
fn bytes(input: &[u8]) {
    if let Ok((header, _)) = CmaHeader::split(input) {
        assert_eq!(CmaHeader::parse(&header.emit()), Ok(header));
    }
    // Most inputs are shorter or longer than a message.
    let mut whole = [0; MAD_LEN];
    for (to, from) in whole.iter_mut().zip(input) {
        *to = *from;
    }
    let parsed = Mad::parse(input);
    assert!(parsed.is_err() || input.len() == MAD_LEN);
    if let Ok(mad) = Mad::parse(&whole) {
        let again = mad.emit();
        assert_eq!(Mad::parse(&again), Ok(mad));
        // What is not reserved has come through: the private data at least, which ends the message in all of them.
        assert_eq!(again[MAD_LEN - 136..], whole[MAD_LEN - 136..]);
    }
}

struct Story {
    now: Instant,
    machine: Connection,
    lookup: Lookup,
    inquiry: Inquiry,
    told: Vec<ConnectionEvent>,
}

impl Story {
    fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let now = Instant::ZERO;
        let active = bool::arbitrary(u)?;
        let timeouts = u8::arbitrary(u)?;
        let req = Req {
            local_id: PEER,
            qpn: if active { LOCAL_QPN } else { PEER_QPN },
            ca_guid: if active { LOCAL_GUID } else { PEER_GUID },
            remote_response_timeout: timeouts & 31,
            local_response_timeout: timeouts & 31,
            max_cm_retries: timeouts >> 4,
            primary: Path {
                ack_timeout: u8::arbitrary(u)? & 31,
                ..Path::default()
            },
            ..Req::default()
        };
        Ok(Self {
            now,
            machine: if active {
                Connection::connect(now, LOCAL, 1, req)
            } else {
                Connection::requested(now, LOCAL, 1, &req)
            },
            lookup: Lookup::new(now, LOCAL, 1, SidrReq::default()),
            inquiry: Inquiry::requested(now, 1, &SidrReq::default()),
            told: Vec::new(),
        })
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let now = self.now;
        let nothing = [0; Rej::PRIVATE];
        let machine = &mut self.machine;
        let kind = u8::arbitrary(u)?;
        if traced() {
            eprintln!("{now:?} {:?}: {kind}", machine.state());
        }
        // A user's mistakes are refused, which is all that can be said of them here.
        match kind {
            0..128 => {
                let message = message(u)?;
                self.give(&Mad {
                    tid: u64::from(u8::arbitrary(u)? & 3),
                    message,
                });
            }
            128..144 => {
                if let Ok(mad) = Mad::parse(u.bytes(MAD_LEN)?) {
                    self.give(&mad);
                }
            }
            144..160 => {
                let rep = Rep {
                    qpn: LOCAL_QPN,
                    ca_guid: LOCAL_GUID,
                    ..Rep::default()
                };
                let _ = machine.accept(now, rep);
            }
            160..168 => {
                let _ = machine.reject(now, RejReason(u8::arbitrary(u)?.into()), nothing);
            }
            168..184 => {
                let _ = machine.established_by_user(now);
            }
            184..192 => {
                let _ = machine.notify_established(now);
            }
            192..208 => {
                let _ = machine.disconnect(now, [0; Dreq::PRIVATE]);
            }
            208..212 => machine.peer_gone(now),
            212..216 => machine.close(now),
            216..224 => {
                let _ = self.inquiry.answer(now, SidrRep::default());
            }
            224.. => self.wait(u64::from(u16::arbitrary(u)?) << 20),
        }
        Ok(())
    }

    fn give(&mut self, mad: &Mad) {
        let taken = self.machine.handle(self.now, mad);
        let asked = self.inquiry.handle(self.now, mad);
        let answered = self.lookup.handle(self.now, mad);
        if traced() {
            eprintln!("{}: {taken:?} {asked:?} {answered:?}", mad.message.name());
        }
        // No ping-pong: what is said without a machine gets no such answer in turn.
        let answers = [answer_stray(mad), refuse(mad, RejReason::NO_QP)];
        for answer in answers.into_iter().flatten() {
            assert_eq!(answer_stray(&answer), None);
            assert_eq!(refuse(&answer, RejReason::NO_QP), None);
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now.plus_nanos(ns);
        self.machine.handle_timeout(self.now);
        self.lookup.handle_timeout(self.now);
        self.inquiry.handle_timeout(self.now);
    }

    fn drain(&mut self) {
        let mut said = 0;
        while let Some(mad) = self.machine.poll_transmit(self.now) {
            said += 1;
            assert!(said <= MOST_ANSWERS, "it does not stop talking");
            assert_eq!(Mad::parse(&mad.emit()), Ok(mad));
            assert_eq!(mad.message.local_id(), LOCAL);
        }
        while self.lookup.poll_transmit(self.now).is_some() {}
        while self.inquiry.poll_transmit(self.now).is_some() {}
        let _ = self.lookup.poll_event();
        while let Some(event) = self.machine.poll_event() {
            self.told.push(event);
            self.check_told();
        }
        if self.machine.state() == ConnectionState::Over {
            assert!(self.machine.is_over());
            assert_eq!(self.machine.poll_timeout(), None);
        }
    }

    /// Each thing once, and nothing after the end.
    fn check_told(&self) {
        let told = match &self.told[..] {
            [ConnectionEvent::Response(_), rest @ ..] if self.machine.is_active() => rest,
            [ConnectionEvent::Established { .. }, rest @ ..] if !self.machine.is_active() => rest,
            whole => whole,
        };
        assert!(
            matches!(
                told,
                [] | [ConnectionEvent::Rejected { .. }
                    | ConnectionEvent::Unreachable
                    | ConnectionEvent::Disconnected]
                    | [ConnectionEvent::Disconnected, ConnectionEvent::TimewaitExit]
            ),
            "{:?}",
            self.told
        );
    }

    /// When nothing comes any more, a machine waits for its user or ends; one that was closed ends.
    fn settle(&mut self) {
        self.silence();
        assert!(matches!(
            self.machine.state(),
            ConnectionState::ReqRcvd
                | ConnectionState::RepRcvd
                | ConnectionState::Established
                | ConnectionState::DreqRcvd
                | ConnectionState::Over
        ));
        self.machine.close(self.now);
        self.silence();
        assert!(self.machine.is_over());
        assert!(self.lookup.is_over());
        let _ = self.inquiry.answer(self.now, SidrRep::default());
        self.silence();
        assert!(self.inquiry.is_over());
    }

    fn silence(&mut self) {
        for _ in 0..MOST_TIMEOUTS {
            self.drain();
            let timers = [
                self.machine.poll_timeout(),
                self.lookup.poll_timeout(),
                self.inquiry.poll_timeout(),
            ];
            let Some(at) = timers.into_iter().flatten().min() else {
                return;
            };
            self.wait(at.saturating_since(self.now).as_nanos() as u64);
        }
        panic!("still a timer after {MOST_TIMEOUTS} timeouts");
    }
}

/// A message that comes close enough to what is expected to have an effect.
fn message(u: &mut Unstructured<'_>) -> Result<Message> {
    let choice = u8::arbitrary(u)?;
    let bits = u8::arbitrary(u)?;
    let local_id = if bits & 7 == 7 { 0 } else { PEER };
    let remote_id = if bits >> 3 & 7 == 7 { 0 } else { LOCAL };
    let concerning = match bits >> 6 {
        0 => Concerning::Req,
        1 => Concerning::Rep,
        _ => Concerning::Other,
    };
    Ok(match choice % 9 {
        0 => Message::Req(Req {
            local_id,
            ca_guid: PEER_GUID,
            ..Req::default()
        }),
        1 => Message::Rep(Rep {
            local_id: local_id.wrapping_add(u32::from(bits >> 6 == 3)),
            remote_id,
            qpn: PEER_QPN,
            ca_guid: PEER_GUID,
            ..Rep::default()
        }),
        2 => Message::Rtu(Rtu {
            local_id,
            remote_id,
            ..Rtu::default()
        }),
        3 => Message::Mra(Mra {
            local_id,
            remote_id,
            concerning,
            service_timeout: u8::arbitrary(u)? & 31,
            ..Mra::default()
        }),
        4 => {
            let mut rej = Rej {
                local_id,
                remote_id,
                concerning,
                reason: RejReason(u16::from(u8::arbitrary(u)? & 31)),
                ..Rej::default()
            };
            rej.info[..8].copy_from_slice(&PEER_GUID.to_be_bytes());
            Message::Rej(rej)
        }
        5 => Message::Dreq(Dreq {
            local_id,
            remote_id,
            remote_qpn: LOCAL_QPN + u32::from(bits >> 6 == 3),
            ..Dreq::default()
        }),
        6 => Message::Drep(Drep {
            local_id,
            remote_id,
            ..Drep::default()
        }),
        7 => Message::SidrReq(SidrReq {
            request_id: u32::from(bits >> 6 == 3),
            ..SidrReq::default()
        }),
        _ => Message::SidrRep(SidrRep {
            request_id: remote_id,
            ..SidrRep::default()
        }),
    })
}
