//! What the machine costs, and what the user allows.

/// What waiting costs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Until a sleeping thread runs again, in ns (W); measured, and brought into 100 ns to 10 ms.
    pub wake_ns: u64,
}

impl Costs {
    pub(crate) fn wake(self) -> u64 {
        self.wake_ns.clamp(100, 10_000_000)
    }
}

/// What the user allows. The defaults allow everything and ask for nothing.
///
/// A share or a most spin goes before the bound of twice the best: whoever may not spin pays wake-ups instead. A goal goes
/// before it too, in the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of one core that may be spun away, in percent, 0 to 100 (more counts as 100). Kept over every stretch
    /// of time, up to one allowance for 20 ms.
    pub cpu_percent: u32,
    /// The longest that one wait may be spun, in ns.
    pub most_spin_ns: Option<u64>,
    /// Mean latency that sleeping may add to a message, in ns. While the average of late lies above it, the policy spins
    /// on instead of sleeping, as far as the other limits let it.
    pub goal_ns: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_percent: 100,
            most_spin_ns: None,
            goal_ns: None,
        }
    }
}
