//! One end of a connection: what its user may do, and what time does. (What messages do: `receive`.)

use std::collections::VecDeque;

use adverb_wire::cm::{Concerning, Drep, Dreq, Mad, Message, Mra, Rej, RejReason, Rep, Req, Rtu};

use super::agreed::accepted_qpn;
use super::outbox::Outbox;
use super::wait::{Passed, Wait, asked_ns, asked_way_ns, code_ns, refused_ns};
use super::{CmError, THINKING_TIME};
use crate::time::Instant;

/// Where a connection stands. The specification's states; that an MRA has come or gone is no state here, because it
/// only moves a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectionState {
    /// Active: waits for a REP.
    ReqSent,
    /// Passive: its user thinks about the REQ.
    ReqRcvd,
    /// Passive: waits for the RTU, or for data.
    RepSent,
    /// Active: its user thinks about the REP.
    RepRcvd,
    Established,
    /// Waits for the DREP.
    DreqSent,
    /// The peer is done; our user has not said so yet.
    DreqRcvd,
    /// It is over, and packets that are still on their way must not meet a new connection of the same queue pairs.
    Timewait,
    /// A REJ was said. It is kept for a while, to be said again to whoever has not heard it.
    Refused,
    Over,
}

/// What the user of a connection is to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// Active: the peer accepts. Nothing goes out until the user says [`Connection::established_by_user`] or
    /// [`Connection::reject`].
    Response(Rep),
    /// Passive: the peer is ready.
    Established { private: [u8; Rtu::PRIVATE] },
    /// There will be no connection.
    Rejected {
        reason: RejReason,
        private: [u8; Rej::PRIVATE],
    },
    /// The peer does not answer.
    Unreachable,
    /// There is no connection any more. Comes once.
    Disconnected,
    /// Comes after [`ConnectionEvent::Disconnected`]: the queue pair may be connected again.
    TimewaitExit,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) active: bool,
    pub(super) state: ConnectionState,
    pub(super) local_id: u32,
    pub(super) remote_id: Option<u32>,
    /// Of the REQ and of all that follows from it.
    pub(super) tid: u64,
    /// Of the DREQ that waits for our DREP.
    pub(super) dreq_tid: u64,
    pub(super) req: Req,
    pub(super) rep: Option<Rep>,
    /// What was said last and may have to be said again, because no answer comes or because the peer has missed it.
    pub(super) said: Option<Mad>,
    pub(super) wait: Wait,
    /// Established, and the REP has been said again to hear whether the peer still knows.
    pub(super) probing: bool,
    /// Nobody waits for our DREP.
    pub(super) peer_is_gone: bool,
    pub(super) out: Outbox,
    pub(super) events: VecDeque<ConnectionEvent>,
}

impl Connection {
    /// Asks for a connection.
    #[must_use]
    pub fn connect(now: Instant, local_id: u32, tid: u64, req: Req) -> Self {
        let req = Req { local_id, ..req };
        let mut connection = Self::new(true, ConnectionState::ReqSent, local_id, tid, req);
        connection.ask(now, Message::Req(req));
        connection
    }

    /// Somebody asks for a connection.
    #[must_use]
    pub fn requested(_now: Instant, local_id: u32, tid: u64, req: &Req) -> Self {
        let mut connection = Self::new(false, ConnectionState::ReqRcvd, local_id, tid, *req);
        connection.remote_id = Some(req.local_id);
        connection
    }

    fn new(active: bool, state: ConnectionState, local_id: u32, tid: u64, req: Req) -> Self {
        Self {
            active,
            state,
            local_id,
            remote_id: None,
            tid,
            dreq_tid: tid,
            req,
            rep: None,
            said: None,
            wait: Wait::default(),
            probing: false,
            peer_is_gone: false,
            out: Outbox::default(),
            events: VecDeque::new(),
        }
    }

    /// Passive: the user wants the connection. Both IDs of the REP are filled in.
    pub fn accept(&mut self, now: Instant, rep: Rep) -> Result<(), CmError> {
        if self.state != ConnectionState::ReqRcvd {
            return Err(self.refuse_call("accept"));
        }
        let rep = Rep {
            local_id: self.local_id,
            remote_id: self.peer(),
            ..rep
        };
        self.rep = Some(rep);
        self.state = ConnectionState::RepSent;
        self.ask(now, Message::Rep(rep));
        Ok(())
    }

    /// The user does not want the connection (any more). Before a REP or an RTU only; who has asked and got no answer
    /// can only say that he has stopped waiting, so the reason is [`RejReason::TIMEOUT`] then, whatever is given.
    pub fn reject(
        &mut self,
        now: Instant,
        reason: RejReason,
        private: [u8; Rej::PRIVATE],
    ) -> Result<(), CmError> {
        match self.state {
            ConnectionState::ReqSent => self.say_no(now, RejReason::TIMEOUT, private),
            ConnectionState::ReqRcvd | ConnectionState::RepSent | ConnectionState::RepRcvd => {
                self.say_no(now, reason, private);
            }
            _ => return Err(self.refuse_call("reject")),
        }
        Ok(())
    }

    /// Active: the user has its queue pair ready.
    pub fn established_by_user(&mut self, _now: Instant) -> Result<(), CmError> {
        if self.state != ConnectionState::RepRcvd {
            return Err(self.refuse_call("establish"));
        }
        self.state = ConnectionState::Established;
        self.say(Message::Rtu(Rtu {
            local_id: self.local_id,
            remote_id: self.peer(),
            ..Rtu::default()
        }));
        Ok(())
    }

    /// Passive: data has arrived, so the peer is ready, whatever became of its RTU.
    pub fn notify_established(&mut self, _now: Instant) -> Result<(), CmError> {
        match self.state {
            ConnectionState::RepSent => {
                self.establish([0; Rtu::PRIVATE]);
                Ok(())
            }
            ConnectionState::Established => Ok(()),
            _ => Err(self.refuse_call("notify")),
        }
    }

    /// The user is done with the connection, or takes note that the peer is. Where it is over already nothing happens.
    pub fn disconnect(
        &mut self,
        now: Instant,
        private: [u8; Dreq::PRIVATE],
    ) -> Result<(), CmError> {
        match self.state {
            ConnectionState::ReqSent | ConnectionState::ReqRcvd => {
                return Err(self.refuse_call("disconnect"));
            }
            // Half a connection: the other side may be ready or may not, and hears of the end in either case.
            ConnectionState::RepSent | ConnectionState::RepRcvd => {
                self.say_no(now, RejReason::CONSUMER_DEFINED, [0; Rej::PRIVATE]);
                self.events.push_back(ConnectionEvent::Disconnected);
            }
            ConnectionState::Established => {
                self.state = ConnectionState::DreqSent;
                let dreq = Dreq {
                    local_id: self.local_id,
                    remote_id: self.peer(),
                    remote_qpn: self.remote_qpn().unwrap_or_default(),
                    private,
                };
                self.ask(now, Message::Dreq(dreq));
            }
            ConnectionState::DreqRcvd => {
                if !self.peer_is_gone {
                    let mut field = [0; Drep::PRIVATE];
                    let (data, _) = field.split_at_mut(Dreq::PRIVATE);
                    data.copy_from_slice(&private);
                    self.say_drep(self.dreq_tid, field);
                }
                self.enter_timewait(now);
            }
            ConnectionState::DreqSent
            | ConnectionState::Timewait
            | ConnectionState::Refused
            | ConnectionState::Over => {}
        }
        Ok(())
    }

    /// Somebody has asked for a connection of the peer's queue pair, which is connected with ours: the peer has
    /// forgotten, or it was not the peer. The REP said again tells: whoever knows the connection answers with an RTU,
    /// and then nothing has happened; whoever does not refuses it or is silent, and then it ends.
    ///
    /// Only the side that was asked has a message that wants an answer; the other side waits for its queue pair to
    /// fail. While an answer is due there is no second question, so the newcomer cannot make us talk.
    pub fn probe(&mut self, now: Instant) {
        if let (ConnectionState::Established, false, false, Some(rep)) =
            (self.state, self.active, self.probing, self.rep)
        {
            self.probing = true;
            self.ask(now, Message::Rep(rep));
        }
    }

    /// The peer's process has died: there is nobody to talk to.
    pub fn peer_gone(&mut self, now: Instant) {
        self.out.clear();
        match self.state {
            ConnectionState::ReqSent
            | ConnectionState::ReqRcvd
            | ConnectionState::RepSent
            | ConnectionState::RepRcvd => self.end(Some(ConnectionEvent::Unreachable)),
            ConnectionState::Established => {
                self.peer_is_gone = true;
                self.peer_is_done();
            }
            ConnectionState::DreqRcvd => self.peer_is_gone = true,
            ConnectionState::DreqSent => self.disconnected(now),
            ConnectionState::Refused => self.end(None),
            ConnectionState::Timewait | ConnectionState::Over => {}
        }
    }

    /// The user goes away and leaves the rest to us: says whatever the state asks for. The machine is to be driven on
    /// until it is over; nobody needs its events any more.
    pub fn close(&mut self, now: Instant) {
        // What cannot be rejected can be disconnected, and the other way round.
        let nothing = [0; Rej::PRIVATE];
        if self
            .reject(now, RejReason::CONSUMER_DEFINED, nothing)
            .is_err()
        {
            let disconnected = self.disconnect(now, [0; Dreq::PRIVATE]);
            debug_assert!(disconnected.is_ok(), "refused in {:?}", self.state);
        }
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.wait.pass(now) {
            None => {}
            Some(Passed::Repeat) => self.say_again(),
            Some(Passed::GiveUp) => match self.state {
                ConnectionState::ReqSent | ConnectionState::RepSent => {
                    self.say_no(now, RejReason::TIMEOUT, [0; Rej::PRIVATE]);
                    self.events.push_back(ConnectionEvent::Unreachable);
                }
                ConnectionState::DreqSent => self.disconnected(now),
                // Only a probe has a deadline here. As a user who is done would say it.
                ConnectionState::Established => {
                    let ended = self.disconnect(now, [0; Dreq::PRIVATE]);
                    debug_assert!(ended.is_ok(), "refused in {:?}", self.state);
                }
                ConnectionState::Timewait => self.end(Some(ConnectionEvent::TimewaitExit)),
                _ => self.end(None),
            },
        }
    }

    /// The next message for the peer.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Mad> {
        let mad = self.out.pop()?;
        if self.said == Some(mad) {
            self.wait.sent(now);
        }
        Some(mad)
    }

    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// When [`Connection::handle_timeout`] is to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.wait.deadline()
    }

    /// Whether all is said and done, so that the machine may be forgotten.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == ConnectionState::Over && self.out.is_empty() && self.events.is_empty()
    }

    #[must_use]
    pub const fn state(&self) -> ConnectionState {
        self.state
    }

    /// Whether this is the side that asked.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.active
    }

    #[must_use]
    pub const fn local_id(&self) -> u32 {
        self.local_id
    }

    #[must_use]
    pub const fn remote_id(&self) -> Option<u32> {
        self.remote_id
    }

    /// Our queue pair, as the peer was told.
    #[must_use]
    pub const fn local_qpn(&self) -> Option<u32> {
        match &self.rep {
            _ if self.active => Some(self.req.qpn),
            Some(rep) => Some(accepted_qpn(&self.req, rep)),
            None => None,
        }
    }

    /// The peer's queue pair.
    #[must_use]
    pub const fn remote_qpn(&self) -> Option<u32> {
        match &self.rep {
            _ if !self.active => Some(self.req.qpn),
            Some(rep) => Some(accepted_qpn(&self.req, rep)),
            None => None,
        }
    }

    /// The GUID of the peer's device.
    #[must_use]
    pub const fn remote_guid(&self) -> Option<u64> {
        match &self.rep {
            _ if !self.active => Some(self.req.ca_guid),
            Some(rep) => Some(rep.ca_guid),
            None => None,
        }
    }

    /// The REQ, ours or the peer's.
    #[must_use]
    pub const fn req(&self) -> &Req {
        &self.req
    }

    /// The REP, ours or the peer's.
    #[must_use]
    pub const fn rep(&self) -> Option<&Rep> {
        self.rep.as_ref()
    }

    /// The peer's ID in messages. 0, "unknown", is legal in the one message that can be said so early: a REJ.
    fn peer(&self) -> u32 {
        self.remote_id.unwrap_or_default()
    }

    const fn refuse_call(&self, call: &'static str) -> CmError {
        CmError::State {
            call,
            state: self.state,
        }
    }

    /// How long the peer may take to answer: what REQ says about its side, and the way there and back. What a peer says
    /// about itself counts within our bounds.
    fn interval_ns(&self) -> u64 {
        let way = self.req.primary.ack_timeout;
        if self.active {
            code_ns(self.req.remote_response_timeout) + code_ns(way)
        } else {
            asked_ns(self.req.local_response_timeout, way)
        }
    }

    /// Says something that wants an answer.
    fn ask(&mut self, now: Instant, message: Message) {
        self.wait = Wait::start(now, self.interval_ns(), self.req.max_cm_retries);
        self.say(message);
    }

    pub(super) fn say(&mut self, message: Message) {
        let mad = Mad {
            tid: self.tid,
            message,
        };
        self.said = Some(mad);
        self.out.push(mad);
    }

    pub(super) fn say_again(&mut self) {
        if let Some(said) = self.said {
            self.out.push(said);
        }
    }

    /// Our user is still thinking about what the peer has said twice.
    pub(super) fn say_wait(&mut self, concerning: Concerning) {
        self.out.push(Mad {
            tid: self.tid,
            message: Message::Mra(Mra {
                local_id: self.local_id,
                remote_id: self.peer(),
                concerning,
                service_timeout: THINKING_TIME,
                ..Mra::default()
            }),
        });
    }

    pub(super) fn say_drep(&mut self, tid: u64, private: [u8; Drep::PRIVATE]) {
        let mad = Mad {
            tid,
            message: Message::Drep(Drep {
                local_id: self.local_id,
                remote_id: self.peer(),
                private,
            }),
        };
        self.said = Some(mad);
        self.out.push(mad);
    }

    /// Says REJ and keeps it for as long as the peer may still repeat what it answers.
    fn say_no(&mut self, now: Instant, reason: RejReason, private: [u8; Rej::PRIVATE]) {
        /// Intervals of the peer; it hears a REJ or goes on asking.
        const REPETITIONS: u64 = 4;
        let concerning = match self.state {
            ConnectionState::ReqRcvd => Concerning::Req,
            ConnectionState::RepRcvd => Concerning::Rep,
            _ => Concerning::Other,
        };
        let mut rej = Rej {
            local_id: self.local_id,
            remote_id: self.peer(),
            concerning,
            reason,
            private,
            ..Rej::default()
        };
        if reason == RejReason::TIMEOUT {
            // It may be all that tells the peer which of its connections is meant.
            let guid = match &self.rep {
                _ if self.active => self.req.ca_guid,
                Some(rep) => rep.ca_guid,
                None => 0,
            };
            let guid = guid.to_be_bytes();
            rej.info_length = guid.len() as u8;
            rej.info.split_at_mut(guid.len()).0.copy_from_slice(&guid);
        }
        self.state = ConnectionState::Refused;
        let kept = REPETITIONS * self.interval_ns();
        self.wait = Wait::once(now, if self.active { kept } else { refused_ns(kept) });
        self.out.clear();
        self.say(Message::Rej(rej));
    }

    /// Passive: the peer is ready.
    pub(super) fn establish(&mut self, private: [u8; Rtu::PRIVATE]) {
        self.state = ConnectionState::Established;
        self.said = None;
        self.wait.stop();
        self.events
            .push_back(ConnectionEvent::Established { private });
    }

    /// The peer has said that it is done, or is dead. Now our user has to say so, too.
    pub(super) fn peer_is_done(&mut self) {
        self.state = ConnectionState::DreqRcvd;
        self.said = None;
        self.wait.stop();
        self.events.push_back(ConnectionEvent::Disconnected);
    }

    /// Both sides are done.
    pub(super) fn disconnected(&mut self, now: Instant) {
        self.events.push_back(ConnectionEvent::Disconnected);
        self.enter_timewait(now);
    }

    fn enter_timewait(&mut self, now: Instant) {
        self.state = ConnectionState::Timewait;
        let way = self.req.primary.ack_timeout;
        let ns = if self.active {
            code_ns(way)
        } else {
            asked_way_ns(way)
        };
        self.wait = Wait::once(now, ns);
    }

    pub(super) fn end(&mut self, event: Option<ConnectionEvent>) {
        self.state = ConnectionState::Over;
        self.said = None;
        self.wait.stop();
        self.events.extend(event);
    }
}
