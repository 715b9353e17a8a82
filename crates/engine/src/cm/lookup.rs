//! Service ID resolution: both ends of a SIDR exchange.

use adverb_wire::cm::{Mad, Message, SidrRep, SidrReq};

use super::outbox::Outbox;
use super::wait::{Passed, Wait, code_ns};
use super::{CmDrop, CmError, MAX_CM_RETRIES, RESPONSE_TIMEOUT};
use crate::time::Instant;

/// How a [`Lookup`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per lookup, and it is handed on at once"
)]
pub enum LookupEvent {
    /// The queue pair is known, or the status says why not.
    Answer(SidrRep),
    /// Nobody answers.
    Unreachable,
}

/// A question of ours for the queue pair of a service.
#[derive(Clone, Debug)]
pub struct Lookup {
    question: Mad,
    request_id: u32,
    wait: Wait,
    out: Outbox,
    event: Option<LookupEvent>,
}

impl Lookup {
    #[must_use]
    pub fn new(now: Instant, request_id: u32, tid: u64, req: SidrReq) -> Self {
        let question = Mad {
            tid,
            message: Message::SidrReq(SidrReq { request_id, ..req }),
        };
        let mut out = Outbox::default();
        out.push(question);
        Self {
            question,
            request_id,
            wait: Wait::start(now, code_ns(RESPONSE_TIMEOUT), MAX_CM_RETRIES),
            out,
            event: None,
        }
    }

    pub fn handle(&mut self, _now: Instant, mad: &Mad) -> Result<(), CmDrop> {
        let Message::SidrRep(rep) = &mad.message else {
            return Err(CmDrop::kind(&mad.message));
        };
        // Without a deadline the question is settled, and this answer comes a second time.
        if rep.request_id != self.request_id || self.wait.deadline().is_none() {
            return Err(CmDrop::stranger(&mad.message));
        }
        self.settle(LookupEvent::Answer(*rep));
        Ok(())
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.wait.pass(now) {
            None => {}
            Some(Passed::Repeat) => self.out.push(self.question),
            Some(Passed::GiveUp) => self.settle(LookupEvent::Unreachable),
        }
    }

    fn settle(&mut self, event: LookupEvent) {
        self.event = Some(event);
        self.wait.stop();
        self.out.clear();
    }

    pub fn poll_transmit(&mut self, now: Instant) -> Option<Mad> {
        let mad = self.out.pop()?;
        self.wait.sent(now);
        Some(mad)
    }

    pub fn poll_event(&mut self) -> Option<LookupEvent> {
        self.event.take()
    }

    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.wait.deadline()
    }

    /// Whether the question is settled and its event taken.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.wait.deadline().is_none() && self.event.is_none()
    }

    #[must_use]
    pub const fn request_id(&self) -> u32 {
        self.request_id
    }
}

/// A question of somebody else. However often it is asked, the user sees it once and answers once.
#[derive(Clone, Debug)]
pub struct Inquiry {
    tid: u64,
    req: SidrReq,
    answer: Option<Mad>,
    /// How long the answer is kept for repeated questions.
    wait: Wait,
    out: Outbox,
}

impl Inquiry {
    #[must_use]
    pub fn requested(_now: Instant, tid: u64, req: &SidrReq) -> Self {
        Self {
            tid,
            req: *req,
            answer: None,
            wait: Wait::default(),
            out: Outbox::default(),
        }
    }

    /// Answers; the IDs of request and service are filled in.
    pub fn answer(&mut self, now: Instant, rep: SidrRep) -> Result<(), CmError> {
        /// Intervals of the asker; it hears an answer or goes on asking.
        const REPETITIONS: u64 = 4;
        if self.answer.is_some() {
            return Err(CmError::Answered);
        }
        let answer = Mad {
            tid: self.tid,
            message: Message::SidrRep(SidrRep {
                request_id: self.req.request_id,
                service_id: self.req.service_id,
                ..rep
            }),
        };
        self.answer = Some(answer);
        self.wait = Wait::once(now, REPETITIONS * code_ns(RESPONSE_TIMEOUT));
        self.out.push(answer);
        Ok(())
    }

    /// The question again. It gets the same answer; while the user thinks, none.
    pub fn handle(&mut self, _now: Instant, mad: &Mad) -> Result<(), CmDrop> {
        let Message::SidrReq(req) = &mad.message else {
            return Err(CmDrop::kind(&mad.message));
        };
        if (req.request_id, req.service_id) != (self.req.request_id, self.req.service_id) {
            return Err(CmDrop::stranger(&mad.message));
        }
        self.out.extend(self.answer);
        Ok(())
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        // There is nothing to repeat by ourselves.
        let _over = self.wait.pass(now);
    }

    pub fn poll_transmit(&mut self, _now: Instant) -> Option<Mad> {
        self.out.pop()
    }

    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.wait.deadline()
    }

    /// Whether the user has answered.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether it was answered so long ago that nobody repeats the question.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.answer.is_some() && self.wait.deadline().is_none() && self.out.is_empty()
    }

    #[must_use]
    pub const fn request(&self) -> &SidrReq {
        &self.req
    }
}
