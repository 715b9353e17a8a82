//! Several requests for one call of the device.

use std::marker::PhantomData;
use std::ptr;

use adverb_abi::inline;

use crate::buffer::Buffer;
use crate::poster::{Poster, Submit, sealed};
use crate::qp::{QpInner, QueuePair};
use crate::request::{BatchError, Memory, PostFlags, Posted, Rejected, Request, Stage};
use crate::sync::lock;
use crate::sys;
use crate::transport::Transport;

/// The requests of a batch and where they will go.
pub(crate) struct Staging<'a> {
    qp: &'a QpInner,
    stage: &'a mut Stage,
}

impl sealed::Sealed for &mut Staging<'_> {}

impl Submit for &mut Staging<'_> {
    type Outcome = Posted;

    fn submit(self, request: Result<Request, Rejected>) -> Posted {
        let request = request?;
        let Stage { requests, inline } = &mut *self.stage;
        let before = inline.len();
        // A length that the queue pair does not take is refused before anything is copied.
        if let Some(bytes) = request.lent()
            && bytes.len() <= self.qp.max_inline as usize
        {
            inline.extend_from_slice(bytes);
        }
        let mut staged = self
            .qp
            .claim(&mut lock(&self.qp.send.slab), request)
            .inspect_err(|_| inline.truncate(before))?;
        if staged.memory == Memory::Lent {
            // They may still move: only where they are in there is sure.
            staged.sge.addr = before as u64;
        }
        let id = staged.slot.id;
        requests.push(staged);
        Ok(id)
    }
}

/// Several requests for one call of the device. See [`QueuePair::batch`].
#[must_use = "nothing is posted before `post`"]
pub struct Batch<'a, T: Transport> {
    staging: Staging<'a>,
    transport: PhantomData<T>,
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
        self.staging.stage.requests.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.staging.stage.requests.is_empty()
    }

    /// Posts all of it in one call (ibv_post_send(3)) and says how many there were.
    ///
    /// # Errors
    /// [`BatchError`], with the buffers that the device did not take.
    pub fn post(mut self) -> Result<usize, BatchError> {
        let Staging { qp, stage } = &mut self.staging;
        let Stage {
            requests: staged,
            inline,
        } = &mut **stage;
        let count = staged.len();
        if count == 0 {
            return Ok(0);
        }
        // The lock keeps completions from being handled before a refusal is.
        let mut slab = lock(&qp.send.slab);
        for request in staged.iter_mut() {
            request.commit(&mut slab);
        }
        let lists = staged.iter().filter(|s| s.memory == Memory::List);
        let mut pieces = slab.lay_out(lists.map(|s| s.slot), Buffer::sge);
        let base = staged.as_mut_ptr();
        for i in 0..count {
            // SAFETY: `i`, and `i + 1` where it is used, are inside the vector, which does not
            // move before the call below is over.
            unsafe {
                let this = base.add(i);
                (*this).wr.sg_list = match (*this).memory {
                    Memory::One => &raw mut (*this).sge,
                    Memory::Lent => {
                        (*this).sge.addr += inline.as_ptr() as u64;
                        &raw mut (*this).sge
                    }
                    Memory::List => {
                        let list = pieces;
                        pieces = pieces.wrapping_add((*this).wr.num_sge as usize);
                        list
                    }
                };
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
            inline.clear();
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
        inline.clear();
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
        self.qp.discard(self.stage);
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
                stage: &mut self.staged,
            },
            transport: PhantomData,
        }
    }
}
