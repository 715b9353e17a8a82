//! What messages of the peer do to a connection.
//!
//! Messages are lost, come twice and overtake each other, so each of them has an answer in each state: it moves the
//! connection on, or it is a repetition and gets what the first one got, or it is too late and dropped.

use adverb_wire::cm::{Concerning, Drep, Dreq, Mad, Message, Mra, Rej, Rep, Req, Rtu};

use super::wait::code_ns;
use super::{CmDrop, Connection, ConnectionEvent, ConnectionState, answer_stray};
use crate::time::Instant;

impl Connection {
    /// A message for this connection: one to its ID, a repetition of its REQ, or a REJ of a peer that gave up
    /// ([`Rej::gives_up`]). Anything else is an error and changes nothing.
    pub fn handle(&mut self, now: Instant, mad: &Mad) -> Result<(), CmDrop> {
        let message = &mad.message;
        if message.remote_id().is_some_and(|id| id != self.local_id) && !self.is_given_up_by(mad) {
            return Err(CmDrop::stranger(message));
        }
        match message {
            Message::Req(req) => self.on_req(mad, req),
            Message::Rep(rep) => self.on_rep(mad, rep),
            Message::Rtu(rtu) => self.on_rtu(mad, rtu),
            Message::Mra(mra) => self.on_mra(now, mad, mra),
            Message::Rej(rej) => self.on_rej(now, mad, rej),
            Message::Dreq(dreq) => self.on_dreq(now, mad, dreq),
            Message::Drep(_) => self.on_drep(now, mad),
            Message::SidrReq(_) | Message::SidrRep(_) => Err(CmDrop::kind(message)),
        }
    }

    /// Whether this is the REJ of a peer that never learnt our ID.
    fn is_given_up_by(&self, mad: &Mad) -> bool {
        let Message::Rej(rej) = &mad.message else {
            return false;
        };
        rej.remote_id == 0
            && rej
                .gives_up()
                .is_some_and(|guid| Some(guid) == self.remote_guid())
            && self.is_from_peer(mad)
    }

    fn is_from_peer(&self, mad: &Mad) -> bool {
        self.remote_id == Some(mad.message.local_id())
    }

    const fn untimely(&self, mad: &Mad) -> CmDrop {
        CmDrop::State {
            message: mad.message.name(),
            state: self.state,
        }
    }

    /// The same REQ again: the peer has not heard our answer, or there is none yet.
    fn on_req(&mut self, mad: &Mad, req: &Req) -> Result<(), CmDrop> {
        if self.active || !self.is_from_peer(mad) || req.ca_guid != self.req.ca_guid {
            return Err(CmDrop::stranger(&mad.message));
        }
        match self.state {
            ConnectionState::ReqRcvd => self.say_wait(Concerning::Req),
            ConnectionState::RepSent | ConnectionState::Refused => self.say_again(),
            _ => return Err(self.untimely(mad)),
        }
        Ok(())
    }

    fn on_rep(&mut self, mad: &Mad, rep: &Rep) -> Result<(), CmDrop> {
        if !self.active {
            return Err(CmDrop::stranger(&mad.message));
        }
        if self.state == ConnectionState::ReqSent {
            self.remote_id = Some(rep.local_id);
            self.rep = Some(*rep);
            self.state = ConnectionState::RepRcvd;
            self.said = None;
            self.wait.stop();
            self.events.push_back(ConnectionEvent::Response(*rep));
            return Ok(());
        }
        if !self.is_from_peer(mad) {
            // A second answer, because a copy of our REQ arrived late and was taken for a new one; or an answer to
            // what we gave up. The sender waits for an RTU that will never come, and so is told.
            self.out.extend(answer_stray(mad));
            return Ok(());
        }
        match self.state {
            ConnectionState::RepRcvd => self.say_wait(Concerning::Rep),
            // Our RTU, or our REJ, was lost.
            ConnectionState::Established | ConnectionState::Refused => self.say_again(),
            _ => return Err(self.untimely(mad)),
        }
        Ok(())
    }

    fn on_rtu(&mut self, mad: &Mad, rtu: &Rtu) -> Result<(), CmDrop> {
        if !self.is_from_peer(mad) {
            return Err(CmDrop::stranger(&mad.message));
        }
        match self.state {
            ConnectionState::RepSent => self.establish(rtu.private),
            ConnectionState::Established if self.probing => {
                self.probing = false;
                self.said = None;
                self.wait.stop();
            }
            _ => return Err(self.untimely(mad)),
        }
        Ok(())
    }

    fn on_mra(&mut self, now: Instant, mad: &Mad, mra: &Mra) -> Result<(), CmDrop> {
        match (self.state, mra.concerning) {
            // Who answers is not settled before the REP; should there be none, the REJ has the ID.
            (ConnectionState::ReqSent, Concerning::Req) => self.remote_id = Some(mra.local_id),
            (ConnectionState::RepSent, Concerning::Rep) => {
                if !self.is_from_peer(mad) {
                    return Err(CmDrop::stranger(&mad.message));
                }
            }
            _ => return Err(self.untimely(mad)),
        }
        self.wait.extend(now, code_ns(mra.service_timeout));
        Ok(())
    }

    fn on_rej(&mut self, now: Instant, mad: &Mad, rej: &Rej) -> Result<(), CmDrop> {
        // Who refuses a REQ may have an ID or none.
        if self.state != ConnectionState::ReqSent && !self.is_from_peer(mad) {
            return Err(CmDrop::stranger(&mad.message));
        }
        match self.state {
            ConnectionState::ReqSent
            | ConnectionState::ReqRcvd
            | ConnectionState::RepSent
            | ConnectionState::RepRcvd => {
                self.out.clear();
                self.end(Some(ConnectionEvent::Rejected {
                    reason: rej.reason,
                    private: rej.private,
                }));
            }
            // The peer has given up on our RTU, or ended what it took for half a connection. It waits for nothing.
            ConnectionState::Established => {
                self.peer_is_gone = true;
                self.peer_is_done();
            }
            ConnectionState::DreqRcvd => self.peer_is_gone = true,
            ConnectionState::DreqSent => self.disconnected(now),
            ConnectionState::Refused => self.end(None),
            ConnectionState::Timewait | ConnectionState::Over => return Err(self.untimely(mad)),
        }
        Ok(())
    }

    fn on_dreq(&mut self, now: Instant, mad: &Mad, dreq: &Dreq) -> Result<(), CmDrop> {
        if !self.is_from_peer(mad) {
            return Err(CmDrop::stranger(&mad.message));
        }
        if let Some(expected) = self.local_qpn()
            && dreq.remote_qpn != expected
        {
            return Err(CmDrop::QueuePair {
                given: dreq.remote_qpn,
                expected,
            });
        }
        match self.state {
            ConnectionState::RepSent | ConnectionState::RepRcvd | ConnectionState::Established => {
                self.dreq_tid = mad.tid;
                self.peer_is_done();
            }
            // Both are done at once. Our user has said so, so there is nothing to wait for.
            ConnectionState::DreqSent => {
                self.say_drep(mad.tid, [0; Drep::PRIVATE]);
                self.disconnected(now);
            }
            ConnectionState::Timewait | ConnectionState::Refused | ConnectionState::Over => {
                self.repeat_drep(mad);
            }
            ConnectionState::ReqSent | ConnectionState::ReqRcvd | ConnectionState::DreqRcvd => {
                return Err(self.untimely(mad));
            }
        }
        Ok(())
    }

    /// Our DREP was lost, or none was needed as far as we knew.
    fn repeat_drep(&mut self, mad: &Mad) {
        match self.said {
            Some(said) if matches!(said.message, Message::Drep(_)) && said.tid == mad.tid => {
                self.out.push(said);
            }
            _ => self.out.extend(answer_stray(mad)),
        }
    }

    fn on_drep(&mut self, now: Instant, mad: &Mad) -> Result<(), CmDrop> {
        if !self.is_from_peer(mad) {
            return Err(CmDrop::stranger(&mad.message));
        }
        if self.state != ConnectionState::DreqSent {
            return Err(self.untimely(mad));
        }
        self.said = None;
        self.disconnected(now);
        Ok(())
    }
}
