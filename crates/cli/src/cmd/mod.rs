//! One file per command. Commands take a plan, and leave measuring and rendering to others.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod devices;
pub(crate) mod learn;
pub(crate) mod libdir;
pub(crate) mod run;
pub(crate) mod sysfs;
pub(crate) mod targets;

use crate::traffic::control::Control;
use crate::traffic::peer::obey;

/// One of the two processes of a measurement: takes orders on stdin, answers on stdout.
pub(crate) fn peer() -> anyhow::Result<()> {
    // The other end may be killed at any time, and a peer that spins must not outlive it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    obey(Control::new(std::io::stdin(), std::io::stdout()))
}
