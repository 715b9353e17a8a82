//! `ADVERB_WAIT`: how programs wait that know nothing of it. Read once, when a device is opened.

use std::sync::OnceLock;

use adverb_nic::NicError;
use adverb_wait::Limits;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) events: Events,
    /// Percent of a core for a thread that polls and has found nothing for long.
    pub(crate) polite: Option<u32>,
}

/// How `ibv_get_cq_event` waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Events {
    /// It sleeps.
    #[default]
    Event,
    /// It polls.
    Busy,
    /// It polls for as long as pays, then sleeps.
    Adaptive(Limits),
}

/// Percent of a core for `polite` without a number.
const POLITE_PERCENT: u32 = 25;

const WANTS: &str = "\"event\", \"busy\", \"adaptive\", \"adaptive:50us\", \"adaptive:30%\", \"polite\" or \"polite:25%\" \
                     (1 to 99 percent, 1us to 10ms), or one of the first five and one of the last two with a comma";

/// The setting of this process. An error names what cannot be understood.
pub(crate) fn setting() -> Result<Setting, NicError> {
    static SETTING: OnceLock<Result<Setting, String>> = OnceLock::new();
    SETTING
        .get_or_init(|| match std::env::var("ADVERB_WAIT") {
            Ok(text) => parse(&text).ok_or(text),
            Err(_) => Ok(Setting::default()),
        })
        .clone()
        .map_err(|value| NicError::Setting {
            name: "ADVERB_WAIT",
            value,
            wants: WANTS,
        })
}

fn parse(text: &str) -> Option<Setting> {
    let mut setting = Setting::default();
    if text.is_empty() {
        return Some(setting);
    }
    let (mut how, mut polite) = (None, None);
    for word in text.split(',') {
        let (name, value) = match word.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let again = match (name, value) {
            ("event", None) => how.replace(Events::Event).is_some(),
            ("busy", None) => how.replace(Events::Busy).is_some(),
            ("adaptive", _) => how.replace(Events::Adaptive(limits(value)?)).is_some(),
            ("polite", None) => polite.replace(POLITE_PERCENT).is_some(),
            ("polite", Some(value)) => polite.replace(percent(value)?).is_some(),
            _ => return None,
        };
        if again {
            return None;
        }
    }
    setting.events = how.unwrap_or_default();
    setting.polite = polite;
    Some(setting)
}

/// A share of a core, or a longest spin.
fn limits(value: Option<&str>) -> Option<Limits> {
    let mut limits = Limits::default();
    match value {
        None => {}
        Some(value) if value.ends_with('%') => limits.cpu_percent = percent(value)?,
        Some(value) => {
            let (number, unit) = match value.strip_suffix("us") {
                Some(number) => (number, 1_000),
                None => (value.strip_suffix("ms")?, 1_000_000),
            };
            let ns = number.parse::<u64>().ok()?.checked_mul(unit)?;
            limits.most_spin_ns = Some(ns).filter(|ns| (1_000..=10_000_000).contains(ns));
            limits.most_spin_ns?;
        }
    }
    Some(limits)
}

fn percent(value: &str) -> Option<u32> {
    let number = value.strip_suffix('%')?.parse().ok()?;
    (1..=99).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_asked_for() {
        let adaptive = |cpu_percent, most_spin_ns| {
            Events::Adaptive(Limits {
                cpu_percent,
                most_spin_ns,
                goal_ns: None,
            })
        };
        for (text, events, polite) in [
            ("", Events::Event, None),
            ("event", Events::Event, None),
            ("busy", Events::Busy, None),
            ("adaptive", adaptive(100, None), None),
            ("adaptive:50us", adaptive(100, Some(50_000)), None),
            ("adaptive:2ms", adaptive(100, Some(2_000_000)), None),
            ("adaptive:30%", adaptive(30, None), None),
            ("polite", Events::Event, Some(25)),
            ("polite:5%,busy", Events::Busy, Some(5)),
        ] {
            assert_eq!(parse(text), Some(Setting { events, polite }), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "fast",
            "busy:1us",
            "adaptive:",
            "adaptive:50",
            "adaptive:0us",
            "adaptive:11ms",
            "adaptive:0%",
            "adaptive:100%",
            "adaptive:-1%",
            "polite:10us",
            "polite:100%",
            "busy,event",
            "polite,polite",
            ",",
            "adaptive:99999999999999999999us",
            "adaptive:18446744073709551615ms",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
