//! Posting work: what is checked at once, and what happens to work posted to a dead queue.

use adverb_wire::Transport;

use super::send_queue::SendWqe;
use super::state::QpState;
use super::{Qp, Role};
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::error::PostError;
use crate::memory::{Host, Side};
use crate::time::Instant;
use crate::wr::{MAX_MESSAGE, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge};

impl Qp {
    /// Queues a send. In ERR and SQE it is accepted and completes at once as flushed.
    pub fn post_send(
        &mut self,
        now: Instant,
        wr: &SendWr<'_>,
        host: &mut dyn Host,
    ) -> Result<(), PostError> {
        if self.config.role == Role::Target {
            return Err(PostError::ReceivesOnly);
        }
        match self.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            state => return Err(PostError::WrongState { state }),
        }
        self.check_operation(wr)?;
        let (sges, inline): (&[Sge], &[u8]) = match wr.data {
            SendData::Sges(sges) => (sges, &[]),
            SendData::Inline(bytes) => (&[], bytes),
        };
        if sges.len() > self.sq.max_sge() {
            return Err(PostError::TooManySges {
                given: sges.len(),
                limit: self.config.caps.max_send_sge,
            });
        }
        // The eight bytes of an ATOMIC_WRITE always fit: builders copy them when they are named.
        let atomic_write = matches!(wr.op, SendOp::AtomicWrite { .. });
        if inline.len() > self.sq.max_inline() && !(atomic_write && inline.len() == 8) {
            return Err(PostError::InlineTooLong {
                given: inline.len(),
                limit: self.config.caps.max_inline,
            });
        }
        let total = inline.len() as u64 + sges.iter().map(|s| u64::from(s.len)).sum::<u64>();
        check_atomic(&wr.op, total)?;
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            let c = Completion::error(
                wr.wr_id,
                WcStatus::WrFlushErr,
                WcOpcode::Send,
                self.config.num,
                now,
            );
            host.complete(Side::Send, &c);
            return Ok(());
        }
        if self.sq.len() >= self.sq.capacity() {
            return Err(PostError::QueueFull {
                limit: self.sq.capacity(),
            });
        }

        let carries_data = !matches!(
            wr.op,
            SendOp::LocalInv(_) | SendOp::BindMw(_) | SendOp::Flush(_)
        );
        let too_long = total > MAX_MESSAGE;
        let wqe = SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            // The atomics move eight bytes, however much room there is for the answer.
            len: match wr.op {
                SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 8,
                _ if carries_data && !too_long => total as u32,
                _ => 0,
            },
            sge_count: if carries_data { sges.len() as u8 } else { 0 },
            inline: matches!(wr.data, SendData::Inline(_)),
            signaled: self.config.sq_sig_all || wr.flags.contains(SendFlags::SIGNALED),
            fence: wr.flags.contains(SendFlags::FENCE),
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            failed: too_long.then_some(WcStatus::LocLenErr),
            xrc_srqn: wr.xrc_srqn,
            ..SendWqe::EMPTY
        };
        self.sq.push(wqe, sges, inline, wr.ud.as_ref());
        Ok(())
    }

    /// Queues a receive. In ERR it is accepted and completes at once as flushed.
    pub fn post_recv(
        &mut self,
        now: Instant,
        wr: &RecvWr<'_>,
        host: &mut dyn Host,
    ) -> Result<(), PostError> {
        if self.config.uses_srq {
            return Err(PostError::UsesSrq);
        }
        if self.config.role == Role::Initiator {
            return Err(PostError::SendsOnly);
        }
        match self.state {
            QpState::Reset => Err(PostError::WrongState { state: self.state }),
            QpState::Err if wr.sges.len() <= self.rq.max_sge() as usize => {
                self.complete_receive_error(now, wr.wr_id, WcStatus::WrFlushErr, host);
                Ok(())
            }
            _ => self.rq.push(wr),
        }
    }

    fn check_operation(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let inline = matches!(wr.data, SendData::Inline(_));
        let (rc, uc, ud, may_inline) = match wr.op {
            SendOp::Send | SendOp::SendImm(_) => (true, true, true, true),
            SendOp::SendInv(_) => (true, false, false, true),
            SendOp::Write { .. } | SendOp::WriteImm { .. } => (true, true, false, true),
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                (true, false, false, false)
            }
            SendOp::LocalInv(_) | SendOp::BindMw(_) => (true, true, false, true),
            SendOp::AtomicWrite { .. } | SendOp::Flush(_) => (true, false, false, true),
        };
        let allowed = match self.config.transport {
            Transport::Rc => rc,
            Transport::Uc => uc,
            Transport::Ud => ud,
            Transport::Xrc => rc,
        };
        if !allowed {
            return Err(PostError::OpNotForTransport);
        }
        if inline && !may_inline {
            return Err(PostError::InlineNotAllowed);
        }
        if self.config.transport == Transport::Ud && wr.ud.is_none() {
            return Err(PostError::NoAddress);
        }
        Ok(())
    }
}

fn check_atomic(op: &SendOp, total: u64) -> Result<(), PostError> {
    let (remote_addr, fits) = match *op {
        SendOp::CompareSwap { remote_addr, .. } | SendOp::FetchAdd { remote_addr, .. } => {
            (remote_addr, total >= 8)
        }
        SendOp::AtomicWrite { remote_addr, .. } => (remote_addr, total == 8),
        _ => return Ok(()),
    };
    if !fits {
        return Err(PostError::AtomicLength {
            given: total,
            needed: 8,
        });
    }
    if !remote_addr.is_multiple_of(8) {
        return Err(PostError::AtomicMisaligned { addr: remote_addr });
    }
    Ok(())
}
