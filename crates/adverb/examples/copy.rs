//! Copies a file: each chunk is written into the receiver's memory, and four bytes beside it say how long it is. The
//! receiver's credits say that a place is free again, so that nobody overruns nobody.
//!
//! `copy receive ADDRESS:PORT FILE`, `copy send ADDRESS:PORT FILE`; with `system` at the end it takes a device of the
//! system instead of the software NIC.

use std::env;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use adverb::cm::{Connector, Listener, Params};
use adverb::transport::Rc;
use adverb::{AccessFlags, Completion, OpKind, Origin, RemoteRegion};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const CHUNK: usize = 64 << 10;
/// Places for chunks, and so the credits there are.
const PLACES: usize = 8;

#[allow(dead_code, reason = "the test calls `run`")]
fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let answer = run(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
    println!("{answer}");
    Ok(())
}

pub(crate) fn run(args: &[&str]) -> Result<String> {
    let (args, origin) = match args {
        [args @ .., "system"] => (args, Origin::System),
        args => (args, Origin::Software),
    };
    match args {
        ["receive", address, file] => receive(address, origin, File::create(file)?),
        ["send", address, file] => send(address, origin, File::open(file)?),
        _ => Err("usage: copy receive ADDRESS FILE | copy send ADDRESS FILE".into()),
    }
}

fn receive(address: &str, origin: Origin, mut file: File) -> Result<String> {
    let listener = Listener::builder().origin(origin).bind(address)?;
    println!("listening {}", listener.local_addr()?);
    let request = listener.accept(None)?.ok_or("nobody comes")?;
    let ctx = request.context()?;
    let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
    let places = pd.expose(PLACES * CHUNK, AccessFlags::REMOTE_WRITE)?;
    let qp = pd.create_qp::<Rc>(&cq).build()?;
    for _ in 0..PLACES {
        qp.post_recv(pd.alloc_buf(0)?)?;
    }
    let params = Params::with_private_data(places.remote().to_bytes());
    let connection = request.accept(qp, &params, LONG)?;
    let (mut done, mut chunks, mut total) = (Vec::new(), 0, 0);
    let mut chunk = vec![0; CHUNK];
    while connection.wait(&cq, &mut done, LONG)? > 0 {
        for completion in done.drain(..) {
            let Some(len) = said(&completion)? else {
                continue;
            };
            if len == 0 {
                file.sync_all()?;
                connection.post_send_imm(pd.alloc_buf(0)?, 0)?;
                // The sender hangs up when it has heard that all is there.
                while connection.next_event(LONG)?.is_none() {}
                return Ok(format!("{total} bytes received"));
            }
            let part = chunk.get_mut(..len as usize).ok_or("a chunk too long")?;
            places.read_at(chunks % PLACES * CHUNK, part)?;
            connection.post_recv(pd.alloc_buf(0)?)?;
            connection.post_send_imm(pd.alloc_buf(0)?, 1)?;
            file.write_all(part)?;
            (chunks, total) = (chunks + 1, total + u64::from(len));
        }
    }
    Err("the sender has hung up, or is too slow".into())
}

fn send(address: &str, origin: Origin, mut file: File) -> Result<String> {
    let route = Connector::new().origin(origin).resolve(address, LONG)?;
    let ctx = route.context()?;
    let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
    let qp = pd.create_qp::<Rc>(&cq).build()?;
    for _ in 0..=PLACES {
        qp.post_recv(pd.alloc_buf(0)?)?;
    }
    let connection = route.connect(qp, &Params::default(), LONG)?;
    let places = connection.private_data().get(..RemoteRegion::BYTES);
    let places = RemoteRegion::from_bytes(places.unwrap_or_default())?;
    let (mut done, mut chunks, mut total) = (Vec::new(), 0, 0);
    let (mut credits, mut at_end, mut free) = (PLACES, false, Vec::new());
    for _ in 0..PLACES {
        free.push(pd.alloc_buf(CHUNK)?);
    }
    loop {
        while credits > 0 && !at_end {
            let Some(mut buf) = free.pop() else { break };
            let len = file.read(&mut buf)?;
            buf.set_len(len)?;
            let place = (chunks % PLACES * CHUNK) as u64;
            connection.post_write_imm(buf, places.slice(place..)?, len as u32)?;
            (chunks, total, credits) = (chunks + 1, total + len, credits - 1);
            at_end = len == 0;
        }
        if connection.wait(&cq, &mut done, LONG)? == 0 {
            return Err("the receiver has hung up, or is too slow".into());
        }
        for completion in done.drain(..) {
            match said(&completion)? {
                Some(0) => {
                    connection.close(LONG)?;
                    return Ok(format!("{total} bytes sent"));
                }
                Some(_) => {
                    credits += 1;
                    connection.post_recv(pd.alloc_buf(0)?)?;
                }
                None => free.extend(completion.into_buf().filter(|b| b.capacity() == CHUNK)),
            }
        }
    }
}

/// The four bytes that came with a message; `None` for the end of an operation of our own.
fn said(completion: &Completion) -> Result<Option<u32>> {
    let info = completion.result?;
    Ok(info.imm.filter(|_| completion.kind == OpKind::Recv))
}
