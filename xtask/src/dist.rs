//! `cargo xtask dist`: an installable prefix. `bin/adverb` finds the libraries in `../lib/adverb` from there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::tree::{self, Release};

/// The one library, under the name that most programs ask for.
const FILE: &str = "libibverbs.so.1";

pub(crate) fn command(mut args: Args) -> Result<bool> {
    let out: Option<PathBuf> = args.value("--out")?;
    args.finish()?;
    let release = Release::built()?;
    let out = out.unwrap_or_else(|| release.target.join("dist"));
    lay_out(&release, &out)?;
    println!("{}", out.display());
    Ok(true)
}

/// Fills `out`; files of an earlier `dist` there are replaced.
pub(crate) fn lay_out(release: &Release, out: &Path) -> Result<()> {
    let (bin, lib) = (out.join("bin"), out.join("lib/adverb"));
    for dir in [&bin, &lib] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    copy(&release.adverb, &bin.join("adverb"))?;
    let library = fs::canonicalize(release.libraries.join(FILE))
        .context("the drop-in library is not built")?;
    copy(&library, &lib.join(FILE))?;
    for entry in fs::read_dir(&release.libraries)? {
        let name = entry?.file_name();
        if name == FILE || !name.to_string_lossy().contains(".so") {
            continue;
        }
        // One inode for all names, because the loader recognises an inode it has mapped, and only then is there one
        // state for libibverbs and librdmacm.
        let link = lib.join(&name);
        remove(&link)?;
        symlink(FILE, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let from = tree::root().join(text);
        if from.exists() {
            copy(&from, &lib.join(text))?;
        }
    }
    Ok(())
}

/// Runs the laid-out program: it must find its own libraries, and a process must be able to load them.
pub(crate) fn check(out: &Path) -> Result<bool> {
    let adverb = out.join("bin/adverb");
    let output = Command::new(&adverb)
        .arg("libdir")
        .output()
        .context("cannot run bin/adverb")?;
    let said = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let wanted = fs::canonicalize(out.join("lib/adverb"))?;
    if fs::canonicalize(&said).ok().as_deref() != Some(wanted.as_path()) {
        bail!(
            "bin/adverb libdir says {}, not {}",
            said.display(),
            wanted.display()
        );
    }
    if !tree::on_path("ibv_devices") {
        println!("SKIPPED: ibv_devices on the laid-out libraries (ibverbs-utils is not installed)");
        return Ok(true);
    }
    let output = Command::new(&adverb)
        .args(["run", "--", "ibv_devices"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains("adverb0") {
        bail!(
            "bin/adverb run -- ibv_devices: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    println!("ok: {}", out.display());
    Ok(true)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // A running program may not be overwritten, but it may be replaced.
    remove(to)?;
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot replace {}", path.display()))
        }
        _ => Ok(()),
    }
}
