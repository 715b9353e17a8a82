//! The machine on which figures were taken: they mean nothing without it.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::cores::{self, Cores};
use super::{limits, quota};

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
    /// Whether threads may be bound to cores.
    pub(crate) pinned: bool,
    /// Cores that the container may use at a time; null without a limit.
    pub(crate) cpu_quota: Option<f64>,
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
            pinned: cores::can_pin(chosen.client),
            cpu_quota: quota::cores(),
        })
    }

    /// What the reader has to know about figures of this machine, a sentence each.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if !self.chosen.are_distinct() {
            caveats.push(
                "Only one core may be used here: both sides share it, looking takes it from the one that is looked for, and \
                 what is shown is how well each way gives it away."
                    .to_owned(),
            );
        }
        if !self.pinned {
            caveats.push(
                "The processes may not choose their cores here, so they can be moved in the middle: expect spread.".to_owned(),
            );
        }
        if let Some(quota) = self.cpu_quota
            && quota < 2.0
        {
            caveats.push(format!(
                "This container may use {quota:.1} cores at a time, and two sides that look need 2: whoever uses more is stopped \
                 until its next period, which shows in the high percentiles of busy first."
            ));
        }
        caveats
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
