//! `adverb run --sysfs`: /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband as a program sees them.
//!
//! `tree` says which files there are and takes what they hold from the library's own queries, `words` has the spellings
//! of sysfs, `nodes` are the device files, `view` puts all of it where the program finds it, `refusal` says why a system
//! does not allow that.

mod nodes;
mod refusal;
mod tree;
mod view;
mod words;

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use tree::of_software_devices;

/// The name of the hidden command that prints the files as JSON.
pub(crate) const COMMAND: &str = "sysfs-tree";

/// Something below /sys/class, or another directory that is covered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Seen from there.
    pub(crate) path: String,
    pub(crate) node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Node {
    Directory,
    File(String),
    Link(String),
    /// What /dev/null is.
    Null,
}

/// Moves this process into a view of /sys/class and /dev with the software devices in it. `environment` is that of the program,
/// because it decides which devices there are.
pub(crate) fn show(environment: &[(&'static str, OsString)]) -> Result<()> {
    let entries = ask(environment).context("--sysfs: cannot ask for the software devices")?;
    if entries.is_empty() {
        bail!(
            "--sysfs: there is no software device to show: no network interface of ADVERB_NETDEV is up and has an address"
        );
    }
    view::enter(&entries)
}

/// A process of its own asks the devices: opening one may start threads, and a process with threads cannot move into
/// another user namespace.
fn ask(environment: &[(&'static str, OsString)]) -> Result<Vec<Entry>> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let output = Command::new(program)
        .arg(COMMAND)
        .envs(
            environment
                .iter()
                .filter(|(name, _)| name.starts_with("ADVERB_"))
                .cloned(),
        )
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("`adverb {COMMAND}` ended with {}", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
