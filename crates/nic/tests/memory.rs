//! Regions, windows and device memory: limits in full, and what holds what.

use std::sync::Arc;

use adverb_nic::{Access, Advice, Context, Key, NicError, Pd, Sge, WindowType, devices};

fn open() -> (Arc<Context>, Arc<Pd>) {
    let context = Context::open(&devices().unwrap()[0]).unwrap();
    let pd = context.alloc_pd().unwrap();
    (context, pd)
}

#[test]
fn all_regions_and_windows_that_are_advertised_exist_at_once() {
    let (context, pd) = open();
    let limits = context.device().limits().clone();
    let memory = [0u64; 8];
    let addr = memory.as_ptr() as u64;
    let mrs: Vec<_> = (0..limits.max_mr)
        .map(|_| pd.reg_mr(addr, 64, addr, Access::empty()).unwrap())
        .collect();
    let mws: Vec<_> = (0..limits.max_mw)
        .map(|_| pd.alloc_mw(WindowType::Two).unwrap())
        .collect();
    assert!(matches!(
        pd.reg_mr(addr, 64, addr, Access::empty()),
        Err(NicError::Limit { what: "MR", .. })
    ));
    assert!(matches!(
        pd.alloc_mw(WindowType::One),
        Err(NicError::Limit { what: "MW", .. })
    ));
    let mut keys: Vec<u32> = mrs.iter().map(|mr| mr.lkey()).collect();
    keys.extend(mws.iter().map(|mw| mw.key().0));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), (limits.max_mr + limits.max_mw) as usize);
    mrs[7].dereg().unwrap();
    mws[7].dealloc().unwrap();
    pd.reg_mr(addr, 64, addr, Access::empty()).unwrap();
    pd.alloc_mw(WindowType::One).unwrap();
    assert!(matches!(
        pd.dealloc(),
        Err(NicError::Busy { what: "PD", .. })
    ));
    drop((mrs, mws));
    pd.dealloc().unwrap();
}

#[test]
fn device_memory_is_limited_by_the_byte_and_held_by_its_regions() {
    let (context, pd) = open();
    let limit = context.device().limits().max_dm_size;
    let half = context.alloc_dm(limit / 2, 0).unwrap();
    let rest = context.alloc_dm(limit / 2, 12).unwrap();
    assert!(matches!(
        context.alloc_dm(4, 0),
        Err(NicError::Limit { .. })
    ));
    half.copy_to(4, &[9; 8]).unwrap();
    let mut back = [0; 16];
    half.copy_from(0, &mut back).unwrap();
    assert_eq!(back, [0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0]);
    let mr = pd.reg_dm_mr(&half, 0, 16, Access::ZERO_BASED).unwrap();
    assert!(matches!(half.free(), Err(NicError::Busy { count: 1, .. })));
    assert!(mr.rereg(None, None, Some(Access::ZERO_BASED)).is_err());
    mr.dereg().unwrap();
    half.free().unwrap();
    drop(half);
    context.alloc_dm(limit / 2, 0).unwrap();
    drop(rest);
    context.alloc_dm(limit, 0).unwrap();
}

#[test]
fn advice_brings_pages_of_on_demand_regions_only() {
    let (_context, pd) = open();
    let memory = vec![0u8; 100_000];
    let addr = memory.as_ptr() as u64;
    let whole = pd
        .reg_mr(0, u64::MAX, 0, Access::ON_DEMAND | Access::LOCAL_WRITE)
        .unwrap();
    let plain = pd.reg_mr(addr, 100_000, addr, Access::empty()).unwrap();
    let piece = |key, addr, len| Sge {
        addr,
        len,
        lkey: Key(key),
    };
    let good = piece(whole.lkey(), addr, 100_000);
    for advice in [
        Advice::Prefetch,
        Advice::PrefetchWrite,
        Advice::PrefetchNoFault,
    ] {
        pd.advise(advice, true, &[good, good]).unwrap();
    }
    let nowhere = piece(whole.lkey(), 16, 8);
    assert!(matches!(
        pd.advise(Advice::Prefetch, true, &[good, nowhere]),
        Err(NicError::Fault { addr: 16, .. })
    ));
    pd.advise(Advice::Prefetch, false, &[nowhere]).unwrap();
    assert!(matches!(
        pd.advise(Advice::Prefetch, true, &[piece(plain.lkey(), addr, 8)]),
        Err(NicError::BadArgument(_))
    ));
    assert!(matches!(
        pd.advise(Advice::Prefetch, false, &[piece(0, addr, 8)]),
        Err(NicError::Fault { .. })
    ));
}

#[test]
fn an_imported_domain_is_the_same_one() {
    let (context, pd) = open();
    let other = Context::open(context.device()).unwrap();
    let twin = other.import_pd(&pd).unwrap();
    assert!(twin.is_same(&pd) && !context.alloc_pd().unwrap().is_same(&pd));
    let memory = [0u64; 8];
    let addr = memory.as_ptr() as u64;
    let mr = twin.reg_mr(addr, 64, addr, Access::empty()).unwrap();
    assert!(mr.is_in(&pd));
    assert!(matches!(pd.dealloc(), Err(NicError::Busy { .. })));
    mr.dereg().unwrap();
    pd.dealloc().unwrap();
}
