//! The hidden command that `run --sysfs` starts: prints what it is to show.

use std::io::{self, Write as _};

use anyhow::Result;

pub(crate) fn execute() -> Result<()> {
    let entries = crate::sysfs::of_software_devices()?;
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &entries)?;
    out.flush()?;
    Ok(())
}
