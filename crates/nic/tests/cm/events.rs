//! Channels: who sleeps is woken, what was fetched is waited for, what was not moves along or is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adverb_nic::NicError;
use adverb_nic::cm::{CmChannel, CmEventKind, CmId};
use adverb_wire::cm::SPACE_TCP;

use crate::world::{
    CLIENT, Client, LISTENER, ask, connected, device, event, event_within, rep, req, serve,
    server_event,
};

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_thread_that_sleeps_for_an_event_is_woken() {
    let channel = CmChannel::new().unwrap();
    let listener = CmId::new(&channel, LISTENER).unwrap();
    let port = listener.bind(SPACE_TCP, None, 0, false).unwrap();
    listener.listen(&[device()], 0).unwrap();
    let sleeper = std::thread::spawn({
        let channel = Arc::clone(&channel);
        move || {
            let mut accepted = None;
            loop {
                let event = adverb_nic::wait(|w| channel.next_event(w)).unwrap();
                match event.kind {
                    CmEventKind::Request { id, .. } => {
                        id.accept(rep(b"")).unwrap();
                        accepted = Some(id);
                    }
                    CmEventKind::Established(_) => return accepted.unwrap(),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    // Long enough for it to fall asleep.
    std::thread::sleep(SHORT);
    let client = Client::new();
    client.connect("127.0.0.1", req(port, b""));
    assert!(matches!(client.event(), CmEventKind::Response(_)));
    client.id.establish().unwrap();
    let accepted = sleeper.join().unwrap();
    accepted.ack_events(1);
    listener.ack_events(1);
    let own = std::thread::spawn({
        let channel = Arc::clone(&channel);
        move || adverb_nic::wait(|w| channel.next_event(w)).unwrap()
    });
    std::thread::sleep(SHORT);
    listener.raise(99).unwrap();
    let event = own.join().unwrap();
    assert_eq!(event.user, LISTENER);
    assert!(matches!(event.kind, CmEventKind::Own(99)));
    listener.ack_events(1);
}

#[test]
fn destroying_waits_until_what_was_fetched_is_acknowledged() {
    let channel = CmChannel::new().unwrap();
    let id = CmId::new(&channel, 5).unwrap();
    id.raise(1).unwrap();
    id.raise(2).unwrap();
    assert_eq!(event(&channel).user, 5);
    let gone = Arc::new(AtomicBool::new(false));
    let waiter = std::thread::spawn({
        let (id, gone) = (Arc::clone(&id), Arc::clone(&gone));
        move || {
            id.destroy();
            gone.store(true, Ordering::Release);
        }
    });
    let end = std::time::Instant::now() + crate::world::LONG;
    // What nobody fetched is dropped at once.
    while crate::world::readable(&channel) {
        assert!(std::time::Instant::now() < end);
        std::thread::yield_now();
    }
    std::thread::sleep(SHORT);
    assert!(!gone.load(Ordering::Acquire));
    id.ack_events(1);
    waiter.join().unwrap();
    assert!(matches!(id.raise(3), Err(NicError::State { .. })));
}

#[test]
fn an_id_takes_its_events_along_to_another_channel() {
    let (one, two) = (CmChannel::new().unwrap(), CmChannel::new().unwrap());
    let id = CmId::new(&one, CLIENT).unwrap();
    let other = CmId::new(&one, 9).unwrap();
    for n in 0..3 {
        id.raise(n).unwrap();
        other.raise(n).unwrap();
    }
    assert_eq!(event(&one).user, CLIENT);
    let mover = std::thread::spawn({
        let (id, two) = (Arc::clone(&id), Arc::clone(&two));
        move || id.migrate(&two).unwrap()
    });
    for n in 1..3 {
        let event = event(&two);
        assert_eq!(event.user, CLIENT);
        assert!(matches!(event.kind, CmEventKind::Own(own) if own == n));
        id.ack_events(1);
    }
    assert!(!mover.is_finished(), "one is not acknowledged");
    id.ack_events(1);
    mover.join().unwrap();
    id.raise(7).unwrap();
    assert!(matches!(event(&two).kind, CmEventKind::Own(7)));
    for _ in 0..3 {
        assert_eq!(event(&one).user, 9);
    }
    assert!(event_within(&one, Duration::ZERO).is_none());
}

#[test]
fn a_request_that_waits_moves_with_its_listener() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    let to = CmChannel::new().unwrap();
    server.listener.migrate(&to).unwrap();
    let event = event(&to);
    assert_eq!(event.user, LISTENER);
    let CmEventKind::Request { id, .. } = event.kind else {
        panic!("{:?}", event.kind);
    };
    id.set_user(8);
    id.accept(rep(b"")).unwrap();
    client.event();
    client.id.establish().unwrap();
    assert_eq!(crate::world::event(&to).user, 8);
    server.listener.ack_events(1);
}

#[test]
fn an_accepted_id_may_move_while_it_is_connected() {
    let server = serve(SPACE_TCP);
    let (client, id) = connected(&server);
    let to = CmChannel::new().unwrap();
    id.migrate(&to).unwrap();
    client.id.disconnect().unwrap();
    assert!(matches!(event(&to).kind, CmEventKind::Disconnected));
}

#[test]
fn beyond_the_backlog_requests_are_heard_when_they_are_repeated() {
    let channel = CmChannel::new().unwrap();
    let listener = CmId::new(&channel, LISTENER).unwrap();
    let port = listener.bind(SPACE_TCP, None, 0, false).unwrap();
    listener.listen(&[device()], 2).unwrap();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let client = Client::new();
            let mut req = req(port, b"");
            // Seventy milliseconds, so that they are repeated soon, and long enough.
            req.remote_response_timeout = 14;
            client.connect("127.0.0.1", req);
            client
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..clients.len() {
        // Nothing is fetched for so long that all have been asked for at least once.
        std::thread::sleep(SHORT);
        let CmEventKind::Request { id, .. } = event(&channel).kind else {
            panic!("no request");
        };
        id.accept(rep(b"")).unwrap();
        ids.push(id);
    }
    listener.ack_events(ids.len() as u64);
    for client in &clients {
        assert!(matches!(client.event(), CmEventKind::Response(_)));
    }
}

#[test]
fn before_it_is_accepted_a_request_has_no_events() {
    let server = serve(SPACE_TCP);
    let client = ask(&server, b"");
    let (id, _) = server.request();
    client.id.destroy();
    // The asker has gone, which the answer shows.
    let end = std::time::Instant::now() + crate::world::LONG;
    while event_within(&server.channel, SHORT).is_some() {
        assert!(std::time::Instant::now() < end);
    }
    let error = id.accept(rep(b"")).unwrap_err();
    assert!(matches!(error, NicError::State { .. }), "{error}");
}

#[test]
fn a_forked_child_has_none_of_it() {
    let server = serve(SPACE_TCP);
    let (client, id) = connected(&server);
    // SAFETY: the child calls only what checks the generation first, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ebadf = |e: std::io::Error| e.raw_os_error() == Some(libc::EBADF);
        let forked = |e: NicError| matches!(e, NicError::Forked);
        let sound = adverb_nic::wait(|w| server.channel.next_event(w)).is_err_and(ebadf)
            && CmId::new(&server.channel, 0).is_err_and(forked)
            && id.disconnect().is_err_and(forked)
            && id.migrate(&client.channel).is_err_and(forked);
        id.destroy();
        drop(server.listener);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if sound { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    client.id.disconnect().unwrap();
    let kind = server_event(&server, &id);
    assert!(matches!(kind, CmEventKind::Disconnected), "{kind:?}");
}
