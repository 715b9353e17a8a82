//! A queue pair's way from RESET to RTS, and what is said when a step is wrong.

use std::error::Error;

use adverb::transport::Rc;
use adverb::{AhAttr, Mtu, QpAttr, QpState, QueuePair};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(64).build()?;
    // ANCHOR: init
    // `build` takes it from RESET to INIT: partition key, port, and what peers may do.
    let a = pd.create_qp::<Rc>(&cq).build()?;
    let b = pd.create_qp::<Rc>(&cq).build()?;
    println!("created             A is in {}", a.state()?);
    // ANCHOR_END: init

    // ANCHOR: attributes
    let gid = ctx.best_gid(1)?;
    let peer = b.endpoint();
    let to_rtr = QpAttr {
        state: Some(QpState::ReadyToReceive),
        address: Some(AhAttr::new(peer.gid, u8::try_from(gid.index)?)),
        path_mtu: Some(Mtu::B1024),
        dest_qpn: Some(peer.qpn),
        rq_psn: Some(peer.psn),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(12),
        ..QpAttr::default()
    };
    let to_rts = QpAttr {
        state: Some(QpState::ReadyToSend),
        sq_psn: Some(a.endpoint().psn),
        timeout: Some(14),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(4),
        ..QpAttr::default()
    };
    // ANCHOR_END: attributes

    // ANCHOR: mistakes
    step(&a, "INIT to RTS", &to_rts)?;
    step(
        &a,
        "no dest_qpn",
        &QpAttr {
            dest_qpn: None,
            ..to_rtr
        },
    )?;
    step(
        &a,
        "a timeout too early",
        &QpAttr {
            timeout: Some(14),
            ..to_rtr
        },
    )?;
    step(
        &a,
        "GID index 77",
        &QpAttr {
            address: Some(AhAttr::new(peer.gid, 77)),
            ..to_rtr
        },
    )?;
    step(
        &a,
        "255 reads at a time",
        &QpAttr {
            max_dest_rd_atomic: Some(255),
            ..to_rtr
        },
    )?;
    // ANCHOR_END: mistakes

    // ANCHOR: steps
    step(&a, "INIT to RTR", &to_rtr)?;
    if let Err(refused) = a.post_send(pd.reg_mr(b"too early".to_vec())?) {
        println!("ibv_post_send       refused: {refused}");
    }
    step(&a, "RTR to RTS", &to_rts)?;
    a.abort()?;
    println!("to ERR              A is in {}", a.state()?);
    // ANCHOR_END: steps
    Ok(())
}

// ANCHOR: step
/// Tries one step and says where the queue pair is afterwards.
fn step(qp: &QueuePair<Rc>, what: &str, attr: &QpAttr) -> Result<(), Box<dyn Error>> {
    match qp.modify(attr) {
        Ok(()) => println!("{what:<20}A is in {}", qp.state()?),
        Err(error) => println!("{what:<20}refused: {error}; A is in {}", qp.state()?),
    }
    Ok(())
}
// ANCHOR_END: step
