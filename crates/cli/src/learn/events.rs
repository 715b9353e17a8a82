//! Sleeping on a completion queue: arm, poll once more, sleep, get, acknowledge, drain.

use std::error::Error;
use std::thread;
use std::time::Duration;

use adverb::transport::Rc;
use adverb::{Completion, Notify, Repolled};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ctx = adverb::open_default()?;
    let pd = ctx.alloc_pd()?;
    // ANCHOR: create
    // Each queue has a channel of its own unless told otherwise.
    let send_cq = ctx.create_cq(64).build()?;
    let recv_cq = ctx.create_cq(64).build()?;
    // ANCHOR_END: create
    let a = pd.create_qp::<Rc>(&send_cq).build()?;
    let b = pd.create_qp::<Rc>(&send_cq).recv_cq(&recv_cq).build()?;
    a.connect(&b.endpoint())?;
    b.connect(&a.endpoint())?;
    for _ in 0..8 {
        b.post_recv(pd.alloc_buf(64)?)?;
    }
    let mut done: Vec<Completion> = Vec::new();

    // ANCHOR: repoll
    // A message that comes before the queue is armed: the second poll finds it.
    a.post_send(pd.reg_mr(b"before".to_vec())?)?;
    thread::sleep(Duration::from_millis(10));
    match recv_cq.arm(Notify::Any)?.repoll(&mut done)? {
        Repolled::Found(n) => {
            println!("ibv_req_notify_cq   armed; the poll after it finds {n}: no sleep")
        }
        Repolled::Empty(_) => {
            println!("ibv_req_notify_cq   armed; the poll after it finds nothing")
        }
    }
    // ANCHOR_END: repoll
    done.clear();
    recv_cq.take_events()?;

    // ANCHOR: sleep
    // Five messages that come while this thread sleeps raise one event.
    let Repolled::Empty(sleep) = recv_cq.arm(Notify::Any)?.repoll(&mut done)? else {
        return Err("something came that nobody has sent".into());
    };
    println!("ibv_req_notify_cq   armed; the poll after it finds nothing");
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let sender = scope.spawn(|| -> adverb::Result<()> {
            thread::sleep(Duration::from_millis(20));
            for _ in 0..5 {
                a.post_send(pd.reg_mr(b"burst".to_vec())?)?;
            }
            Ok(())
        });
        let woken = sleep.wait(Some(Duration::from_secs(10)))?;
        println!("ibv_get_cq_event    woken: {woken}; the event is acknowledged");
        sender.join().expect("the sender does not panic")?;
        Ok(())
    })?;
    // ANCHOR_END: sleep

    // ANCHOR: drain
    while done.len() < 5 {
        recv_cq.poll(&mut done)?;
    }
    println!(
        "ibv_poll_cq         {} completions for one event",
        done.len()
    );
    println!("further events      {}", recv_cq.take_events()?);
    // ANCHOR_END: drain
    Ok(())
}
