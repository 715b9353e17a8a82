//! What was typed after `cargo xtask`. A few flags do not justify a parser that takes longer to build than to run.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};

pub(crate) struct Args {
    left: Vec<String>,
}

impl Args {
    pub(crate) fn from_env() -> Self {
        Self {
            left: std::env::args().skip(1).collect(),
        }
    }

    pub(crate) fn command(&mut self) -> Option<String> {
        if self.left.is_empty() {
            None
        } else {
            Some(self.left.remove(0))
        }
    }

    /// Takes `--name` out; whether it was there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.left.len();
        self.left.retain(|word| word != name);
        self.left.len() != before
    }

    /// Takes `--name VALUE` out.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(at) = self.left.iter().position(|word| word == name) else {
            return Ok(None);
        };
        self.left.remove(at);
        if at >= self.left.len() {
            bail!("{name} needs a value");
        }
        let text = self.left.remove(at);
        text.parse()
            .map(Some)
            .map_err(|_| anyhow!("{name} {text}: not a value it takes"))
    }

    /// The words that are left; a flag among them is one nobody took.
    pub(crate) fn words(self) -> Result<Vec<String>> {
        if let Some(unknown) = self.left.iter().find(|word| word.starts_with("--")) {
            bail!("{unknown} is not a flag of this command; `cargo xtask` alone lists them");
        }
        Ok(self.left)
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.words()?.first() {
            Some(word) => bail!("{word}: this command takes no words"),
            None => Ok(()),
        }
    }
}
