//! From a request to a connection: the answers, and the steps of the queue pair.

use std::borrow::Borrow;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use adverb_abi::types as c;

use super::connection::Connection;
use super::id::Id;
use super::params::{Depths, Params};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::qp::QueuePair;
use crate::state::QpState;
use crate::sync::deadline;
use crate::sys;
use crate::transport::{Rc, Transport};

/// How far something has come.
#[derive(Debug)]
pub enum Progress<P, T> {
    /// Not there yet: watch the descriptor, and try again.
    Pending(P),
    /// There.
    Done(T),
}

/// A queue pair that can be connected: [`QueuePair`] or [`aio::QueuePair`](crate::aio::QueuePair).
pub trait Pair: Borrow<QueuePair<Rc>> + Send + Sync + 'static {}
impl<Q: Borrow<QueuePair<Rc>> + Send + Sync + 'static> Pair for Q {}

/// A connection on its way: the request is out, or the acceptance. It can be awaited.
#[must_use = "dropping it ends the attempt"]
pub struct Connecting<Q: Pair = QueuePair<Rc>> {
    pub(super) connection: Connection<Q>,
    /// Of the side that asks: the code of the pause asked of a peer that finds no receive.
    asking: Option<u8>,
}

/// Before the first word: whether the queue pair suits, and what the id has to know.
pub(super) fn prepare(id: &Id, qp: &QueuePair<Rc>, params: &Params) -> Result<()> {
    let device = Context {
        inner: Arc::clone(&qp.inner.pd.ctx),
    };
    let device = device.device();
    let wanted = id.device_name().unwrap_or_default();
    if device.origin() != id.origin() || device.name() != wanted {
        return Err(Error::OtherDevice {
            what: "the queue pair",
            is: device.name().to_owned(),
            wanted,
        });
    }
    let from = qp.state()?;
    if from != QpState::Init {
        return Err(Error::Transition {
            from,
            to: QpState::ReadyToReceive,
            transport: Rc::NAME,
        });
    }
    if let Some(code) = params.ack_timeout {
        id.set_option(c::RDMA_OPTION_ID_ACK_TIMEOUT, code)?;
    }
    Ok(())
}

impl<Q: Pair> Connecting<Q> {
    pub(super) fn asking(qp: Q, id: Id, min_rnr_timer: u8) -> Self {
        Self {
            connection: Connection::new(qp, id),
            asking: Some(min_rnr_timer),
        }
    }

    pub(super) fn accepting(qp: Q, id: Id) -> Self {
        Self {
            connection: Connection::new(qp, id),
            asking: None,
        }
    }

    /// Goes as far as it can without waiting. When it is not there yet, watch the descriptor.
    ///
    /// # Errors
    /// [`Error::Connection`]; [`Error::Verb`] when the queue pair cannot be set up. It is closed
    /// then.
    pub fn try_finish(self) -> Result<Progress<Self, Connection<Q>>> {
        Ok(match self.look()? {
            Some(data) => Progress::Done(self.connection.established(data)),
            None => Progress::Pending(self),
        })
    }

    /// What the peer's program said along with its acceptance, once the connection stands.
    pub(super) fn look(&self) -> Result<Option<Vec<u8>>> {
        let id = &self.connection.id;
        while let Some(event) = id.try_event()? {
            match (event.kind, self.asking) {
                (c::RDMA_CM_EVENT_CONNECT_RESPONSE, Some(min_rnr_timer)) => {
                    let qp = self.connection.qp().borrow();
                    let ready = connect(qp, id, min_rnr_timer, None)
                        .and_then(|()| id.establish().map_err(|error| id.gone(error)));
                    if let Err(error) = ready {
                        // The peer is told, if it can be.
                        let _ = id.reject(&[]);
                        return Err(error);
                    }
                    return Ok(Some(event.private_data));
                }
                (c::RDMA_CM_EVENT_ESTABLISHED, None) => return Ok(Some(Vec::new())),
                _ => {
                    if let Some(failure) = event.failure() {
                        return Err(id.failed(failure));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Waits for the end of it; no timeout waits for ever.
    ///
    /// # Errors
    /// As [`try_finish`](Self::try_finish).
    pub fn wait(mut self, timeout: Option<Duration>) -> Result<Connection<Q>> {
        let until = deadline(timeout);
        loop {
            self = match self.try_finish()? {
                Progress::Done(connection) => return Ok(connection),
                Progress::Pending(pending) => pending,
            };
            let id = &self.connection.id;
            if !id.wait(until)? {
                let step = match self.asking {
                    Some(_) => "the peer's answer",
                    None => "the peer's word that it is ready",
                };
                return Err(id.failed(Failure::TimedOut {
                    step,
                    limit: timeout.unwrap_or_default(),
                }));
            }
        }
    }
}

/// Takes a queue pair from INIT to RTS, as the two sides have agreed. `most` is what this side has
/// settled for meanwhile.
pub(super) fn connect(
    qp: &QueuePair<Rc>,
    id: &Id,
    min_rnr_timer: u8,
    most: Option<Depths>,
) -> Result<()> {
    // What the peer may do stays as the queue pair's builder has it.
    let (init, mask) = id.init_qp_attr(c::IBV_QPS_INIT)?;
    modify(qp, init, mask & !(c::IBV_QP_ACCESS_FLAGS as libc::c_int))?;
    let (mut rtr, mask) = id.init_qp_attr(c::IBV_QPS_RTR)?;
    if mask & c::IBV_QP_MIN_RNR_TIMER as libc::c_int != 0 {
        rtr.min_rnr_timer = min_rnr_timer;
    }
    if let Some(most) = most {
        rtr.max_dest_rd_atomic = rtr.max_dest_rd_atomic.min(most.answered);
    }
    modify(qp, rtr, mask)?;
    let (mut rts, mask) = id.init_qp_attr(c::IBV_QPS_RTS)?;
    if let Some(most) = most {
        rts.max_rd_atomic = rts.max_rd_atomic.min(most.started);
    }
    modify(qp, rts, mask)
}

fn modify(qp: &QueuePair<Rc>, mut attr: c::ibv_qp_attr, mask: libc::c_int) -> Result<()> {
    let inner = &qp.inner;
    // SAFETY: the queue pair is alive and the attributes are filled as the mask says.
    let rc = unsafe { (inner.pd.ctx.verbs.modify_qp)(inner.raw(), &raw mut attr, mask) };
    sys::check(rc, "ibv_modify_qp", &inner.name)
}

impl<Q: Pair> AsFd for Connecting<Q> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl<Q: Pair> fmt::Debug for Connecting<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("peer", &self.connection.peer_addr())
            .finish_non_exhaustive()
    }
}
