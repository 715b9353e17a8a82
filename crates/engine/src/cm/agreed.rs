//! What a REQ and its REP mean for the two queue pairs. Each side says what *it* has, so most numbers cross over.

use adverb_wire::Psn;
use adverb_wire::cm::{CmTransport, Rep, Req};

/// The local ACK timeout code of a path: twice the life of a packet and the time that the target takes to answer,
/// rounded up to a power of two where the sum needs it.
#[must_use]
pub const fn ack_timeout(packet_life: u8, ack_delay: u8) -> u8 {
    const LARGEST: u8 = 31;
    let there_and_back = packet_life.saturating_add(1);
    // The larger of two powers of two; one more if the smaller one is not negligible beside it.
    let sum = if there_and_back >= ack_delay {
        there_and_back.saturating_add((ack_delay >= there_and_back - 1) as u8)
    } else {
        ack_delay.saturating_add((there_and_back >= ack_delay - 1) as u8)
    };
    if sum > LARGEST { LARGEST } else { sum }
}

/// READs and atomics that may be under way, as an event shows them to the application: already from its own point of
/// view, so that they can be given back in its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depths {
    pub responder_resources: u8,
    pub initiator_depth: u8,
}

impl Depths {
    /// In the event that a REQ causes.
    #[must_use]
    pub const fn shown_for_req(req: &Req) -> Self {
        Self {
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
        }
    }

    /// In the event that a REP causes.
    #[must_use]
    pub const fn shown_for_rep(rep: &Rep) -> Self {
        Self {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
        }
    }
}

/// Attributes of one side's queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    pub dest_qpn: u32,
    /// Path MTU code.
    pub path_mtu: u8,
    /// The first number to expect.
    pub rq_psn: Psn,
    /// The first number to send.
    pub sq_psn: Psn,
    /// READs and atomics of ours that may be outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer that we answer at a time.
    pub max_dest_rd_atomic: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// 0, the longest wait there is, because that is what Linux sets.
    pub min_rnr_timer: u8,
    /// Local ACK timeout code.
    pub timeout: u8,
}

impl Agreed {
    /// For the side that sent the REQ.
    #[must_use]
    pub const fn active(req: &Req, rep: &Rep) -> Self {
        let life = req.primary.ack_timeout.saturating_sub(1);
        Self {
            dest_qpn: accepted_qpn(req, rep),
            path_mtu: req.path_mtu,
            rq_psn: rep.psn,
            sq_psn: req.psn,
            max_rd_atomic: rep.responder_resources,
            max_dest_rd_atomic: rep.initiator_depth,
            retry_cnt: req.retry_count,
            rnr_retry: rep.rnr_retry,
            min_rnr_timer: 0,
            timeout: ack_timeout(life, rep.target_ack_delay),
        }
    }

    /// For the side that sent the REP.
    #[must_use]
    pub const fn passive(req: &Req, rep: &Rep) -> Self {
        Self {
            dest_qpn: req.qpn,
            path_mtu: req.path_mtu,
            rq_psn: req.psn,
            sq_psn: rep.psn,
            max_rd_atomic: rep.initiator_depth,
            max_dest_rd_atomic: rep.responder_resources,
            retry_cnt: req.retry_count,
            rnr_retry: req.rnr_retry,
            min_rnr_timer: 0,
            timeout: req.primary.ack_timeout,
        }
    }
}

/// The queue pair that a REP offers.
pub(super) const fn accepted_qpn(req: &Req, rep: &Rep) -> u32 {
    match req.transport {
        CmTransport::Xrc => rep.eecn,
        _ => rep.qpn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_covers_the_way_and_the_target() {
        // What Linux computes on RoCE.
        assert_eq!(ack_timeout(16, 15), 17);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(16, 17), 18);
        assert_eq!(ack_timeout(16, 18), 19);
        assert_eq!(ack_timeout(16, 20), 20);
        assert_eq!(ack_timeout(31, 31), 31);
        assert_eq!(ack_timeout(0, 0), 2);
        assert_eq!(ack_timeout(255, 255), 31);
    }

    /// Trap 52.
    #[test]
    fn depths_and_rnr_retries_cross_over() {
        let req = Req {
            qpn: 0x11,
            psn: Psn::new(100),
            responder_resources: 3,
            initiator_depth: 5,
            rnr_retry: 6,
            retry_count: 4,
            path_mtu: 3,
            ..Req::default()
        };
        // The passive side sees the numbers as its own and may give them back as they are.
        let shown = Depths::shown_for_req(&req);
        assert_eq!((shown.responder_resources, shown.initiator_depth), (5, 3));
        let rep = Rep {
            qpn: 0x22,
            psn: Psn::new(200),
            responder_resources: shown.responder_resources,
            initiator_depth: shown.initiator_depth,
            rnr_retry: 2,
            ..Rep::default()
        };
        let back = Depths::shown_for_rep(&rep);
        assert_eq!((back.responder_resources, back.initiator_depth), (3, 5));

        let (active, passive) = (Agreed::active(&req, &rep), Agreed::passive(&req, &rep));
        assert_eq!((active.max_rd_atomic, active.max_dest_rd_atomic), (5, 3));
        assert_eq!((passive.max_rd_atomic, passive.max_dest_rd_atomic), (3, 5));
        assert_eq!((active.rnr_retry, passive.rnr_retry), (2, 6));
        assert_eq!((active.retry_cnt, passive.retry_cnt), (4, 4));
        assert_eq!((active.rq_psn, active.sq_psn), (rep.psn, req.psn));
        assert_eq!((passive.rq_psn, passive.sq_psn), (req.psn, rep.psn));
        assert_eq!((active.dest_qpn, passive.dest_qpn), (0x22, 0x11));
    }
}
