//! Where things are: the repository, the target directory, the release build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The repository's root. Baked in at compile time: xtask always runs from a checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the repository")
}

/// `cargo`, the one that started us where there is one.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// `cargo metadata` of the workspace alone.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata did not print JSON")
}

pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let text = metadata["target_directory"]
        .as_str()
        .context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(text))
}

/// What a release build leaves behind.
pub(crate) struct Release {
    pub(crate) target: PathBuf,
    pub(crate) adverb: PathBuf,
    pub(crate) libraries: PathBuf,
}

impl Release {
    pub(crate) fn locate() -> Result<Self> {
        let target = target_dir()?;
        let release = target.join("release");
        Ok(Self {
            adverb: release.join("adverb"),
            libraries: release.join("lib/adverb"),
            target,
        })
    }

    /// The release build, made now if need be.
    pub(crate) fn built() -> Result<Self> {
        build(&["--release"])?;
        let release = Self::locate()?;
        release.check()?;
        Ok(release)
    }

    /// The build of `cargo build` in its stead, for what asks nothing about speed: it is made in a tenth of the time.
    pub(crate) fn dev() -> Result<Self> {
        build(&[])?;
        let target = target_dir()?;
        let dev = target.join("debug");
        let build = Self {
            adverb: dev.join("adverb"),
            libraries: dev.join("lib/adverb"),
            target,
        };
        build.check()?;
        Ok(build)
    }

    pub(crate) fn check(&self) -> Result<()> {
        for path in [self.adverb.clone(), self.libraries.join("libibverbs.so.1")] {
            if !path.exists() {
                bail!(
                    "{} is missing; `cargo build --release` makes it",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// A fresh folder for the output of the programs of one test.
    pub(crate) fn logs(&self, of: &str) -> Result<PathBuf> {
        let dir = self.target.join("xtask").join(of);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)
                .with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }
}

fn build(options: &[&str]) -> Result<()> {
    let status = cargo()
        .args(["build", "--quiet"])
        .args(options)
        .status()
        .context("cannot run cargo build")?;
    if !status.success() {
        bail!("cargo build failed");
    }
    Ok(())
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// The target that rustc builds for by default.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}
