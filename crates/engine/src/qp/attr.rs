//! The attributes of a queue pair and the call that changes them.

use adverb_wire::{Mtu, Psn, Transport};

use super::Qp;
use super::state::{AttrMask, QpState, check_transition};
use crate::error::ModifyError;
use crate::event::QpEvent;
use crate::memory::{Access, Host};
use crate::time::Instant;
use crate::wr::Av;

/// Attributes of a queue pair, in the units of the verbs interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    pub state: QpState,
    pub cur_state: QpState,
    /// `ibv_mtu`: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qpn: u32,
    pub access: Access,
    pub av: Av,
    pub pkey_index: u16,
    pub port: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub en_sqd_async_notify: bool,
    /// Queried only: work that had started before SQD is not done yet.
    pub sq_draining: bool,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            path_mtu: 1,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qpn: 0,
            access: Access::empty(),
            av: Av::default(),
            pkey_index: 0,
            port: 1,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            en_sqd_async_notify: false,
            sq_draining: false,
        }
    }
}

/// What values the device and its port allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Ports are numbered from 1.
    pub ports: u8,
    /// Entries of the P_Key table.
    pub pkeys: u16,
    /// `ibv_mtu` of the port; also the longest datagram.
    pub active_mtu: u32,
    /// Most READs and atomics from the peer at once.
    pub max_rd_atom: u8,
    /// Most READs and atomics to the peer at once.
    pub max_init_rd_atom: u8,
}

impl Qp {
    /// The attributes as last set, with the live state and packet sequence numbers.
    pub fn attrs(&self) -> QpAttr {
        let mut attr = self.attr;
        attr.state = self.state;
        attr.cur_state = self.state;
        if matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe) {
            attr.sq_psn = self.requester.next_psn().value();
        }
        if self.state != QpState::Reset && self.state != QpState::Init {
            attr.rq_psn = self.responder.expected_psn().value();
        }
        attr.sq_draining = self.state == QpState::Sqd && !self.drained();
        attr
    }

    /// Changes state and attributes: all of it, or nothing and an error.
    pub fn modify(
        &mut self,
        now: Instant,
        attr: &QpAttr,
        mask: AttrMask,
        limits: &DeviceLimits,
        host: &mut dyn Host,
    ) -> Result<(), ModifyError> {
        let from = self.state;
        let to = if mask.contains(AttrMask::STATE) {
            attr.state
        } else {
            from
        };
        check_transition(self.kind(), from, to, mask)?;
        if mask.contains(AttrMask::CUR_STATE) && attr.cur_state != from {
            // The application is behind: the queue pair has moved on its own, or another thread
            // moved it. Following the stale state could reset sequence numbers in mid-stream.
            return Err(ModifyError::CurState {
                given: attr.cur_state,
                actual: from,
            });
        }
        if from == QpState::Sqd && to == QpState::Rts && !self.drained() {
            return Err(ModifyError::StillDraining);
        }
        check_values(attr, mask, limits)?;

        match to {
            QpState::Reset => {
                self.reset();
                return Ok(());
            }
            QpState::Err => {
                self.enter_error(now, host);
                return Ok(());
            }
            _ => {}
        }
        self.apply(attr, mask, limits);
        match (from, to) {
            (QpState::Init, QpState::Rtr) => self.start_receiving(),
            (QpState::Rtr, QpState::Rts) => self.start_sending(),
            // Retry counts may have changed while nothing was under way.
            (QpState::Sqd, QpState::Rts) => self.requester.reload(&self.attr),
            (QpState::Rts, QpState::Sqd) => {
                self.attr.en_sqd_async_notify =
                    mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
                self.drain_event_due = self.attr.en_sqd_async_notify;
            }
            _ => {}
        }
        self.state = to;
        self.note_drained(host);
        Ok(())
    }

    fn apply(&mut self, attr: &QpAttr, mask: AttrMask, limits: &DeviceLimits) {
        macro_rules! set {
            ($($bit:ident: $field:ident),*) => { $(if mask.contains(AttrMask::$bit) { self.attr.$field = attr.$field; })* };
        }
        set!(ACCESS_FLAGS: access, PKEY_INDEX: pkey_index, PORT: port, QKEY: qkey, AV: av, PATH_MTU: path_mtu,
            TIMEOUT: timeout, RETRY_CNT: retry_cnt, RNR_RETRY: rnr_retry, MAX_QP_RD_ATOMIC: max_rd_atomic,
            MAX_DEST_RD_ATOMIC: max_dest_rd_atomic, MIN_RNR_TIMER: min_rnr_timer);
        if mask.contains(AttrMask::RQ_PSN) {
            self.attr.rq_psn = Psn::new(attr.rq_psn).value();
        }
        if mask.contains(AttrMask::SQ_PSN) {
            self.attr.sq_psn = Psn::new(attr.sq_psn).value();
        }
        if mask.contains(AttrMask::DEST_QPN) {
            self.attr.dest_qpn = attr.dest_qpn & Psn::MASK;
        }
        // A datagram is bounded by the port, a connection by its path.
        let mtu = if self.config.transport == Transport::Ud {
            limits.active_mtu
        } else {
            self.attr.path_mtu
        };
        if let Some(mtu) = Mtu::from_ibv(mtu) {
            self.pmtu = mtu.bytes();
        }
        if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
            self.responder
                .set_slots(usize::from(attr.max_dest_rd_atomic));
        }
    }

    /// Whether everything that had started is done.
    fn drained(&self) -> bool {
        self.requester.is_drained(&self.sq)
    }

    /// Raises SQ_DRAINED if it is due and true.
    pub(super) fn note_drained(&mut self, host: &mut dyn Host) {
        if self.drain_event_due && self.state == QpState::Sqd && self.drained() {
            self.drain_event_due = false;
            host.event(QpEvent::SqDrained);
        }
    }

    /// The transport's name, for texts.
    pub fn transport_name(&self) -> &'static str {
        self.kind().name()
    }
}

fn check_values(attr: &QpAttr, mask: AttrMask, limits: &DeviceLimits) -> Result<(), ModifyError> {
    if mask.intersects(AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE) {
        // There is no alternate path on RoCE.
        return Err(ModifyError::Unsupported {
            what: mask & (AttrMask::ALT_PATH | AttrMask::PATH_MIG_STATE),
        });
    }
    if mask.contains(AttrMask::PORT) && attr.port == 0 {
        return Err(ModifyError::Invalid {
            field: "port",
            value: 0,
        });
    }
    if mask.contains(AttrMask::PATH_MTU) && attr.path_mtu == 0 {
        return Err(ModifyError::Invalid {
            field: "path_mtu",
            value: 0,
        });
    }
    if mask.contains(AttrMask::AV) && attr.av.dgid.is_zero() {
        return Err(ModifyError::Invalid {
            field: "dgid",
            value: 0,
        });
    }
    let pkey_last = u64::from(limits.pkeys.saturating_sub(1));
    let checks: [(AttrMask, &'static str, u64, u64); 9] = [
        (
            AttrMask::PORT,
            "port",
            attr.port.into(),
            limits.ports.into(),
        ),
        (
            AttrMask::PKEY_INDEX,
            "pkey_index",
            attr.pkey_index.into(),
            pkey_last,
        ),
        (
            AttrMask::PATH_MTU,
            "path_mtu",
            attr.path_mtu.into(),
            limits.active_mtu.min(5).into(),
        ),
        (
            AttrMask::MAX_QP_RD_ATOMIC,
            "max_rd_atomic",
            attr.max_rd_atomic.into(),
            limits.max_init_rd_atom.into(),
        ),
        (
            AttrMask::MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic.into(),
            limits.max_rd_atom.into(),
        ),
        (AttrMask::TIMEOUT, "timeout", attr.timeout.into(), 31),
        (AttrMask::RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 7),
        (AttrMask::RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 7),
        (
            AttrMask::MIN_RNR_TIMER,
            "min_rnr_timer",
            attr.min_rnr_timer.into(),
            31,
        ),
    ];
    for (bit, field, value, limit) in checks {
        if mask.contains(bit) && value > limit {
            return Err(ModifyError::Value {
                field,
                value,
                limit,
            });
        }
    }
    Ok(())
}
