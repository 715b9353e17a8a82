//! The usual failures, made on purpose, and what their completions say.

use std::error::Error;
use std::time::Duration;

use adverb::transport::Rc;
use adverb::{
    AccessFlags, Completion, CompletionQueue, ConnectOptions, Context, ProtectionDomain, QueuePair,
    Wait,
};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    wrong_key(&ctx, &pd)?;
    too_long(&ctx, &pd)?;
    no_receive(&ctx, &pd)?;
    wrong_psn(&ctx, &pd)
}

// ANCHOR: key
fn wrong_key(ctx: &Context, pd: &ProtectionDomain) -> Result<(), Box<dyn Error>> {
    println!("a READ where only writing is allowed, and a SEND behind it:");
    let [(a, a_cq), (b, _b_cq)] = pair(ctx, pd)?;
    connect(&a, &b, 0)?;
    let window = pd.expose(64, AccessFlags::REMOTE_WRITE)?;
    a.post_read(pd.alloc_buf(64)?, window.remote())?;
    a.post_send(pd.reg_mr(b"behind".to_vec())?)?;
    tell("A", &a_cq, 2)?;
    // The side that was accessed has no completion. It has an event.
    while let Some(event) = ctx.next_event(Some(Duration::from_millis(100)))? {
        println!("  B: event {:?}", event.kind);
    }
    println!("  A is in {}, B is in {}", a.state()?, b.state()?);
    Ok(())
}
// ANCHOR_END: key

// ANCHOR: long
fn too_long(ctx: &Context, pd: &ProtectionDomain) -> Result<(), Box<dyn Error>> {
    println!("100 bytes for a receive of 64:");
    let [(a, a_cq), (b, b_cq)] = pair(ctx, pd)?;
    connect(&a, &b, 0)?;
    b.post_recv(pd.alloc_buf(64)?)?;
    a.post_send(pd.alloc_buf(100)?)?;
    tell("A", &a_cq, 1)?;
    tell("B", &b_cq, 1)
}
// ANCHOR_END: long

// ANCHOR: receive
fn no_receive(ctx: &Context, pd: &ProtectionDomain) -> Result<(), Box<dyn Error>> {
    println!("no receive posted, rnr_retry 1:");
    let [(a, a_cq), (b, _b_cq)] = pair(ctx, pd)?;
    connect(&a, &b, 0)?;
    a.post_send(pd.reg_mr(b"nowhere to go".to_vec())?)?;
    tell("A", &a_cq, 1)
}
// ANCHOR_END: receive

// ANCHOR: psn
fn wrong_psn(ctx: &Context, pd: &ProtectionDomain) -> Result<(), Box<dyn Error>> {
    println!("B expects another first PSN:");
    let [(a, a_cq), (b, _b_cq)] = pair(ctx, pd)?;
    connect(&a, &b, 1000)?;
    b.post_recv(pd.alloc_buf(64)?)?;
    a.post_send(pd.reg_mr(b"a duplicate?".to_vec())?)?;
    tell("A", &a_cq, 1)
}
// ANCHOR_END: psn

type End = (QueuePair<Rc>, CompletionQueue);

/// Two queue pairs with a completion queue each, in INIT.
fn pair(ctx: &Context, pd: &ProtectionDomain) -> Result<[End; 2], Box<dyn Error>> {
    let end = || -> adverb::Result<_> {
        let cq = ctx.create_cq(64).build()?;
        Ok((pd.create_qp::<Rc>(&cq).build()?, cq))
    };
    Ok([end()?, end()?])
}

/// Connects with little patience. B expects A's first PSN and `ahead` more.
fn connect(a: &QueuePair<Rc>, b: &QueuePair<Rc>, ahead: u32) -> Result<(), Box<dyn Error>> {
    let impatient = ConnectOptions {
        timeout: 10,
        retry_count: 2,
        rnr_retry: 1,
        ..ConnectOptions::default()
    };
    a.connect_with(&b.endpoint(), &impatient)?;
    let mut seen = a.endpoint();
    seen.psn = (seen.psn + ahead) & 0x00ff_ffff;
    b.connect_with(&seen, &impatient)?;
    Ok(())
}

/// Waits for completions and prints what they say.
fn tell(who: &str, cq: &CompletionQueue, count: usize) -> Result<(), Box<dyn Error>> {
    let mut done: Vec<Completion> = Vec::new();
    while done.len() < count {
        cq.wait(&mut done, Wait::Busy, None)?;
    }
    for completion in done {
        match completion.result {
            Ok(_) => println!("  {who}: {:?} succeeded", completion.kind),
            Err(error) => println!("  {who}: {:?} failed: {error}", completion.kind),
        }
    }
    Ok(())
}
