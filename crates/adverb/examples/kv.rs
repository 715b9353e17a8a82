//! A store of keys and values: clients read with one-sided reads, and the server does nothing for it. A key whose
//! place is taken displaces the one that is there.
//!
//! `kv serve ADDRESS:PORT`, `kv put ADDRESS:PORT KEY VALUE`, `kv get ADDRESS:PORT KEY`; with `system` at the end it
//! takes a device of the system instead of the software NIC.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;
use std::time::Duration;
use std::{env, thread};

use adverb::cm::{Connection, Connector, Listener, Params, Request};
use adverb::transport::Rc;
use adverb::{AccessFlags, Buffer, CompletionQueue, Exposed, OpKind, Origin, ProtectionDomain};
use adverb::{RemoteRegion, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LONG: Option<Duration> = Some(Duration::from_secs(20));
/// A slot: a checksum of 8 bytes, then key and value, each filled up with zeros.
const KEY: usize = 24;
const VALUE: usize = 96;
const SLOT: usize = 8 + KEY + VALUE;
const SLOTS: u64 = 1024;

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
        ["serve", address] => serve(address, origin),
        ["put", address, key, value] => put(connect(address, origin)?, key, value),
        ["get", address, key] => get(connect(address, origin)?, key),
        _ => Err("usage: kv serve ADDRESS | put ADDRESS KEY VALUE | get ADDRESS KEY".into()),
    }
}

fn serve(address: &str, origin: Origin) -> Result<String> {
    let listener = Listener::builder().origin(origin).bind(address)?;
    println!("listening {}", listener.local_addr()?);
    let pd = &listener.context()?.alloc_pd()?;
    let table = &Mutex::new(pd.expose(SLOT * SLOTS as usize, AccessFlags::REMOTE_READ)?);
    thread::scope(|scope| {
        while let Some(request) = listener.accept(None)? {
            scope.spawn(move || attend(request, pd, table).map_err(|e| eprintln!("a client: {e}")));
        }
        Ok(String::new())
    })
}

/// Stores what one client sends, until it hangs up.
fn attend(request: Request, pd: &ProtectionDomain, table: &Mutex<Exposed>) -> Result<()> {
    let cq = request.context()?.create_cq(64).build()?;
    let qp = pd.create_qp::<Rc>(&cq).build()?;
    qp.post_recv(pd.alloc_buf(SLOT)?)?;
    let region = table.lock().expect("nobody panics").remote();
    let params = Params::with_private_data(region.to_bytes());
    let connection = request.accept(qp, &params, LONG)?;
    let mut done = Vec::new();
    while connection.wait(&cq, &mut done, None)? > 0 {
        for completion in done.drain(..) {
            let Some(slot) = completion.payload().filter(|p| is_whole(p)) else {
                continue; // anybody may send anything
            };
            let at = place_of(&slot[8..8 + KEY]) as usize;
            table.lock().expect("nobody panics").write_at(at, slot)?;
            connection.post_recv(pd.alloc_buf(SLOT)?)?;
            connection.post_send(pd.reg_mr(b"stored".to_vec())?)?;
        }
    }
    Ok(())
}

type Client = (ProtectionDomain, CompletionQueue, Connection);

fn connect(address: &str, origin: Origin) -> Result<Client> {
    let route = Connector::new().origin(origin).resolve(address, LONG)?;
    let ctx = route.context()?;
    let (pd, cq) = (ctx.alloc_pd()?, ctx.create_cq(64).build()?);
    let qp = pd.create_qp::<Rc>(&cq).build()?;
    qp.post_recv(pd.alloc_buf(64)?)?;
    Ok((pd, cq, route.connect(qp, &Params::default(), LONG)?))
}

fn put((pd, cq, server): Client, key: &str, value: &str) -> Result<String> {
    server.post_send(pd.reg_mr(slot(key, value)?)?)?;
    let mut done = Vec::new();
    while server.wait(&cq, &mut done, LONG)? > 0 {
        if let Some(answer) = done.iter().find_map(|c| c.payload()) {
            return Ok(String::from_utf8_lossy(answer).into_owned());
        }
    }
    Err("the server has hung up, or is too slow".into())
}

fn get((pd, cq, server): Client, key: &str) -> Result<String> {
    let table = server.private_data().get(..RemoteRegion::BYTES);
    let table = RemoteRegion::from_bytes(table.unwrap_or_default())?;
    let wanted = &slot(key, "")?[8..8 + KEY];
    let place = table.slice(place_of(wanted)..)?.slice(..SLOT as u64)?;
    loop {
        server.post_read(pd.alloc_buf(SLOT)?, place)?;
        let mut done = Vec::new();
        cq.wait(&mut done, Wait::default(), LONG)?;
        let read = done.into_iter().find(|c| c.kind == OpKind::Read);
        let read = read.ok_or("the server is gone, or is too slow")?.ok()?;
        let read = read
            .and_then(Buffer::into_buf)
            .ok_or("a read has a buffer")?;
        if is_whole(&read) && &read[8..8 + KEY] == wanted {
            let value = String::from_utf8_lossy(&read[8 + KEY..]);
            return Ok(value.trim_end_matches('\0').to_owned());
        } else if is_whole(&read) || read.iter().all(|b| *b == 0) {
            return Err(format!("no key {key:?}").into());
        } // else it met a write half done
    }
}

fn slot(key: &str, value: &str) -> Result<Vec<u8>> {
    if key.len() > KEY || value.len() > VALUE {
        return Err(format!("a key has {KEY} bytes at most, a value {VALUE}").into());
    }
    let mut rest = vec![0; KEY + VALUE];
    rest[..key.len()].copy_from_slice(key.as_bytes());
    rest[KEY..KEY + value.len()].copy_from_slice(value.as_bytes());
    Ok([hash(&rest).to_ne_bytes().to_vec(), rest].concat())
}

fn is_whole(slot: &[u8]) -> bool {
    slot.len() == SLOT && slot[..8] == hash(&slot[8..]).to_ne_bytes()
}

/// Where the slot of a key begins.
fn place_of(key: &[u8]) -> u64 {
    hash(key) % SLOTS * SLOT as u64
}

fn hash(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}
