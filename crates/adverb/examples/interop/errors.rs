//! Operations that fail, or wait, and how each side is told.

use std::time::Duration;

use adverb::transport::Rc;
use adverb::{AccessFlags, AsyncEventKind, ConnectOptions, RKey, RemoteRegion, WcStatus};

use crate::side::{Connection, Outcome, Role, Side, pattern, same, text};

/// The receive is posted when the requester has asked in vain for a while.
pub(crate) fn receiver_not_ready(side: &mut Side) -> Outcome {
    let connection = side.connect::<Rc>(&[])?;
    side.meet()?;
    match side.role {
        Role::Requester => {
            let buf = side.pd.reg_mr(pattern(5000, 1)).map_err(text)?;
            connection.qp.post_send(buf).map_err(text)?;
            side.done()?;
        }
        Role::Responder => {
            std::thread::sleep(Duration::from_millis(200));
            let buf = side.pd.alloc_buf(5000).map_err(text)?;
            connection.qp.post_recv(buf).map_err(text)?;
            let done = side.success()?;
            let got = done.payload().ok_or("this is no receive")?;
            same("the send", got, &pattern(5000, 1))?;
        }
    }
    side.meet()?;
    Ok(String::new())
}

/// The receive never comes, and the requester gives up after its retries.
pub(crate) fn receiver_never_ready(side: &mut Side) -> Outcome {
    let options = ConnectOptions {
        rnr_retry: 2,
        ..side.options
    };
    let connection = side.connect_with::<Rc>(&[], &options)?;
    side.meet()?;
    if side.role == Role::Requester {
        let buf = side.pd.reg_mr(pattern(64, 1)).map_err(text)?;
        connection.qp.post_send(buf).map_err(text)?;
        side.failure(&[WcStatus::RNR_RETRY_EXC_ERR])?;
    }
    side.meet()?;
    Ok(String::new())
}

/// A key that the responder does not have.
pub(crate) fn write_without_right(side: &mut Side) -> Outcome {
    let window = side
        .pd
        .expose(64, AccessFlags::REMOTE_WRITE)
        .map_err(text)?;
    let connection = side.connect::<Rc>(&[window.remote()])?;
    let forged = connection.theirs.first().map(|theirs| RemoteRegion {
        rkey: RKey(theirs.rkey.0 ^ 0x0055_aa00),
        ..*theirs
    });
    let outcome = refused(side, &connection, |connection, side| {
        let buf = side.pd.reg_mr(pattern(64, 1)).map_err(text)?;
        let posted = connection.qp.post_write(buf, forged.ok_or("no region")?);
        posted.map(drop).map_err(text)
    })?;
    let mut left = [1; 64];
    window.read_at(0, &mut left).map_err(text)?;
    if left != [0; 64] {
        return Err("something was written".to_owned());
    }
    Ok(outcome)
}

/// A read that begins inside the region and ends behind it.
pub(crate) fn read_past_the_end(side: &mut Side) -> Outcome {
    let window = side
        .pd
        .expose(5000, AccessFlags::REMOTE_READ)
        .map_err(text)?;
    let connection = side.connect::<Rc>(&[window.remote()])?;
    let forged = connection.theirs.first().map(|theirs| RemoteRegion {
        len: theirs.len * 2,
        ..*theirs
    });
    refused(side, &connection, |connection, side| {
        let forged = forged.ok_or("no region")?;
        let buf = side.pd.alloc_buf(forged.len as usize).map_err(text)?;
        let posted = connection.qp.post_read(buf, forged);
        posted.map(drop).map_err(text)
    })
}

/// The requester must see a remote access error, the responder the end of its queue pair.
fn refused(
    side: &mut Side,
    connection: &Connection<Rc>,
    post: impl FnOnce(&Connection<Rc>, &Side) -> Result<(), String>,
) -> Outcome {
    if side.role == Role::Responder {
        let buf = side.pd.alloc_buf(64).map_err(text)?;
        connection.qp.post_recv(buf).map_err(text)?;
    }
    side.meet()?;
    let note = match side.role {
        Role::Requester => {
            post(connection, side)?;
            side.failure(&[WcStatus::REM_ACCESS_ERR])?;
            String::new()
        }
        Role::Responder => {
            let status = side.failure(&[WcStatus::WR_FLUSH_ERR, WcStatus::REM_ACCESS_ERR])?;
            let mut events = Vec::new();
            let patience = Some(Duration::from_millis(300));
            while let Some(event) = side.ctx.next_event(patience).map_err(text)? {
                events.push(event.kind);
            }
            let event = events.contains(&AsyncEventKind::QP_ACCESS_ERR);
            if side.is_soft() && !event {
                return Err("the owner of the memory was not told".to_owned());
            }
            format!(
                " (receive: {}; {} access event)",
                status.name(),
                if event { "an" } else { "no" }
            )
        }
    };
    side.meet()?;
    Ok(note)
}

/// A message that the receive has no room for.
pub(crate) fn message_too_long(side: &mut Side) -> Outcome {
    let connection = side.connect::<Rc>(&[])?;
    if side.role == Role::Responder {
        let buf = side.pd.alloc_buf(1500).map_err(text)?;
        connection.qp.post_recv(buf).map_err(text)?;
    }
    side.meet()?;
    let status = match side.role {
        Role::Requester => {
            let buf = side.pd.reg_mr(pattern(3000, 1)).map_err(text)?;
            connection.qp.post_send(buf).map_err(text)?;
            // The specification wants an invalid request; kernel software RoCE says operational.
            side.failure(&[WcStatus::REM_INV_REQ_ERR, WcStatus::REM_OP_ERR])?
        }
        // The specification's error of a receive that is too short; kernel software RoCE's is another.
        Role::Responder if side.is_soft() => side.failure(&[WcStatus::LOC_LEN_ERR])?,
        Role::Responder => side.failure(&[WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR])?,
    };
    side.meet()?;
    Ok(format!(" ({})", status.name()))
}

/// The responder's queue pair is no more.
pub(crate) fn peer_is_gone(side: &mut Side) -> Outcome {
    let options = ConnectOptions {
        retry_count: 2,
        ..side.options
    };
    let connection = side.connect_with::<Rc>(&[], &options)?;
    side.meet()?;
    match side.role {
        Role::Requester => {
            side.meet()?;
            let buf = side.pd.reg_mr(pattern(64, 1)).map_err(text)?;
            connection.qp.post_send(buf).map_err(text)?;
            side.failure(&[WcStatus::RETRY_EXC_ERR])?;
        }
        Role::Responder => {
            drop(connection);
            side.meet()?;
        }
    }
    side.meet()?;
    Ok(String::new())
}
