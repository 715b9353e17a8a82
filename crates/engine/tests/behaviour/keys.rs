//! Memory keys: who may touch what.

use adverb_engine::*;

use crate::harness::*;

fn spec(access: Access) -> MrSpec {
    MrSpec {
        pd: PD,
        iova: 0x1000,
        len: 100,
        access,
    }
}

fn ask(key: Key, va: u64, len: u64, need: Access) -> MemAccess {
    MemAccess {
        key,
        pd: PD,
        qp: QpNum(1),
        va,
        len,
        need,
        remote: true,
    }
}

#[test]
fn ranges_are_exact_and_never_wrap() {
    let mut keys = KeyTable::new(10, 1);
    let key = keys.insert(spec(all_access()), "memory").unwrap();
    let resolve = |va, len| {
        keys.resolve(&ask(key, va, len, Access::REMOTE_READ))
            .map(|(_, offset)| offset)
    };
    assert_eq!(resolve(0x1000, 100), Ok(0));
    assert_eq!(resolve(0x1063, 1), Ok(99));
    for (va, len) in [
        (0xfff, 1),
        (0x1000, 101),
        (0x1063, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, 5),
        (0x1000, u64::MAX),
        (0, u64::MAX),
    ] {
        assert!(
            matches!(resolve(va, len), Err(KeyError::Range { .. })),
            "{va:#x} {len}"
        );
    }
}

#[test]
fn rights_and_domains_must_match() {
    let mut keys = KeyTable::new(10, 1);
    let read_only = keys.insert(spec(Access::REMOTE_READ), ()).unwrap();
    assert!(
        keys.resolve(&ask(read_only, 0x1000, 1, Access::empty()))
            .is_ok(),
        "reading locally is always allowed"
    );
    assert!(
        keys.resolve(&ask(read_only, 0x1000, 1, Access::REMOTE_READ))
            .is_ok()
    );
    for need in [
        Access::LOCAL_WRITE,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
    ] {
        assert!(matches!(
            keys.resolve(&ask(read_only, 0x1000, 1, need)),
            Err(KeyError::Denied { .. })
        ));
    }
    let other = MemAccess {
        pd: SRQ_PD,
        ..ask(read_only, 0x1000, 1, Access::empty())
    };
    assert!(matches!(
        keys.resolve(&other),
        Err(KeyError::WrongPd { .. })
    ));
}

#[test]
fn any_changed_bit_of_a_key_misses() {
    let mut keys = KeyTable::new(10, 1);
    let key = keys.insert(spec(all_access()), ()).unwrap();
    for bit in 0..32 {
        assert!(keys.get(Key(key.0 ^ 1 << bit)).is_none());
    }
}

#[test]
fn keys_do_not_count_up_and_do_not_come_back_soon() {
    let mut keys = KeyTable::new(1000, 5);
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let key = keys.insert(spec(all_access()), ()).unwrap();
        assert!(!seen.contains(&key), "a freed key came back");
        assert_ne!(key, Key(0));
        seen.push(key);
        keys.remove(key).unwrap();
        assert!(keys.remove(key).is_none());
        assert!(keys.resolve(&ask(key, 0x1000, 1, Access::empty())).is_err());
    }
    assert!(seen.windows(2).any(|w| w[1] < w[0]));
    let mut same = KeyTable::new(1000, 5);
    assert_eq!(
        same.insert(spec(all_access()), ()).unwrap(),
        seen[0],
        "the seed decides"
    );
}

#[test]
fn the_limit_is_kept_and_many_keys_work() {
    let mut keys = KeyTable::new(100_000, 9);
    let all: Vec<Key> = (0..100_000u64)
        .map(|n| keys.insert(spec(all_access()), n).unwrap())
        .collect();
    assert_eq!(
        keys.insert(spec(all_access()), 0),
        Err(KeyError::Limit { limit: 100_000 })
    );
    for (n, key) in all.iter().enumerate() {
        assert_eq!(*keys.get(*key).unwrap().1, n as u64);
    }
    keys.remove(all[7]).unwrap();
    keys.insert(spec(all_access()), 0).unwrap();
}

#[test]
fn access_flags_are_checked() {
    assert!(matches!(
        Access::from_request(2),
        Err(KeyError::NeedsLocalWrite { .. })
    ));
    assert!(matches!(
        Access::from_request(8),
        Err(KeyError::NeedsLocalWrite { .. })
    ));
    assert_eq!(
        Access::from_request(1 << 15),
        Err(KeyError::UnknownAccess { bits: 1 << 15 })
    );
    // Unknown optional bits are ignored.
    assert_eq!(
        Access::from_request(1 | 1 << 29 | 1 << 20),
        Ok(Access::LOCAL_WRITE | Access::RELAXED_ORDERING)
    );
    let mut keys = KeyTable::new(10, 1);
    assert!(keys.insert(spec(Access::REMOTE_WRITE), ()).is_err());
    let wraps = MrSpec {
        iova: u64::MAX - 5,
        ..spec(all_access())
    };
    assert!(matches!(
        keys.insert(wraps, ()),
        Err(KeyError::Wraps { .. })
    ));
    assert!(keys.is_empty());
}

#[test]
fn a_key_can_get_another_meaning() {
    let mut keys = KeyTable::new(10, 1);
    let key = keys.insert(spec(all_access()), ()).unwrap();
    assert!(keys.rereg(key, spec(Access::REMOTE_WRITE)).is_err());
    assert!(
        keys.resolve(&ask(key, 0x1000, 1, Access::REMOTE_READ))
            .is_ok(),
        "the old meaning stays"
    );
    keys.rereg(
        key,
        MrSpec {
            iova: 0,
            ..spec(Access::empty())
        },
    )
    .unwrap();
    assert!(keys.resolve(&ask(key, 0, 100, Access::empty())).is_ok());
    assert!(keys.resolve(&ask(key, 0x1000, 1, Access::empty())).is_err());
    assert_eq!(
        keys.invalidate(key, PD, QpNum(1)),
        Err(KeyError::NotInvalidatable { key: key.0 })
    );
}
