//! Protection domain, memory region, completion queue, queue pair: what each is for, and what it refuses.

use std::error::Error;

use adverb::transport::Rc;
use adverb::{AccessFlags, Completion, CompletionQueue, Wait};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    // ANCHOR: pd
    let pd = ctx.alloc_pd()?;
    let other = ctx.alloc_pd()?;
    println!("ibv_alloc_pd        two protection domains");
    // ANCHOR_END: pd

    // ANCHOR: cq
    let cq = ctx.create_cq(64).build()?;
    // Each queue pair may have 16 sends and 16 receives outstanding, and wants room for all of them.
    let a = pd.create_qp::<Rc>(&cq).build()?;
    let b = pd.create_qp::<Rc>(&cq).build()?;
    println!(
        "ibv_create_qp       A and B, on a queue of {} entries",
        cq.capacity()
    );
    if let Err(refused) = pd.create_qp::<Rc>(&cq).build() {
        println!("ibv_create_qp       a third: {refused}");
    }
    // ANCHOR_END: cq
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;

    // ANCHOR: foreign
    if let Err(refused) = a.post_send(other.reg_mr(b"hello".to_vec())?) {
        println!("ibv_post_send       memory of the other domain: {refused}");
    }
    // ANCHOR_END: foreign

    // ANCHOR: write
    // Memory of B that peers may write to. A learns its address and key, here without a socket.
    let open = pd.expose(64, AccessFlags::REMOTE_WRITE)?;
    a.post_write(pd.reg_mr(b"written from afar".to_vec())?, open.remote())?;
    println!("RDMA WRITE          {}", outcome(&cq)?);
    let mut text = [0; 17];
    open.read_at(0, &mut text)?;
    println!("memory of B         {}", String::from_utf8_lossy(&text));
    // ANCHOR_END: write

    // ANCHOR: rights
    let readable = pd.expose(64, AccessFlags::REMOTE_READ)?;
    a.post_write(pd.reg_mr(b"no".to_vec())?, readable.remote())?;
    println!(
        "RDMA WRITE          where only reading is allowed: {}",
        outcome(&cq)?
    );
    println!(
        "afterwards          A is in {}, B is in {}",
        a.state()?,
        b.state()?
    );
    // ANCHOR_END: rights
    Ok(())
}

/// Waits for one completion and says what it says.
fn outcome(cq: &CompletionQueue) -> Result<String, Box<dyn Error>> {
    let mut done: Vec<Completion> = Vec::new();
    cq.wait(&mut done, Wait::Busy, None)?;
    let completion = done.pop().ok_or("no completion")?;
    Ok(match completion.result {
        Ok(_) => "SUCCESS".to_owned(),
        Err(error) => error.status.name().to_owned(),
    })
}
