//! What is said to those whom no machine belongs to. It is made of the question alone, so nothing has to be kept.

use adverb_wire::cm::{
    Concerning, Drep, Mad, Message, Rej, RejReason, SidrRep, SidrReq, SidrStatus,
};

/// Turns a REQ or SIDR_REQ away that no application will see: because nobody listens
/// ([`RejReason::INVALID_SERVICE_ID`]), or for another reason. `None` for any other message.
#[must_use]
pub fn refuse(request: &Mad, reason: RejReason) -> Option<Mad> {
    let message = match &request.message {
        Message::Req(req) => Message::Rej(Rej {
            remote_id: req.local_id,
            concerning: Concerning::Req,
            reason,
            ..Rej::default()
        }),
        Message::SidrReq(req) => Message::SidrRep(refused_lookup(req, reason)),
        _ => return None,
    };
    Some(Mad {
        tid: request.tid,
        message,
    })
}

fn refused_lookup(req: &SidrReq, reason: RejReason) -> SidrRep {
    SidrRep {
        request_id: req.request_id,
        service_id: req.service_id,
        status: match reason {
            RejReason::INVALID_SERVICE_ID => SidrStatus::UNSUPPORTED,
            _ => SidrStatus::REJECT,
        },
        ..SidrRep::default()
    }
}

/// Answers a message to an ID that nobody has (any more), if it deserves an answer: a DREQ whose DREP was lost and
/// whose connection is forgotten here, and a REP to somebody who no longer wants it.
#[must_use]
pub fn answer_stray(stray: &Mad) -> Option<Mad> {
    let message = match &stray.message {
        Message::Dreq(dreq) => Message::Drep(Drep {
            local_id: dreq.remote_id,
            remote_id: dreq.local_id,
            ..Drep::default()
        }),
        Message::Rep(rep) => Message::Rej(Rej {
            local_id: rep.remote_id,
            remote_id: rep.local_id,
            concerning: Concerning::Rep,
            reason: RejReason::INVALID_COMM_ID,
            ..Rej::default()
        }),
        _ => return None,
    };
    Some(Mad {
        tid: stray.tid,
        message,
    })
}
