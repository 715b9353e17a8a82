//! A copy of the crates with all mutants in it, and the test binaries made from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::list::{Judge, Mutant};
use super::switch;
use crate::tree;

/// Crates that are copied.
const CRATES: [&str; 9] = [
    "wire", "engine", "sim", "mem", "link", "wait", "nic", "abi", "provider",
];

pub(super) struct Workspace {
    place: PathBuf,
    /// The files with mutants, as they are in the copy.
    switched: BTreeMap<String, String>,
    /// Mutants that need a build of their own.
    alone: Vec<u32>,
}

/// What came of a build.
pub(super) enum Built {
    Yes(Binaries),
    /// What the compiler says.
    No(String),
}

impl Workspace {
    /// Brings the copy up to date and breaks it in all ways at once. Numbers count from 1.
    pub(super) fn new(mutants: &[(u32, &Mutant)]) -> Result<Self> {
        let place = tree::target_dir()?.join("mutants");
        let mut by_file: BTreeMap<String, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for &(number, m) in mutants {
            by_file.entry(m.file.clone()).or_default().push((number, m));
        }
        let (mut switched, mut alone) = (BTreeMap::new(), Vec::new());
        for (file, of_it) in &by_file {
            let (text, of_its_own) = switch::all_in_one(&of_it[0].1.source()?, of_it);
            switched.insert(file.clone(), text);
            alone.extend(of_its_own);
        }
        for name in CRATES {
            let lib = format!("{name}/src/lib.rs");
            if by_file
                .keys()
                .any(|file| file.starts_with(&format!("{name}/")))
            {
                let text = match switched.remove(&lib) {
                    Some(text) => text,
                    None => fs::read_to_string(tree::root().join("crates").join(&lib))?,
                };
                switched.insert(lib, text + switch::CHOICE);
            }
        }
        let workspace = Self {
            place,
            switched,
            alone,
        };
        workspace.fill()?;
        Ok(workspace)
    }

    pub(super) fn is_alone(&self, number: u32) -> bool {
        self.alone.contains(&number)
    }

    /// The crates, the settings and the lock file of ours; what is the same already keeps its time, so that cargo sees it.
    fn fill(&self) -> Result<()> {
        let root = tree::root();
        for name in CRATES {
            self.sync(
                &root.join("crates").join(name),
                &self.place.join("crates").join(name),
                name,
            )?;
        }
        let mut manifest = String::new();
        for line in fs::read_to_string(root.join("Cargo.toml"))?.lines() {
            match line {
                l if l.starts_with("members") => manifest.push_str("members = [\"crates/*\"]"),
                l if l.starts_with("default-members") => {}
                // Broken code warns of much.
                l if l.starts_with("unexpected_cfgs") => manifest.push_str(l),
                l if l.ends_with("= \"warn\"") => {}
                l => manifest.push_str(l),
            }
            manifest.push('\n');
        }
        put(&self.place.join("Cargo.toml"), &manifest)?;
        put(
            &self.place.join("Cargo.lock"),
            &fs::read_to_string(root.join("Cargo.lock"))?,
        )
    }

    fn sync(&self, from: &Path, to: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(to)? {
            let entry = entry?;
            if from.join(entry.file_name()).exists() {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let file = entry.file_name();
            let below = format!("{name}/{}", file.to_string_lossy());
            if entry.file_type()?.is_dir() {
                // Benches need a library that takes longer to build than all of ours.
                if file != "benches" {
                    self.sync(&entry.path(), &to.join(&file), &below)?;
                }
            } else if let Some(text) = self.switched.get(&below) {
                put(&to.join(&file), text)?;
            } else if file == "Cargo.toml" {
                put(
                    &to.join(&file),
                    without_benches(&fs::read_to_string(entry.path())?),
                )?;
            } else {
                put(&to.join(&file), &fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    /// Breaks one file in one way only, until it is built again by `restore`.
    pub(super) fn break_alone(&self, m: &Mutant) -> Result<()> {
        let source = m.source()?;
        let at = m.place_in(&source)?;
        let mut text = source;
        text.replace_range(at..at + m.old.len(), &m.new);
        if m.file.ends_with("src/lib.rs") {
            text.push_str(switch::CHOICE);
        }
        put(&self.place.join("crates").join(&m.file), &text)
    }

    pub(super) fn restore(&self, m: &Mutant) -> Result<()> {
        let text = self.switched.get(&m.file).context("the file was broken")?;
        put(&self.place.join("crates").join(&m.file), text)
    }

    /// Builds what the judges need.
    pub(super) fn build(&self, judges: &[&Judge]) -> Result<Built> {
        let mut command = self.cargo();
        command.args(["test", "--no-run", "--quiet", "--message-format=json"]);
        let mut wanted: Vec<String> = Vec::new();
        for judge in judges {
            wanted.push(format!("--package={}", judge.package));
            match judge.target.as_str() {
                "lib" => wanted.push("--lib".to_owned()),
                // Programs are built along with the tests of their package.
                "sim" => {}
                test => wanted.push(format!("--test={test}")),
            }
        }
        wanted.sort();
        wanted.dedup();
        let output = command
            .args(wanted)
            .stderr(Stdio::piped())
            .output()
            .context("cannot run cargo test")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = || {
            text.lines()
                .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        };
        if !output.status.success() {
            let mut said: String = messages()
                .filter(|m| m["message"]["level"] == "error")
                .filter_map(|m| m["message"]["rendered"].as_str().map(str::to_owned))
                .collect();
            said.push_str(&String::from_utf8_lossy(&output.stderr));
            return Ok(Built::No(said));
        }
        Ok(Built::Yes(Binaries(
            messages().filter_map(|m| binary(&m)).collect(),
        )))
    }

    fn cargo(&self) -> Command {
        let mut command = tree::cargo();
        command
            .current_dir(&self.place)
            .env("CARGO_TARGET_DIR", self.place.join("target"))
            // No debug information: what fails here is not looked at, and linking is what takes the time.
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }

    /// Where tests of a package run.
    pub(super) fn directory_of(&self, package: &str) -> PathBuf {
        let name = package.strip_prefix("adverb-").unwrap_or(package);
        self.place.join("crates").join(name)
    }
}

/// By package and target.
pub(super) struct Binaries(BTreeMap<(String, String), PathBuf>);

impl Binaries {
    pub(super) fn of(&self, judge: &Judge) -> Result<&Path> {
        self.0
            .get(&(judge.package.clone(), judge.target.clone()))
            .map(PathBuf::as_path)
            .with_context(|| format!("there is no {} of {}", judge.target, judge.package))
    }
}

/// A program or a binary with tests that cargo says it has made.
fn binary(message: &Value) -> Option<((String, String), PathBuf)> {
    let path = message["executable"].as_str()?;
    let target = &message["target"];
    let kind = target["kind"][0].as_str()?;
    let tests = message["profile"]["test"].as_bool()?;
    let name = match (kind, tests) {
        ("lib", true) => "lib",
        ("test", true) | ("bin", false) => target["name"].as_str()?,
        _ => return None,
    };
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dir = manifest.parent()?.file_name()?.to_str()?;
    Some(((format!("adverb-{dir}"), name.to_owned()), path.into()))
}

fn without_benches(manifest: &str) -> String {
    let mut out = String::new();
    let mut within = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            within = line == "[[bench]]";
        }
        if !within && !line.starts_with("criterion") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Writes a file unless it says so already.
fn put(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let content = content.as_ref();
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
