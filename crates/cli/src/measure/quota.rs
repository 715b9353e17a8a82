//! How much CPU time a container lets us have: a quota of its control group, or of one above.

use std::fs;
use std::path::Path;

/// Cores at a time; None without a limit, or where the kernel does not tell.
pub(crate) fn cores() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let root = Path::new("/sys/fs/cgroup");
    let mut least: Option<f64> = None;
    let mut group = root.join(own.unwrap_or("/").trim_start_matches('/'));
    while group.starts_with(root) {
        let text = fs::read_to_string(group.join("cpu.max")).unwrap_or_default();
        least = least.into_iter().chain(parse(&text)).reduce(f64::min);
        if !group.pop() {
            break;
        }
    }
    least.or_else(first_version)
}

/// `MAX PERIOD` in microseconds; `max` is no limit.
fn parse(text: &str) -> Option<f64> {
    let (most, period) = text.trim().split_once(' ')?;
    ratio(most, period)
}

/// The files of the first version of control groups.
fn first_version() -> Option<f64> {
    let read = |name: &str| fs::read_to_string(Path::new("/sys/fs/cgroup/cpu").join(name)).ok();
    ratio(
        read("cpu.cfs_quota_us")?.trim(),
        read("cpu.cfs_period_us")?.trim(),
    )
}

fn ratio(most: &str, period: &str) -> Option<f64> {
    let (most, period) = (most.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (most > 0.0 && period > 0.0).then(|| most / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read() {
        assert_eq!(parse("50000 100000\n"), Some(0.5));
        assert_eq!(parse("max 100000"), None);
        assert_eq!(parse(""), None);
        assert_eq!(ratio("-1", "100000"), None);
    }
}
