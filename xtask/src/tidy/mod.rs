//! `cargo xtask tidy`: cheap checks that keep the picture in ARCHITECTURE.md true.

mod arrows;
mod exports;
mod floors;
mod texts;
mod unsafety;

use anyhow::Result;

pub(crate) fn run() -> Result<bool> {
    let metadata = crate::tree::metadata()?;
    let mut complaints = arrows::complaints(&metadata)?;
    complaints.extend(floors::complaints()?);
    complaints.extend(unsafety::complaints()?);
    unsafety::list()?;
    // No library yet is no complaint: `cargo xtask test` looks again after the release build.
    complaints.extend(exports::complaints()?);
    complaints.extend(texts::complaints()?);
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    println!("tidy: {} complaints", complaints.len());
    Ok(complaints.is_empty())
}
