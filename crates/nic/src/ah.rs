//! Address handles: where a datagram goes.

use std::sync::Arc;

use adverb_engine::Av;
use adverb_wire::Gid;

use crate::context::Context;
use crate::device::Device;
use crate::error::NicError;
use crate::pd::PdUse;

/// What an address handle is made from.
#[derive(Clone, Copy, Debug)]
pub struct AhSpec {
    pub sgid_index: u8,
    pub dgid: Gid,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub flow_label: u32,
    pub sl: u8,
    pub static_rate: u8,
    /// 1, the only port.
    pub port: u8,
}

/// An address handle (man ibv_create_ah). Work requests copy it, so it may go at any time.
pub struct Ah {
    context: Arc<Context>,
    av: Av,
    _pd: PdUse,
}

impl Ah {
    pub(crate) fn new(
        context: &Arc<Context>,
        pd: PdUse,
        spec: &AhSpec,
    ) -> Result<Arc<Self>, NicError> {
        if spec.port != 1 {
            return Err(NicError::Invalid {
                what: "port_num",
                value: spec.port.into(),
                limit: 1,
            });
        }
        let av = resolve(
            context.device(),
            &Av {
                sgid_index: spec.sgid_index,
                sgid: Gid([0; 16]),
                dgid: spec.dgid,
                traffic_class: spec.traffic_class,
                hop_limit: spec.hop_limit,
                flow_label: spec.flow_label,
                sl: spec.sl,
                static_rate: spec.static_rate,
            },
        )?;
        context
            .quotas
            .ahs
            .claim("AH", context.device().limits().max_ah)?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            av,
            _pd: pd,
        }))
    }

    pub fn av(&self) -> &Av {
        &self.av
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.context.quotas.ahs.release();
    }
}

/// Fills in the source GID, and refuses what no packet could be made from.
pub(crate) fn resolve(device: &Device, av: &Av) -> Result<Av, NicError> {
    let gids = device.gids();
    let sgid = *gids
        .get(usize::from(av.sgid_index))
        .ok_or_else(|| NicError::Invalid {
            what: "sgid_index",
            value: av.sgid_index.into(),
            limit: gids.len() as u64 - 1,
        })?;
    if av.dgid.is_zero() {
        return Err(NicError::BadArgument("the destination GID is zero"));
    }
    let mut sgid = sgid;
    if av.dgid.is_multicast() && sgid.is_ipv4() != av.dgid.is_ipv4() {
        // Programs name any group whatever the family of their address. The device has more of them.
        let fitting = gids.iter().find(|gid| gid.is_ipv4() == av.dgid.is_ipv4());
        sgid = fitting.copied().unwrap_or(sgid);
    }
    if sgid.is_ipv4() != av.dgid.is_ipv4() {
        return Err(NicError::BadArgument(
            "the source GID (sgid_index) and the destination GID are of different IP families",
        ));
    }
    // A hop limit of zero would die at once; the verbs say the device chooses then.
    let hop_limit = if av.hop_limit == 0 { 64 } else { av.hop_limit };
    Ok(Av {
        sgid,
        hop_limit,
        ..*av
    })
}
