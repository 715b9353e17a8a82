//! Packets as one line of text, for traces, snapshots and people.

use std::fmt::{Display, Formatter, Result};

use crate::{Aeth, NakCode, Opcode, Operation, Packet, Selectivity, Syndrome, Transport};

impl Display for Packet<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let bth = &self.bth;
        write!(f, "{} qp={:#x} psn={}", bth.opcode, bth.dest_qp, bth.psn)?;
        for (set, name) in [
            (bth.ack_req, "ack_req"),
            (bth.solicited, "solicited"),
            (bth.fecn, "fecn"),
            (bth.becn, "becn"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        if bth.pkey != crate::DEFAULT_PKEY {
            write!(f, " pkey={:#06x}", bth.pkey)?;
        }
        if let Some(srqn) = self.xrc_srqn {
            write!(f, " srq={srqn:#x}")?;
        }
        if let Some(deth) = self.deth {
            write!(f, " src_qp={:#x} qkey={:#010x}", deth.src_qp, deth.qkey)?;
        }
        if let Some(feth) = self.feth {
            let what = match feth.selectivity {
                Selectivity::Range => "range",
                Selectivity::MemoryRegion => "mr",
                Selectivity::Reserved(_) => "reserved",
            };
            write!(f, " flush={what}/{:#x}", feth.placement.bits())?;
        }
        if let Some(reth) = self.reth {
            write!(
                f,
                " va={:#x} rkey={:#010x} len={}",
                reth.va, reth.rkey, reth.len
            )?;
        }
        if let Some(eth) = self.atomic {
            write!(f, " va={:#x} rkey={:#010x}", eth.va, eth.rkey)?;
            match bth.opcode {
                Opcode::Roce(_, Operation::FetchAdd) => write!(f, " add={}", eth.swap_or_add)?,
                _ => write!(f, " compare={} swap={}", eth.compare, eth.swap_or_add)?,
            }
        }
        if let Some(aeth) = self.aeth {
            write!(f, " {aeth}")?;
        }
        if let Some(original) = self.atomic_ack {
            write!(f, " original={original}")?;
        }
        if let Some([a, b, c, d]) = self.imm {
            write!(f, " imm={a:02x}{b:02x}{c:02x}{d:02x}")?;
        }
        if let Some(rkey) = self.ieth {
            write!(f, " invalidate={rkey:#010x}")?;
        }
        if !self.payload.is_empty() {
            write!(f, " payload={}", self.payload.len())?;
        }
        Ok(())
    }
}

impl Display for Aeth {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} msn={}", self.syndrome, self.msn)
    }
}

impl Display for Syndrome {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Self::Ack {
                credits: crate::UNLIMITED_CREDITS,
            } => f.write_str("ack"),
            Self::Ack { credits } => write!(f, "ack credits={credits}"),
            Self::Rnr { timer } => write!(f, "rnr timer={timer}"),
            Self::Nak(code) => write!(f, "nak {code}"),
            Self::Reserved(byte) => write!(f, "syndrome={byte:#04x}"),
        }
    }
}

impl Display for NakCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::PsnSequence => "psn_sequence",
            Self::InvalidRequest => "invalid_request",
            Self::RemoteAccess => "remote_access",
            Self::RemoteOperational => "remote_operational",
            Self::InvalidRdRequest => "invalid_rd_request",
            Self::Other(code) => return write!(f, "code={code}"),
        })
    }
}

impl Display for Opcode {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Roce(transport, operation) => write!(f, "{transport} {operation}"),
            Self::Cnp => f.write_str("CNP"),
        }
    }
}

impl Display for Transport {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
        })
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::SendFirst => "SEND_FIRST",
            Self::SendMiddle => "SEND_MIDDLE",
            Self::SendLast => "SEND_LAST",
            Self::SendLastImm => "SEND_LAST_IMM",
            Self::SendOnly => "SEND_ONLY",
            Self::SendOnlyImm => "SEND_ONLY_IMM",
            Self::WriteFirst => "WRITE_FIRST",
            Self::WriteMiddle => "WRITE_MIDDLE",
            Self::WriteLast => "WRITE_LAST",
            Self::WriteLastImm => "WRITE_LAST_IMM",
            Self::WriteOnly => "WRITE_ONLY",
            Self::WriteOnlyImm => "WRITE_ONLY_IMM",
            Self::ReadRequest => "READ_REQUEST",
            Self::ReadResponseFirst => "READ_RESPONSE_FIRST",
            Self::ReadResponseMiddle => "READ_RESPONSE_MIDDLE",
            Self::ReadResponseLast => "READ_RESPONSE_LAST",
            Self::ReadResponseOnly => "READ_RESPONSE_ONLY",
            Self::Acknowledge => "ACKNOWLEDGE",
            Self::AtomicAcknowledge => "ATOMIC_ACKNOWLEDGE",
            Self::CompareSwap => "COMPARE_SWAP",
            Self::FetchAdd => "FETCH_ADD",
            Self::SendLastInv => "SEND_LAST_INV",
            Self::SendOnlyInv => "SEND_ONLY_INV",
            Self::Flush => "FLUSH",
            Self::AtomicWrite => "ATOMIC_WRITE",
        })
    }
}
