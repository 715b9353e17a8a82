//! Several requests for one call of the device.

use std::marker::PhantomData;
use std::ptr;

use adverb_abi::inline;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::poster::{Poster, Submit, sealed};
use crate::qp::{QpInner, QueuePair};
use crate::request::{PostFlags, Posted, Rejected, Request, Staged};
use crate::sync::lock;
use crate::sys;
use crate::transport::Transport;

/// The requests of a batch and where they will go.
pub(crate) struct Staging<'a> {
    qp: &'a QpInner,
    staged: &'a mut Vec<Staged>,
}

impl sealed::Sealed for &mut Staging<'_> {}

impl Submit for &mut Staging<'_> {
    type Outcome = Posted;

    fn submit(self, request: Result<Request, Rejected>) -> Posted {
        let staged = self.qp.claim(&mut lock(&self.qp.send.slab), request?)?;
        let id = staged.slot.id;
        self.staged.push(staged);
        Ok(id)
    }
}

/// Several requests for one call of the device. See [`QueuePair::batch`].
#[must_use = "nothing is posted before `post`"]
pub struct Batch<'a, T: Transport> {
    staging: Staging<'a>,
    transport: PhantomData<T>,
}

/// A batch that the device took in part, or not at all.
#[derive(Debug, thiserror::Error)]
#[error("{accepted} requests of a batch were accepted, then: {error}")]
pub struct BatchError {
    /// Why it stopped.
    #[source]
    pub error: Error,
    /// How many requests the device took. They complete as usual.
    pub accepted: usize,
    /// The buffers of the others, in order.
    pub buffers: Vec<Buffer>,
}

impl From<BatchError> for Error {
    fn from(stopped: BatchError) -> Self {
        stopped.error
    }
}

impl<'a, T: Transport> Batch<'a, T> {
    /// Adds requests with these flags: `batch.with(flags).send(buf)?`.
    pub fn with<'b>(
        &'b mut self,
        flags: PostFlags,
    ) -> Poster<T, impl Submit<Outcome = Posted> + use<'a, 'b, T>> {
        Poster::new(&mut self.staging, flags)
    }

    /// How many requests it holds.
    pub fn len(&self) -> usize {
        self.staging.staged.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.staging.staged.is_empty()
    }

    /// Posts all of it in one call (ibv_post_send(3)) and says how many there were.
    ///
    /// # Errors
    /// [`BatchError`], with the buffers that the device did not take.
    pub fn post(mut self) -> Result<usize, BatchError> {
        let Staging { qp, staged } = &mut self.staging;
        let count = staged.len();
        if count == 0 {
            return Ok(0);
        }
        // The lock keeps completions from being handled before a refusal is.
        let mut slab = lock(&qp.send.slab);
        for request in staged.iter_mut() {
            request.commit(&mut slab);
        }
        let base = staged.as_mut_ptr();
        for i in 0..count {
            // SAFETY: `i`, and `i + 1` where it is used, are inside the vector, which does not
            // move before the call below is over.
            unsafe {
                let this = base.add(i);
                (*this).wr.sg_list = &raw mut (*this).sge;
                (*this).wr.next = if i + 1 < count {
                    &raw mut (*base.add(i + 1)).wr
                } else {
                    ptr::null_mut()
                };
            }
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive, the list is linked and ends; every request's memory
        // is kept by its slot until the completion.
        let rc = unsafe { inline::ibv_post_send(qp.raw(), &raw mut (*base).wr, &raw mut bad) };
        let Err(error) = sys::check(rc, "ibv_post_send", &qp.name) else {
            staged.clear();
            return Ok(count);
        };
        let accepted = staged
            .iter()
            .position(|s| ptr::eq(&raw const s.wr, bad))
            .unwrap_or_default();
        let mut buffers = Vec::with_capacity(count - accepted);
        while staged.len() > accepted {
            let slot = staged.pop().map(|s| s.slot);
            buffers.extend(slot.and_then(|s| slab.retract(s)).and_then(|op| op.buffer));
        }
        buffers.reverse();
        staged.clear();
        Err(BatchError {
            error,
            accepted,
            buffers,
        })
    }
}

/// A batch that is dropped was never posted: its buffers are dropped with it.
impl Drop for Staging<'_> {
    fn drop(&mut self) {
        self.qp.discard(self.staged);
    }
}

impl<T: Transport> QueuePair<T> {
    /// Collects requests and posts them in one call, which rings the device's doorbell once.
    /// Taking `&mut self` keeps others from posting in between.
    ///
    /// A dropped batch posts nothing.
    pub fn batch(&mut self) -> Batch<'_, T> {
        // A batch that was forgotten instead of dropped leaves requests behind, which the device
        // never got.
        self.inner.discard(&mut self.staged);
        Batch {
            staging: Staging {
                qp: &self.inner,
                staged: &mut self.staged,
            },
            transport: PhantomData,
        }
    }
}
