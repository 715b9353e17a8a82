//! A first program: two queue pairs, one message, one remote write, one remote counter.
//! `cargo run --example first` runs it on any machine.

use adverb::transport::Rc;
use adverb::{AccessFlags, Completion, CompletionQueue, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(64).build()?;

    // Two ends of one connection. Usually each lives in its own process, and they tell each
    // other their endpoints over a socket: see `Introduction::exchange`.
    let a = pd.create_qp::<Rc>(&cq).build()?;
    let b = pd.create_qp::<Rc>(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;

    // A message. Buffers move into the operations and come back with the completions.
    b.post_recv(pd.alloc_buf(64)?)?;
    a.post_send(pd.reg_mr(b"hello, verbs".to_vec())?)?;
    for done in wait_for(&cq, 2)? {
        if let Some(text) = done.payload() {
            println!("received: {}", String::from_utf8_lossy(text));
        }
        done.result?;
    }

    // Memory that peers may touch: `a` writes to it and counts in it; `b` does nothing.
    let window = pd.expose(64, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC)?;
    a.post_write(pd.reg_mr(41u64.to_ne_bytes().to_vec())?, window.remote())?;
    a.post_fetch_add(pd.alloc_buf(8)?, window.remote(), 1)?;
    for done in wait_for(&cq, 2)? {
        done.result?;
    }
    println!(
        "counter: {}",
        window.load_u64(0, std::sync::atomic::Ordering::Acquire)?
    );
    Ok(())
}

fn wait_for(cq: &CompletionQueue, count: usize) -> adverb::Result<Vec<Completion>> {
    let mut done = Vec::new();
    while done.len() < count {
        cq.wait(&mut done, Wait::default(), None)?;
    }
    Ok(done)
}
