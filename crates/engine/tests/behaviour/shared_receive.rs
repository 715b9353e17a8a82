//! The shared receive queue by itself and under a connection.

use adverb_engine::*;

use crate::harness::*;

fn posted(n: u64) -> Srq {
    let mut srq = Srq::new(8, 2);
    for wr_id in 0..n {
        srq.post(&RecvWr { wr_id, sges: &[] }).unwrap();
    }
    srq
}

#[test]
fn entries_come_out_in_the_order_they_were_posted() {
    let mut srq = posted(8);
    assert_eq!(
        srq.post(&RecvWr {
            wr_id: 9,
            sges: &[]
        }),
        Err(PostError::QueueFull { limit: 8 })
    );
    let mut wqe = RecvWqe::empty();
    for id in 0..8 {
        assert_eq!(srq.take(&mut wqe), Some(false));
        assert_eq!(wqe.wr_id, id);
    }
    assert_eq!(srq.take(&mut wqe), None);
    let three = [Sge::default(); 3];
    assert_eq!(
        srq.post(&RecvWr {
            wr_id: 1,
            sges: &three
        }),
        Err(PostError::TooManySges { given: 3, limit: 2 })
    );
}

#[test]
fn limit_fires_once_when_the_fill_is_below_it() {
    let mut srq = posted(5);
    srq.modify(None, Some(3)).unwrap();
    let mut wqe = RecvWqe::empty();
    let fired: Vec<bool> = (0..5).map(|_| srq.take(&mut wqe).unwrap()).collect();
    // After the takes 4, 3, 2, 1, 0 are left: 2 is the first below 3.
    assert_eq!(fired, [false, false, true, false, false]);
    assert_eq!(srq.attrs().limit, 0);
    srq.modify(None, Some(1)).unwrap();
    srq.post(&RecvWr {
        wr_id: 1,
        sges: &[],
    })
    .unwrap();
    assert_eq!(srq.take(&mut wqe), Some(true));
}

#[test]
fn modify_is_all_or_nothing() {
    let mut srq = posted(5);
    assert_eq!(
        srq.modify(Some(4), Some(1)),
        Err(SrqError::TooSmall {
            posted: 5,
            wanted: 4
        })
    );
    assert_eq!(
        srq.modify(Some(6), Some(7)),
        Err(SrqError::Limit {
            limit: 7,
            max_wr: 6
        })
    );
    assert_eq!(
        srq.attrs(),
        SrqAttr {
            max_wr: 8,
            max_sge: 2,
            limit: 0
        }
    );
    srq.modify(Some(20), Some(2)).unwrap();
    assert_eq!(
        srq.attrs(),
        SrqAttr {
            max_wr: 20,
            max_sge: 2,
            limit: 2
        }
    );
    let mut wqe = RecvWqe::empty();
    srq.take(&mut wqe);
    assert_eq!(wqe.wr_id, 0);
}

#[test]
fn receives_are_checked_against_the_queues_own_domain() {
    for (pd, status) in [(SRQ_PD, WcStatus::Success), (PD, WcStatus::LocProtErr)] {
        let mut p = Pair::new(Setup {
            srq: true,
            ..Setup::rc()
        });
        let from = p.a.world.register(pattern(8, 1));
        let to = p.b.world.register_with(vec![0; 8], all_access(), pd);
        p.b.recv(3, &[to.sge(0, 8)]);
        p.a.send(1, SendOp::Send, &[from.sge(0, 8)]);
        p.drive();
        assert_eq!(p.b.world.recv_statuses(), [(3, status)]);
        assert_eq!(p.b.world.receives()[0].qp_num, QpNum(0x12));
    }
}

#[test]
fn an_empty_shared_queue_makes_the_sender_wait() {
    let mut p = Pair::new(Setup {
        srq: true,
        ..Setup::rc()
    });
    p.a.send(1, SendOp::Send, &[]);
    while p.b.qp.counters().rnr_naks_sent == 0 {
        p.step();
    }
    p.b.recv(1, &[]);
    p.drive();
    assert_eq!(p.a.world.send_statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn such_a_queue_pair_has_no_receive_queue_of_its_own() {
    let mut p = Pair::new(Setup {
        srq: true,
        ..Setup::rc()
    });
    let wr = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    assert_eq!(
        p.b.qp.post_recv(Instant::ZERO, &wr, &mut p.b.world),
        Err(PostError::UsesSrq)
    );
}
