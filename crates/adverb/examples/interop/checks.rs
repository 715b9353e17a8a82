//! Operations that succeed, with their contents.

use std::sync::atomic::Ordering;

use adverb::transport::{Connected, Rc, Uc, Ud};
use adverb::{AccessFlags, Buf, GRH_LEN};

use crate::side::{Outcome, Role, Side, pattern, same, text};

/// Around every boundary of a packet that an MTU of 256, 1024 or 4096 has.
const SIZES: [usize; 14] = [
    0, 1, 3, 255, 257, 1023, 1024, 1025, 3001, 4095, 4096, 4097, 8192, 65_537,
];
/// More than a window of outstanding packets holds.
const LARGE: usize = 3 << 20;

pub(crate) fn send(side: &mut Side) -> Outcome {
    send_over::<Rc>(side)
}

pub(crate) fn send_unreliable(side: &mut Side) -> Outcome {
    send_over::<Uc>(side)
}

/// Every size with and without immediate data, into receives that were all there before.
fn send_over<T: Connected>(side: &mut Side) -> Outcome {
    let connection = side.connect::<T>(&[])?;
    if side.role == Role::Responder {
        for size in SIZES {
            for _ in 0..2 {
                let buf = side.pd.alloc_buf(size.max(8)).map_err(text)?;
                connection.qp.post_recv(buf).map_err(text)?;
            }
        }
    }
    side.meet()?;
    for (n, size) in SIZES.into_iter().enumerate() {
        for imm in [None, Some(0x0102_0304)] {
            if side.role == Role::Requester {
                let buf = registered(side, pattern(size, n))?;
                match imm {
                    None => connection.qp.post_send(buf),
                    Some(imm) => connection.qp.post_send_imm(buf, imm),
                }
                .map_err(text)?;
                side.done()?;
            } else {
                let done = side.success()?;
                let got = done.payload().ok_or("this is no receive")?;
                same(&format!("send of {size}"), got, &pattern(size, n))?;
                let found = done.result.map_err(text)?.imm;
                if found != imm {
                    return Err(format!("immediate {found:x?} instead of {imm:x?}"));
                }
            }
        }
    }
    side.meet()?;
    Ok(String::new())
}

pub(crate) fn write(side: &mut Side) -> Outcome {
    write_over::<Rc>(side)
}

pub(crate) fn write_unreliable(side: &mut Side) -> Outcome {
    write_over::<Uc>(side)
}

/// Every size, at an odd place; the immediate data of the last packet says that all is there.
fn write_over<T: Connected>(side: &mut Side) -> Outcome {
    let at = 13;
    let window = side
        .pd
        .expose(1 << 17, AccessFlags::REMOTE_WRITE)
        .map_err(text)?;
    let connection = side.connect::<T>(&[window.remote()])?;
    if side.role == Role::Responder {
        for _ in SIZES {
            let buf = side.pd.alloc_buf(8).map_err(text)?;
            connection.qp.post_recv(buf).map_err(text)?;
        }
    }
    side.meet()?;
    for (n, size) in SIZES.into_iter().enumerate() {
        if side.role == Role::Requester {
            let to = connection.theirs[0].slice(at..).map_err(text)?;
            let plain = registered(side, pattern(size, n + 100))?;
            connection.qp.post_write(plain, to).map_err(text)?;
            side.done()?;
            let told = registered(side, pattern(size, n))?;
            let posted = connection.qp.post_write_imm(told, to, n as u32);
            posted.map_err(text)?;
            side.done()?;
        } else {
            let info = side.success()?.result.map_err(text)?;
            if info.imm != Some(n as u32) || info.byte_len as usize != size || !info.by_write {
                return Err(format!("write of {size} told as {info:?}"));
            }
            let mut found = vec![0; size];
            window.read_at(at as usize, &mut found).map_err(text)?;
            same(&format!("write of {size}"), &found, &pattern(size, n))?;
        }
        // The next write must not come before this one was looked at.
        side.meet()?;
    }
    Ok(String::new())
}

/// Every size from an odd place, one of several megabytes, and several at once.
pub(crate) fn read(side: &mut Side) -> Outcome {
    let bytes = pattern(LARGE, 5);
    let window = side
        .pd
        .expose_bytes(bytes.clone(), AccessFlags::REMOTE_READ)
        .map_err(text)?;
    let connection = side.connect::<Rc>(&[window.remote()])?;
    side.meet()?;
    if side.role == Role::Requester {
        let theirs = connection.theirs[0];
        for (size, at) in SIZES.map(|size| (size, 7)).into_iter().chain([(LARGE, 0)]) {
            let buf = side.pd.alloc_buf(size).map_err(text)?;
            let from = theirs.slice(at as u64..(at + size) as u64).map_err(text)?;
            connection.qp.post_read(buf, from).map_err(text)?;
            let found = side.success()?.into_buf().ok_or("no buffer came back")?;
            same(&format!("read of {size}"), &found, &bytes[at..at + size])?;
        }
        for n in 0..8 {
            let buf = side.pd.alloc_buf(5000).map_err(text)?;
            let from = theirs.slice(n * 5000..(n + 1) * 5000).map_err(text)?;
            connection.qp.post_read(buf, from).map_err(text)?;
        }
        for n in 0..8 {
            let found = side.success()?.into_buf().ok_or("no buffer came back")?;
            let wanted = &bytes[n * 5000..(n + 1) * 5000];
            same(&format!("read {n} of 8 at once"), &found, wanted)?;
        }
    }
    side.meet()?;
    Ok(String::new())
}

/// Both atomics, one that swaps and one that does not.
pub(crate) fn atomic(side: &mut Side) -> Outcome {
    let counter = side
        .pd
        .expose(16, AccessFlags::REMOTE_ATOMIC)
        .map_err(text)?;
    counter.store_u64(8, 1000, Ordering::SeqCst).map_err(text)?;
    let connection = side.connect::<Rc>(&[counter.remote()])?;
    side.meet()?;
    if side.role == Role::Requester {
        let word = connection.theirs[0].slice(8..16).map_err(text)?;
        let added = 1 << 32;
        for (n, wanted) in [1000, 1005, 1005 + added, 1005 + added]
            .into_iter()
            .enumerate()
        {
            let result = side.pd.alloc_buf(8).map_err(text)?;
            let qp = &connection.qp;
            match n {
                0 => qp.post_fetch_add(result, word, 5),
                1 => qp.post_fetch_add(result, word, added),
                2 => qp.post_compare_swap(result, word, 1, 2),
                _ => qp.post_compare_swap(result, word, 1005 + added, 0x0102_0304_0506_0708),
            }
            .map_err(text)?;
            let found = side.success()?.into_buf().ok_or("no buffer came back")?;
            let found = u64::from_ne_bytes(found[..8].try_into().map_err(text)?);
            if found != wanted {
                return Err(format!("atomic {n}: {found} instead of {wanted}"));
            }
        }
    }
    side.meet()?;
    if side.role == Role::Responder {
        let left = counter.load_u64(8, Ordering::Acquire).map_err(text)?;
        if left != 0x0102_0304_0506_0708 {
            return Err(format!("{left:#x} is left"));
        }
    }
    Ok(String::new())
}

/// Sizes up to the MTU, there and back.
pub(crate) fn datagrams(side: &mut Side) -> Outcome {
    let sizes = [0, 1, 2, 3, 4, 255, 1000, 1024];
    let qp = side
        .pd
        .create_qp::<Ud>(&side.cq)
        .gid_index(side.gid)
        .max_recv_wr(64)
        .build()
        .map_err(text)?;
    qp.activate().map_err(text)?;
    for _ in sizes {
        let buf = side.pd.alloc_buf(GRH_LEN + 1024).map_err(text)?;
        qp.post_recv(buf).map_err(text)?;
    }
    let them = side.introduce(&qp, &[])?.endpoint;
    side.meet()?;
    let address = qp.address_of(&them).map_err(text)?;
    let to = side
        .pd
        .create_ah(&address)
        .map_err(text)?
        .to(them.qpn, them.qkey);
    for sender in [Role::Requester, Role::Responder] {
        for (n, size) in sizes.into_iter().enumerate() {
            if side.role == sender {
                let buf = registered(side, pattern(size, n))?;
                qp.post_send_imm_to(buf, &to, n as u32).map_err(text)?;
                side.done()?;
            } else {
                let done = side.success()?;
                let got = done.payload().ok_or("this is no receive")?;
                same(&format!("datagram of {size}"), got, &pattern(size, n))?;
                if done.sender() != Some(them.gid) {
                    return Err(format!("from {:?}, not {}", done.sender(), them.gid));
                }
                let info = done.result.map_err(text)?;
                if info.imm != Some(n as u32) || info.src_qp != them.qpn {
                    return Err(format!("datagram of {size} told as {info:?}"));
                }
            }
        }
        side.meet()?;
    }
    Ok(String::new())
}

fn registered(side: &Side, bytes: Vec<u8>) -> Result<Buf, String> {
    side.pd.reg_mr(bytes).map_err(text)
}
