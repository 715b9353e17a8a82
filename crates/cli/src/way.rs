//! Ways to wait that `compare` sets side by side, and how they are written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How both processes wait, and over what they talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// Poll without pause.
    Busy,
    /// Sleep on the event, take one message after the other and answer each by itself.
    Event,
    /// Sleep on the event, take all that is there, and answer with one post.
    EventBatch,
    /// By the policy of `adverb-wait`.
    Adaptive(Bounds),
    /// A TCP connection on the loopback interface, read by blocking calls.
    Tcp,
    /// A Unix stream socket, read by blocking calls.
    Unix,
}

/// What the adaptive policy may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Of a core, 1 to 100.
    pub(crate) cpu_percent: u32,
    pub(crate) most_spin_us: Option<u32>,
}

impl Bounds {
    pub(crate) const NONE: Self = Self {
        cpu_percent: 100,
        most_spin_us: None,
    };
}

impl Way {
    /// Whether it goes over verbs, and not over sockets for comparison.
    pub(crate) fn is_verbs(self) -> bool {
        !matches!(self, Self::Tcp | Self::Unix)
    }

    pub(crate) fn is_adaptive(self) -> bool {
        matches!(self, Self::Adaptive(_))
    }

    /// One line about it, for legends.
    pub(crate) fn meaning(self) -> String {
        match self {
            Self::Busy => "poll without pause".to_owned(),
            Self::Event => "sleep on the event, take and answer one message after the other".to_owned(),
            Self::EventBatch => "sleep on the event, take all that is there, answer with one post".to_owned(),
            Self::Adaptive(Bounds::NONE) => {
                "poll for as long as pays, sleep otherwise, wake up shortly before what comes regularly".to_owned()
            }
            Self::Adaptive(bounds) => match bounds.most_spin_us {
                None => format!("the same, polling for at most {} % of a core", bounds.cpu_percent),
                Some(us) => format!("the same, polling for at most {us} us at a time"),
            },
            Self::Tcp => "no verbs: TCP on the loopback interface, blocking reads".to_owned(),
            Self::Unix => "no verbs: a Unix stream socket, blocking reads".to_owned(),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.pad("busy"),
            Self::Event => f.pad("event"),
            Self::EventBatch => f.pad("event-batch"),
            Self::Adaptive(bounds) => match bounds.most_spin_us {
                Some(us) => f.pad(&format!("adaptive:{us}us")),
                None if bounds.cpu_percent < 100 => {
                    f.pad(&format!("adaptive:{}%", bounds.cpu_percent))
                }
                None => f.pad("adaptive"),
            },
            Self::Tcp => f.pad("tcp"),
            Self::Unix => f.pad("unix"),
        }
    }
}

/// As typed. An error says what is wanted.
pub(crate) fn parse(text: &str) -> Result<Way, String> {
    let wanted = || {
        format!(
            "{text:?} is no way to wait: busy, event, event-batch, adaptive, adaptive:30% (1 to 99), adaptive:50us (1 to \
             10000), tcp and unix are"
        )
    };
    let bounds = match text {
        "busy" => return Ok(Way::Busy),
        "event" => return Ok(Way::Event),
        "event-batch" => return Ok(Way::EventBatch),
        "tcp" => return Ok(Way::Tcp),
        "unix" => return Ok(Way::Unix),
        "adaptive" => return Ok(Way::Adaptive(Bounds::NONE)),
        other => other.strip_prefix("adaptive:").ok_or_else(wanted)?,
    };
    let number = |digits: &str, most: u32| match digits.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(wanted()),
    };
    if let Some(digits) = bounds.strip_suffix('%') {
        let cpu_percent = number(digits, 99)?;
        return Ok(Way::Adaptive(Bounds {
            cpu_percent,
            ..Bounds::NONE
        }));
    }
    let digits = bounds.strip_suffix("us").ok_or_else(wanted)?;
    Ok(Way::Adaptive(Bounds {
        most_spin_us: Some(number(digits, 10_000)?),
        ..Bounds::NONE
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_written_as_it_is_read() {
        for text in [
            "busy",
            "event",
            "event-batch",
            "adaptive",
            "adaptive:30%",
            "adaptive:50us",
            "tcp",
            "unix",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for text in [
            "",
            "fast",
            "adaptive:",
            "adaptive:0%",
            "adaptive:100%",
            "adaptive:11ms",
            "busy:1us",
            "adaptive:99999999999us",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
