//! The machine on which figures were taken: they mean nothing without it.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::cores::{self, Cores};
use super::limits;

/// The `machine` object of both JSON formats.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Until a thread blocked on the other core runs.
    pub(crate) wakeup_ns: f64,
    /// One way between two cores through a shared cache line.
    pub(crate) hop_ns: f64,
    /// One reading of the clock; a latency contains about one.
    pub(crate) clock_ns: f64,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) version: &'static str,
    #[serde(skip)]
    pub(crate) chosen: Cores,
    pub(crate) client_core: usize,
    pub(crate) server_core: usize,
}

impl Machine {
    /// Takes about a third of a second.
    pub(crate) fn measure() -> Result<Self> {
        let chosen = Cores::choose();
        Ok(Self {
            cores: cores::count(),
            wakeup_ns: limits::wakeup_ns(chosen)
                .context("cannot measure a wake-up with eventfd")?,
            hop_ns: limits::shared_line_hop_ns(chosen),
            clock_ns: limits::clock_ns(),
            cpu: cpu_name(),
            kernel: kernel_release(),
            version: env!("CARGO_PKG_VERSION"),
            chosen,
            client_core: chosen.client,
            server_core: chosen.server,
        })
    }

    /// How long the adaptive model looks before it sleeps. About one wake-up is never worse than
    /// twice the best choice in hindsight; the bounds keep a disturbed measurement harmless.
    pub(crate) fn spin_ns(&self) -> u64 {
        self.wakeup_ns.clamp(2_000.0, 100_000.0) as u64
    }
}

fn cpu_name() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}
