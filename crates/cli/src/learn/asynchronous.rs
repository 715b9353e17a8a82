//! A call starts work. A completion says that it is over.

use std::error::Error;
use std::time::Duration;

use adverb::transport::Rc;
use adverb::{Completion, Wait};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: open
    let ctx = adverb::open_default()?;
    println!("ibv_open_device     {}", ctx.device().name());
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(64).build()?;
    let a = pd.create_qp::<Rc>(&cq).build()?;
    let b = pd.create_qp::<Rc>(&cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    println!(
        "connected           A is in {}, B is in {}",
        a.state()?,
        b.state()?
    );
    // ANCHOR_END: open

    // ANCHOR: send
    let message = pd.reg_mr(b"hello, verbs".to_vec())?;
    a.post_send(message)?;
    println!("ibv_post_send       accepted on A");

    let mut done: Vec<Completion> = Vec::new();
    cq.wait(&mut done, Wait::Busy, Some(Duration::from_millis(20)))?;
    println!(
        "ibv_poll_cq         {} completions after 20 ms of looking",
        done.len()
    );
    // ANCHOR_END: send

    // ANCHOR: receive
    b.post_recv(pd.alloc_buf(64)?)?;
    println!("ibv_post_recv       accepted on B");
    while done.len() < 2 {
        cq.wait(&mut done, Wait::Busy, None)?;
    }
    for completion in done {
        let text = completion.payload().map(String::from_utf8_lossy);
        match &completion.result {
            Ok(info) if text.is_some() => {
                println!(
                    "completion          Recv, {} bytes: {}",
                    info.byte_len,
                    text.unwrap_or_default()
                );
            }
            Ok(_) => println!("completion          {:?}", completion.kind),
            Err(error) => println!("completion          {:?} failed: {error}", completion.kind),
        }
    }
    // ANCHOR_END: receive
    Ok(())
}
