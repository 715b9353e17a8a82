//! `adverb libdir`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use crate::plan;

pub(crate) fn execute() -> anyhow::Result<()> {
    let dir = plan::libdir()?;
    let mut out = std::io::stdout().lock();
    out.write_all(dir.as_os_str().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}
