//! Without blocking: every step is a descriptor.

use std::os::fd::{AsFd, AsRawFd};

use adverb::cm::{ConnectionEvent, Params, Progress};

use super::*;

/// Waits until one of the descriptors is readable.
fn readable(watched: &[&dyn AsFd]) {
    let mut polls: Vec<libc::pollfd> = watched
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: as many entries as are told.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 20_000) };
    assert!(ready > 0);
}

#[test]
fn one_thread_makes_a_connection_with_itself_by_watching_descriptors() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let mut resolving = connector().start(listener.local_addr().unwrap()).unwrap();
    let way = loop {
        resolving = match resolving.try_finish().unwrap() {
            Progress::Done(way) => break way,
            Progress::Pending(pending) => pending,
        };
        readable(&[&resolving]);
    };
    let mut asking = Some(way.start(ends.qp(), &Params::default()).unwrap());
    let (mut accepting, mut a, mut b) = (None, None, None);
    while a.is_none() || b.is_none() {
        let mut watched: Vec<&dyn AsFd> = vec![&listener];
        watched.extend(asking.iter().map(|c| c as &dyn AsFd));
        watched.extend(accepting.iter().map(|c| c as &dyn AsFd));
        readable(&watched);
        if let Some(request) = listener.try_accept().unwrap() {
            accepting = Some(request.start(ends.qp(), &Params::default()).unwrap());
        }
        for (step, done) in [(&mut asking, &mut a), (&mut accepting, &mut b)] {
            match step.take().map(|s| s.try_finish().unwrap()) {
                Some(Progress::Done(connection)) => *done = Some(connection),
                Some(Progress::Pending(pending)) => *step = Some(pending),
                None => {}
            }
        }
    }
    let (a, b) = (a.unwrap(), b.unwrap());
    a.disconnect().unwrap();
    readable(&[&b]);
    let over = Some(ConnectionEvent::Disconnected);
    assert_eq!(b.try_event().unwrap(), over);
    assert_eq!(a.next_event(LONG).unwrap(), over);
}

#[test]
fn a_timeout_beyond_all_time_is_none() {
    let listener = listener();
    let ends = Ends::on(&listener.context().unwrap());
    let ever = Some(Duration::MAX);
    let way = connector()
        .resolve(listener.local_addr().unwrap(), ever)
        .unwrap();
    let asking = way.start(ends.qp(), &Params::default()).unwrap();
    let request = listener.accept(ever).unwrap().unwrap();
    let accepting = request.start(ends.qp(), &Params::default()).unwrap();
    let (a, b) = (asking.wait(ever).unwrap(), accepting.wait(ever).unwrap());
    a.disconnect().unwrap();
    assert!(b.next_event(ever).unwrap().is_some());
    a.close(ever).unwrap();
}
