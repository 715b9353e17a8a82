//! Many at a time, each leaving at another point: nothing hangs, and nobody hears of somebody else's connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adverb_nic::cm::CmEventKind;
use adverb_wire::cm::SPACE_TCP;

use crate::world::{Client, event_within, rep, req, serve};

const THREADS: u32 = 4;
const EACH: u32 = 60;

/// Accepts, refuses or forgets, as the request asks; says goodbye to who does.
fn serve_until(done: &AtomicBool, port: &std::sync::mpsc::Sender<u16>) {
    let server = serve(SPACE_TCP);
    port.send(server.port).unwrap();
    let mut ids = Vec::new();
    loop {
        let Some(event) = event_within(&server.channel, Duration::from_millis(20)) else {
            if done.load(Ordering::Acquire) {
                return;
            }
            continue;
        };
        match event.kind {
            CmEventKind::Request { id, req, .. } => {
                server.listener.ack_events(1);
                id.set_user(ids.len() as u64);
                match req.private[36] {
                    // Whoever has left already cannot be answered.
                    b'a' => drop(id.accept(rep(b""))),
                    b'r' => drop(id.reject(28, b"")),
                    _ => {}
                }
                ids.push(Some(id));
            }
            kind => {
                let id = ids[event.user as usize].as_ref().expect("not destroyed");
                id.ack_events(1);
                if let CmEventKind::Disconnected | CmEventKind::Rejected { .. } = kind {
                    id.disconnect().unwrap();
                    ids[event.user as usize] = None;
                }
            }
        }
    }
}

#[test]
fn nothing_hangs_whenever_somebody_leaves() {
    let done = AtomicBool::new(false);
    let (sender, port) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| serve_until(&done, &sender));
        let port = port.recv().unwrap();
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..EACH {
                        one_client(port, thread + n);
                    }
                })
            })
            .collect();
        // The server ends in any case, or a failure would look like a hang.
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Release);
        for end in ends {
            end.unwrap();
        }
    });
}

fn one_client(port: u16, kind: u32) {
    let client = Client::new();
    let wish: &[u8] = match kind % 6 {
        3 => b"r",
        4 => b"f",
        _ => b"a",
    };
    client.connect("127.0.0.1", req(port, wish));
    match kind % 6 {
        // Leaves at once, or without waiting for the answer to be fetched.
        0 | 4 => client.id.destroy(),
        1 => {
            assert!(matches!(client.event(), CmEventKind::Response(_)));
            // Dropped.
        }
        2 => {
            assert!(matches!(client.event(), CmEventKind::Response(_)));
            client.id.establish().unwrap();
            client.id.destroy();
        }
        3 => assert!(matches!(
            client.event(),
            CmEventKind::Rejected { reason: 28, .. }
        )),
        _ => {
            assert!(matches!(client.event(), CmEventKind::Response(_)));
            client.id.establish().unwrap();
            // From two threads at a time.
            let id = Arc::clone(&client.id);
            let other = std::thread::spawn(move || id.disconnect());
            let ours = client.id.disconnect();
            ours.unwrap();
            other.join().unwrap().unwrap();
            assert!(matches!(client.event(), CmEventKind::Disconnected));
        }
    }
}
