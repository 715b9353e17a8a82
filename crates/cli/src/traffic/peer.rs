//! One side of a measurement: does what the coordinator orders.

use anyhow::{Context as _, Result, bail};

use super::control::{Answer, Control, Order, Outcome, Role, Run, Traffic};
use super::session::Session;
use super::{exchange, stream, write};
use crate::measure::cores;

/// Until the coordinator closes its end. Failures are answers.
pub(crate) fn obey(mut control: Control) -> Result<()> {
    let mut session = None;
    while let Some(order) = control.next()? {
        let answer = match follow(order, &mut session, &mut control) {
            Ok(answer) => answer,
            Err(error) => {
                control.answer(&Answer::Failed(format!("{error:#}")))?;
                return Ok(());
            }
        };
        control.answer(&answer)?;
    }
    Ok(())
}

fn follow(order: Order, session: &mut Option<Session>, control: &mut Control) -> Result<Answer> {
    match order {
        Order::Open(opening) => {
            // Before the device is opened, so that threads of the NIC stay on this core too and
            // do not disturb the other side.
            cores::pin(opening.core);
            let opened = session.insert(Session::open(&opening)?);
            Ok(Answer::Card(opened.card()?))
        }
        Order::Connect(card) => {
            open(session)?.connect(&card)?;
            Ok(Answer::Connected)
        }
        Order::Run(run) => {
            let session = open(session)?;
            if run.role == Role::Server {
                control.answer(&Answer::Listening)?;
            }
            execute(session, &run).map(Answer::Done)
        }
    }
}

fn open(session: &mut Option<Session>) -> Result<&mut Session> {
    session.as_mut().context("no device has been opened yet")
}

fn execute(session: &mut Session, run: &Run) -> Result<Outcome> {
    if run.size > session.size() {
        bail!(
            "a message of {} bytes does not fit {}",
            run.size,
            session.size()
        );
    }
    match (run.traffic, run.role) {
        (Traffic::Exchange { gap_ns }, Role::Client) => exchange::client(session, run, gap_ns),
        (Traffic::Exchange { .. }, Role::Server) => exchange::server(session, run),
        (Traffic::WritePingPong, Role::Client) => write::client(session, run),
        (Traffic::WritePingPong, Role::Server) => write::server(session, run),
        (Traffic::Stream { op, window }, Role::Client) => stream::client(session, run, op, window),
        (Traffic::Stream { .. }, Role::Server) => stream::server(session, run),
    }
}
