//! One operation as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::desk::Desk;
use super::line::Place;
use super::table::Turn;
use crate::error::Error;
use crate::poster::{Submit, sealed};
use crate::qp::QpInner;
use crate::request::{Rejected, Request};
use crate::wc::{Completion, OpId};

/// What an operation or a receive comes to: its completion, whose `result` is `Ok`; or why it was refused or has
/// failed, with the buffer. `?` turns that into an [`Error`].
pub type Outcome = Result<Completion, Rejected>;

/// The completion with its buffer, or its error with its buffer.
pub(super) fn outcome(completion: Completion) -> Outcome {
    match completion.result {
        Ok(_) => Ok(completion),
        Err(error) => Err(Rejected {
            error: Error::Completion(error),
            buffer: completion.buffer,
        }),
    }
}

pub(super) fn failed(error: Error) -> Rejected {
    Rejected {
        error,
        buffer: None,
    }
}

/// An operation: posted when first polled, or when there is room in the queue; ready when it is over.
///
/// Dropping it does not take it back: once posted it is the device's, and its buffer is freed with its completion.
#[must_use = "nothing is posted before it is polled"]
pub struct Operation<'a> {
    desk: &'a Desk,
    qp: &'a QpInner,
    step: Step,
}

struct Step {
    /// Not posted yet.
    request: Option<Request>,
    refused: Option<Rejected>,
    /// Posted.
    id: Option<OpId>,
    /// In line for room.
    place: Place,
    /// The idle queue that an earlier poll found, and this one.
    idle: [Option<u64>; 2],
    /// The bytes that the request sends inline.
    #[allow(dead_code, reason = "kept until it is posted")]
    copy: Option<Box<[u8]>>,
}

impl Step {
    fn may_post(&mut self, turn: &Turn, waker: &Waker) -> bool {
        match *turn {
            Turn::Ours => true,
            Turn::Others => false,
            Turn::Idle(now) if self.idle[0] == Some(now) => true,
            Turn::Idle(now) => {
                if self.idle[1] != Some(now) {
                    self.idle[1] = Some(now);
                    waker.wake_by_ref();
                }
                false
            }
        }
    }
}

/// Into a future.
pub(super) struct Later<'a> {
    pub(super) desk: &'a Desk,
    pub(super) qp: &'a QpInner,
}

impl sealed::Sealed for Later<'_> {}

impl<'a> Submit for Later<'a> {
    type Outcome = Operation<'a>;

    fn submit(self, request: Result<Request, Rejected>) -> Operation<'a> {
        let mut copy = None;
        let request = request.map(|mut request| {
            if let Some(bytes) = request.lent() {
                let bytes: Box<[u8]> = bytes.into();
                request.copied(&bytes);
                copy = Some(bytes);
            }
            request
        });
        let mut operation = self.lent(request);
        operation.step.copy = copy;
        operation
    }
}

/// Into a future that borrows the bytes that it sends inline.
pub(super) struct Lent<'a>(pub(super) Later<'a>);

impl sealed::Sealed for Lent<'_> {}

impl<'a> Submit for Lent<'a> {
    type Outcome = Operation<'a>;

    fn submit(self, request: Result<Request, Rejected>) -> Operation<'a> {
        self.0.lent(request)
    }
}

impl<'a> Later<'a> {
    /// The bytes that the request sends inline stay for as long as the future lives.
    fn lent(self, request: Result<Request, Rejected>) -> Operation<'a> {
        let (request, refused) = match request {
            Ok(request) => (Some(request.signaled()), None),
            Err(refused) => (None, Some(refused)),
        };
        Operation {
            desk: self.desk,
            qp: self.qp,
            step: Step {
                request,
                refused,
                id: None,
                place: None,
                idle: [None; 2],
                copy: None,
            },
        }
    }
}

impl Operation<'_> {
    /// Whether the device has it by now: then the peer may see it, even if the future is dropped. `false` again once
    /// the future was ready.
    pub fn is_posted(&self) -> bool {
        self.step.id.is_some()
    }
}

impl Future for Operation<'_> {
    type Output = Outcome;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self { desk, qp, step } = &mut *self;
        assert!(
            step.request.is_some() || step.refused.is_some() || step.id.is_some(),
            "an operation was polled after it was over"
        );
        // In line as soon as it finds no room, so that it keeps its turn while it looks again.
        let waker = step.request.is_some().then(|| cx.waker().clone());
        step.idle[0] = step.idle[1];
        let polled = desk.poll(
            cx,
            step,
            |step, table| {
                if let (Some(_), Some(waker)) = (&step.request, &waker) {
                    let turn = table.turn(qp.num, &step.place);
                    let posted = match step.may_post(&turn, waker) {
                        true => qp.post_if_room(&mut step.request),
                        false => None,
                    };
                    match posted {
                        None => {
                            table.wake_for_room(qp.num, &mut step.place, waker);
                            return None;
                        }
                        Some(Ok(id)) => {
                            table.expect(id, qp.num);
                            step.id = Some(id);
                        }
                        Some(Err(refused)) => step.refused = Some(refused),
                    }
                    table.stop_waiting_for_room(qp.num, &mut step.place);
                }
                if let Some(refused) = step.refused.take() {
                    return Some(Err(refused));
                }
                let completion = table.take(step.id?)?;
                step.id = None;
                Some(outcome(completion))
            },
            |step, table, waker| {
                if let Some(id) = step.id {
                    table.wake_for(id, waker);
                }
            },
        );
        polled.map(|result| result.unwrap_or_else(|e| Err(failed(e))))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let Self { desk, qp, step } = self;
        if step.id.is_none() && step.place.is_none() {
            return;
        }
        desk.with(|state| {
            state.table.stop_waiting_for_room(qp.num, &mut step.place);
            if let Some(id) = step.id.take() {
                state.table.detach(id);
            }
        });
    }
}

impl fmt::Debug for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("qp", &self.qp.name)
            .field("posted", &self.step.id)
            .finish_non_exhaustive()
    }
}
