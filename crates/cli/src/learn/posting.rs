//! Work requests: signaled and unsignaled ones, inline ones, and a queue that is full.

use std::error::Error;

use adverb::transport::Rc;
use adverb::{Completion, PostFlags, Wait};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let send_cq = ctx.create_cq(64).build()?;
    let recv_cq = ctx.create_cq(64).build()?;
    let a = pd
        .create_qp::<Rc>(&send_cq)
        .max_send_wr(8)
        .max_inline(64)
        .build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&recv_cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    for _ in 0..5 {
        b.post_recv(pd.alloc_buf(64)?)?;
    }
    let (mut sent, mut received): (Vec<Completion>, Vec<Completion>) = (Vec::new(), Vec::new());

    // ANCHOR: unsignaled
    for _ in 0..3 {
        a.with(PostFlags::UNSIGNALED)
            .send(pd.reg_mr(b"quiet".to_vec())?)?;
    }
    while received.len() < 3 {
        recv_cq.wait(&mut received, Wait::Busy, None)?;
    }
    println!(
        "three unsignaled    B has received {}, A's queue shows {}",
        received.len(),
        send_cq.poll(&mut sent)?
    );
    // ANCHOR_END: unsignaled

    // ANCHOR: signaled
    a.post_send(pd.reg_mr(b"loud".to_vec())?)?;
    send_cq.wait(&mut sent, Wait::Busy, None)?;
    println!(
        "one signaled        {} buffers come back at once",
        sent.len()
    );
    sent.clear();
    // ANCHOR_END: signaled

    // ANCHOR: inline
    a.post_send_inline(b"copied at once")?;
    send_cq.wait(&mut sent, Wait::Busy, None)?;
    println!(
        "inline              {} bytes, no memory region",
        b"copied at once".len()
    );
    if let Err(refused) = a.post_send_inline(&[0; 4000]) {
        println!("inline              {refused}");
    }
    // ANCHOR_END: inline

    // ANCHOR: full
    // B has no receive left, so nothing leaves A's queue.
    for _ in 0..8 {
        a.post_send(pd.reg_mr(b"queued".to_vec())?)?;
    }
    let ninth = a.post_send(pd.reg_mr(b"one too many".to_vec())?);
    let Err(refused) = ninth else {
        return Err("nine fit into a queue of eight".into());
    };
    println!("the ninth of 8      {refused}");
    b.post_recv(pd.alloc_buf(64)?)?;
    sent.clear();
    send_cq.wait(&mut sent, Wait::Busy, None)?;
    // The refused buffer came back with the refusal.
    let again = refused.into_buf().ok_or("no buffer")?;
    a.post_send(again)?;
    println!("after a completion  accepted");
    // ANCHOR_END: full
    Ok(())
}
