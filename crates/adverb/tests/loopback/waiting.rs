//! The three ways to wait, and the rules around sleeping.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use adverb::transport::Rc;
use adverb::{
    CompletionQueue, Error, Limits, Notify, PostFlags, ProtectionDomain, QueuePair, Repolled, Wait,
};

use crate::{LONG, Pair, completions, context};

const ALL: [Wait; 3] = [
    Wait::Busy,
    Wait::Event,
    Wait::Adaptive(Limits {
        cpu_percent: 100,
        most_spin: None,
        latency_goal: None,
    }),
];

/// Sends and receives `rounds` times in turn; `first` says who begins.
fn ping_pong(
    pd: &ProtectionDomain,
    qp: &QueuePair<Rc>,
    cq: &CompletionQueue,
    how: Wait,
    rounds: u32,
    first: bool,
) {
    let mut inbound = None;
    let mut done = Vec::new();
    let mut sends = 0;
    qp.post_recv(pd.alloc_buf(64).unwrap()).unwrap();
    if first {
        // The peer's receive may not be there yet; the connection retries until it is.
        qp.post_send(pd.reg_mr(0u32.to_ne_bytes().to_vec()).unwrap())
            .unwrap();
    }
    for round in 0..rounds {
        while inbound.is_none() {
            assert!(
                cq.wait(&mut done, how, Some(LONG)).unwrap() > 0,
                "{how:?} round {round}"
            );
            for c in done.drain(..) {
                c.result.unwrap();
                match c.payload() {
                    Some(bytes) => {
                        let n = u32::from_ne_bytes(bytes.try_into().unwrap());
                        assert_eq!(n, round);
                        inbound = Some(c.into_buf().unwrap());
                    }
                    None => sends += 1,
                }
            }
        }
        let buf = inbound.take().unwrap();
        let next = if first { round + 1 } else { round };
        if !first || next < rounds {
            qp.post_recv(buf).unwrap();
            qp.post_send(pd.reg_mr(next.to_ne_bytes().to_vec()).unwrap())
                .unwrap();
        }
    }
    while sends < rounds {
        assert!(cq.wait(&mut done, how, Some(LONG)).unwrap() > 0);
        sends += done.drain(..).filter(|c| c.payload().is_none()).count() as u32;
    }
}

#[test]
fn two_threads_talk_under_every_pair_of_models() {
    for ours in ALL {
        for theirs in ALL {
            let Pair {
                pd,
                a,
                b,
                a_cq,
                b_cq,
            } = Pair::<Rc>::new();
            let peer_pd = pd.clone();
            let peer = thread::spawn(move || {
                ping_pong(&peer_pd, &b, &b_cq, theirs, 200, false);
                b
            });
            ping_pong(&pd, &a, &a_cq, ours, 200, true);
            drop(peer.join().unwrap());
        }
    }
}

#[test]
fn adaptive_waiting_counts_what_it_does_and_keeps_to_its_limits() {
    let pair = Pair::<Rc>::new();
    assert!(pair.b_cq.wait_counters().is_none() && pair.b_cq.wake_up_cost().is_none());
    let mut done = Vec::new();
    let mut receive = |limits| {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(3));
                pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
                drop(completions(&pair.a_cq, 1));
            });
            let how = Wait::Adaptive(limits);
            assert_eq!(pair.b_cq.wait(&mut done, how, Some(LONG)).unwrap(), 1);
        });
        pair.b_cq.wait_counters().unwrap()
    };
    let free = receive(Limits::default());
    assert!(free.waits > 0 && free.spins > 0, "{free:?}");
    let bound = receive(Limits {
        cpu_percent: 0,
        ..Limits::default()
    });
    assert_eq!(bound.spun_ns, free.spun_ns);
    assert!(bound.arms > free.arms && bound.wakes > 0, "{bound:?}");
    assert!(pair.b_cq.wake_up_cost() > Some(Duration::ZERO));
}

#[test]
fn the_time_being_up_is_no_error() {
    let ctx = context();
    let cq = ctx.create_cq(4).build().unwrap();
    let mut done = Vec::new();
    for how in ALL {
        assert_eq!(
            cq.wait(&mut done, how, Some(Duration::from_millis(2)))
                .unwrap(),
            0
        );
        assert_eq!(cq.wait(&mut done, how, Some(Duration::ZERO)).unwrap(), 0);
    }
}

#[test]
fn whoever_arms_too_late_finds_the_completion_in_the_second_poll() {
    let pair = Pair::<Rc>::new();
    pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
    drop(completions(&pair.a_cq, 1));
    let mut done = Vec::new();
    // The receive completed before the send did.
    match pair
        .b_cq
        .arm(Notify::Any)
        .unwrap()
        .repoll(&mut done)
        .unwrap()
    {
        Repolled::Found(n) => assert_eq!(n, 1),
        Repolled::Empty(_) => panic!("the completion is lost"),
    }
}

#[test]
fn an_armed_queue_makes_its_descriptor_readable() {
    let pair = Pair::<Rc>::new();
    pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    let mut done = Vec::new();
    let Repolled::Empty(sleep) = pair
        .b_cq
        .arm(Notify::Any)
        .unwrap()
        .repoll(&mut done)
        .unwrap()
    else {
        panic!("nothing was sent yet");
    };
    assert!(sleep.fd().is_ok() && pair.b_cq.event_fd().is_some());
    pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
    assert!(sleep.wait(Some(LONG)).unwrap());
    assert_eq!(completions(&pair.b_cq, 1).len(), 1);
    assert_eq!(pair.b_cq.take_events().unwrap(), 0);
}

#[test]
fn only_solicited_messages_wake_whoever_asked_for_those() {
    let pair = Pair::<Rc>::new();
    for _ in 0..2 {
        pair.b.post_recv(pair.pd.alloc_buf(8).unwrap()).unwrap();
    }
    let mut done = Vec::new();
    let Repolled::Empty(_) = pair
        .b_cq
        .arm(Notify::Solicited)
        .unwrap()
        .repoll(&mut done)
        .unwrap()
    else {
        panic!("nothing was sent yet");
    };
    pair.a.post_send(pair.pd.alloc_buf(8).unwrap()).unwrap();
    drop(completions(&pair.a_cq, 1));
    assert_eq!(pair.b_cq.take_events().unwrap(), 0);
    pair.a
        .with(PostFlags::SOLICITED)
        .send(pair.pd.alloc_buf(8).unwrap())
        .unwrap();
    drop(completions(&pair.a_cq, 1));
    assert_eq!(pair.b_cq.take_events().unwrap(), 1);
    drop(completions(&pair.b_cq, 2));
}

#[test]
fn a_queue_without_channel_can_only_be_polled() {
    let ctx = context();
    let cq = ctx.create_cq(4).without_channel().build().unwrap();
    assert!(cq.event_fd().is_none());
    let mut done = Vec::new();
    let brief = Some(Duration::from_millis(1));
    assert_eq!(cq.wait(&mut done, Wait::Busy, brief).unwrap(), 0);
    assert!(matches!(
        cq.wait(&mut done, Wait::Event, brief),
        Err(Error::NoChannel)
    ));
}

#[test]
fn a_shared_channel_tells_whose_event_it_is() {
    let ctx = context();
    let pd = ctx.alloc_pd().unwrap();
    let channel = ctx.create_channel().unwrap();
    let cqs = [(); 2].map(|()| ctx.create_cq(64).channel(&channel).build().unwrap());
    let quiet = ctx.create_cq(64).build().unwrap();
    let sender = pd.create_qp::<Rc>(&quiet).build().unwrap();
    let receiver = pd.create_qp::<Rc>(&quiet).recv_cq(&cqs[1]).build().unwrap();
    sender.connect(&receiver.endpoint()).unwrap();
    receiver.connect(&sender.endpoint()).unwrap();
    receiver.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    let mut done = Vec::new();
    for cq in &cqs {
        assert!(matches!(
            cq.arm(Notify::Any).unwrap().repoll(&mut done).unwrap(),
            Repolled::Empty(_)
        ));
        assert!(matches!(
            cq.wait(&mut done, Wait::Event, None),
            Err(Error::NoChannel)
        ));
    }
    assert!(
        channel
            .next_event(Some(Duration::from_millis(1)))
            .unwrap()
            .is_none()
    );
    sender.post_send(pd.alloc_buf(8).unwrap()).unwrap();
    let told = channel.next_event(Some(LONG)).unwrap().unwrap();
    assert_eq!(told.as_raw(), cqs[1].as_raw());
    assert_eq!(completions_of(&told), 1);
}

fn completions_of(cq: &CompletionQueue) -> usize {
    let mut done = Vec::new();
    cq.wait(&mut done, Wait::Busy, Some(LONG)).unwrap()
}

#[test]
fn several_sleepers_on_one_queue_share_its_completions() {
    const MESSAGES: usize = 60;
    let Pair {
        pd,
        a,
        b,
        a_cq,
        b_cq,
    } = Pair::<Rc>::new();
    let b = Arc::new(b);
    for _ in 0..16 {
        b.post_recv(pd.alloc_buf(8).unwrap()).unwrap();
    }
    let seen = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut done = Vec::new();
                while seen.load(std::sync::atomic::Ordering::SeqCst) < MESSAGES {
                    let n = b_cq
                        .wait(&mut done, Wait::Event, Some(Duration::from_millis(100)))
                        .unwrap();
                    seen.fetch_add(n, std::sync::atomic::Ordering::SeqCst);
                    for c in done.drain(..) {
                        b.post_recv(c.into_buf().unwrap()).unwrap();
                    }
                }
            });
        }
        for _ in 0..MESSAGES {
            a.post_send(pd.alloc_buf(8).unwrap()).unwrap();
            drop(completions(&a_cq, 1));
        }
    });
    assert_eq!(seen.into_inner(), MESSAGES);
}
