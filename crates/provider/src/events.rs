//! Asynchronous events: `ibv_get_async_event(3)`, `ibv_ack_async_event(3)`.

use std::ffi::c_int;
use std::sync::Arc;

use adverb_abi::types::*;
use adverb_nic::{Source, Step, Waiter};

use crate::call;
use crate::cq::Cq;
use crate::errno::Error;
use crate::handle::{find, find_context, not_null};
use crate::qp::Qp;
use crate::srq::Srq;
use crate::waiting::{self, Asleep};

/// `ibv_get_async_event(3)`. Waits, or fails with EAGAIN, as the program has set up the context's descriptor.
/// A cancellation point.
///
/// # Safety
/// `context` is NULL or a context, `event` is NULL or can be written.
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    thread_local! {
        static ASLEEP: Asleep<Arc<adverb_nic::Context>> = const { Asleep::new(None) };
    }
    let find = || -> Result<Arc<adverb_nic::Context>, Error> {
        // SAFETY: as our caller promises.
        let context = unsafe { find_context(context) }?;
        not_null(event, "place for the event")?;
        Ok(Arc::clone(&context.nic))
    };
    let look = |on: &Arc<adverb_nic::Context>, _: &mut Waiter| {
        let got = match on.next_async_event()? {
            Step::Got(got) => got,
            Step::Sleep(sleep) => return Ok(Step::Sleep(sleep)),
        };
        let mut out = ibv_async_event::zeroed();
        out.event_type = got.kind as u32;
        // The tokens are the pointers that C knows the objects by.
        out.element = match got.source {
            Source::Cq(token) => ibv_async_event_element {
                cq: token as *mut ibv_cq,
            },
            Source::Qp(token) => ibv_async_event_element {
                qp: token as *mut ibv_qp,
            },
            Source::Srq(token) => ibv_async_event_element {
                srq: token as *mut ibv_srq,
            },
            Source::Device => ibv_async_event_element {
                port_num: crate::query::PORT as c_int,
            },
        };
        // SAFETY: not NULL, so the caller says that it can be written.
        unsafe { *event = out };
        Ok(Step::Got(()))
    };
    // SAFETY: this function may be unwound, and pointers need no drop.
    unsafe { waiting::minus_one("ibv_get_async_event", &ASLEEP, find, look) }
}

/// `ibv_ack_async_event(3)`. The object of the event can be destroyed afterwards.
///
/// # Safety
/// `event` is NULL or one that `ibv_get_async_event` has filled in.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let ack = || -> Result<(), Error> {
        not_null(event, "event")?;
        // SAFETY: not NULL, so the caller says that it can be read.
        let event = unsafe { &*event };
        // SAFETY: which member of the union counts follows from the kind of event; the object is alive, because its
        // destruction waits for this call.
        let (context, source) = unsafe {
            match event.event_type {
                IBV_EVENT_CQ_ERR => {
                    let cq = event.element.cq;
                    (
                        find::<Cq>(cq.cast()).map(|_| (*cq).context)?,
                        Source::Cq(cq as u64),
                    )
                }
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_PATH_MIG
                | IBV_EVENT_PATH_MIG_ERR
                | IBV_EVENT_QP_LAST_WQE_REACHED => {
                    let qp = event.element.qp;
                    (
                        find::<Qp>(qp.cast()).map(|_| (*qp).context)?,
                        Source::Qp(qp as u64),
                    )
                }
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                    let srq = event.element.srq;
                    (
                        find::<Srq>(srq).map(|_| (*srq).context)?,
                        Source::Srq(srq as u64),
                    )
                }
                // Events of the device or its port hold nothing up.
                _ => return Ok(()),
            }
        };
        // SAFETY: the context of an object that is alive.
        unsafe { find_context(context) }?
            .nic
            .ack_async_event(source);
        Ok(())
    };
    call::nothing("ibv_ack_async_event", ack);
}
