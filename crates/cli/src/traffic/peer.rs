//! One side of a measurement: does what the coordinator orders.

use anyhow::{Context as _, Result, bail};

use super::control::{Answer, Control, Order, Outcome, Role, Run, Traffic};
use super::session::Session;
use super::socket::Sockets;
use super::talk::Verbs;
use super::wait::Waiter;
use super::{exchange, stream, write};
use crate::measure::cores;

/// Until the coordinator closes its end. Failures are answers.
pub(crate) fn obey(mut control: Control) -> Result<()> {
    let mut ends = Ends::default();
    while let Some(order) = control.next()? {
        let answer = match follow(order, &mut ends, &mut control) {
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

/// What this side has opened.
#[derive(Default)]
struct Ends {
    session: Option<Session>,
    sockets: Option<Sockets>,
}

fn follow(order: Order, ends: &mut Ends, control: &mut Control) -> Result<Answer> {
    match order {
        Order::Open(opening) => {
            // Before the device is opened, so that threads of the NIC stay on this core too and
            // do not disturb the other side.
            cores::pin(opening.core);
            let mut card = ends.session.insert(Session::open(&opening)?).card()?;
            if opening.sockets {
                card.sockets = Some(ends.sockets.insert(Sockets::open()?).names()?);
            }
            Ok(Answer::Card(card))
        }
        Order::Connect(card) => {
            open(&mut ends.session)?.connect(&card)?;
            if let Some(sockets) = &mut ends.sockets {
                sockets.know(&card);
            }
            Ok(Answer::Connected)
        }
        Order::Run(run) => {
            if run.role == Role::Server {
                control.answer(&Answer::Listening)?;
            }
            execute(ends, &run).map(Answer::Done)
        }
    }
}

fn open(session: &mut Option<Session>) -> Result<&mut Session> {
    session.as_mut().context("no device has been opened yet")
}

fn execute(ends: &mut Ends, run: &Run) -> Result<Outcome> {
    let way = run.waiting.way;
    if let Traffic::Exchange(schedule) = &run.traffic
        && !way.is_verbs()
    {
        let sockets = ends.sockets.as_mut().context("no sockets were asked for")?;
        let talk = sockets.talk(way, run.role)?;
        return match run.role {
            Role::Client => exchange::client(talk, run, schedule),
            Role::Server => exchange::server(talk, run),
        };
    }
    let session = open(&mut ends.session)?;
    if run.size > session.size() {
        bail!(
            "a message of {} bytes does not fit {}",
            run.size,
            session.size()
        );
    }
    let waiter = Waiter::new(run.waiting);
    let mut verbs = Verbs { session, waiter };
    match (&run.traffic, run.role) {
        (Traffic::Exchange(schedule), Role::Client) => exchange::client(&mut verbs, run, schedule),
        (Traffic::Exchange(_), Role::Server) => exchange::server(&mut verbs, run),
        (Traffic::WritePingPong, Role::Client) => write::client(verbs, run),
        (Traffic::WritePingPong, Role::Server) => write::server(verbs, run),
        (Traffic::Stream { op, window }, Role::Client) => stream::client(verbs, run, *op, *window),
        (Traffic::Stream { .. }, Role::Server) => stream::server(verbs),
    }
}
