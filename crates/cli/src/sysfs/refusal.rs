//! Why a system does not let a program have its own view of /sys.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use rustix::process::geteuid;

/// What failed, and whatever we can see that forbids it.
#[derive(Debug)]
pub(super) struct Refusal {
    what: String,
    error: Option<Errno>,
    causes: Vec<String>,
}

/// A switch of the kernel, the value that forbids, and what that means.
const SWITCHES: &[(&str, &str, &str)] = &[
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "only root may have user namespaces",
    ),
    (
        "user/max_user_namespaces",
        "0",
        "nobody may have user namespaces",
    ),
    (
        "user/max_mnt_namespaces",
        "0",
        "nobody may have mount namespaces",
    ),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor takes all rights from user namespaces of programs that it has no profile for",
    ),
];

impl Refusal {
    pub(super) fn new(what: &str, error: Option<Errno>) -> Self {
        Self {
            what: what.to_owned(),
            error,
            causes: causes(
                |switch| fs::read_to_string(format!("/proc/sys/{switch}")).ok(),
                &fs::read_to_string("/proc/self/status").unwrap_or_default(),
                geteuid().is_root(),
            ),
        }
    }
}

/// What in this system is known to stand in the way.
fn causes(switch: impl Fn(&str) -> Option<String>, status: &str, is_root: bool) -> Vec<String> {
    let mut causes: Vec<String> = SWITCHES
        .iter()
        // Root needs no user namespace, so what forbids those to others does not matter.
        .filter(|(name, ..)| !is_root || !name.contains("userns"))
        .filter(|(name, value, _)| switch(name).is_some_and(|now| now.trim() == *value))
        .map(|(name, value, meaning)| {
            format!("sysctl {} is {value}: {meaning}", name.replace('/', "."))
        })
        .collect();
    let filtered = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2");
    if filtered {
        causes.push(
            "a seccomp filter is in force, as in most containers (docker: --security-opt seccomp=unconfined, or --privileged)"
                .to_owned(),
        );
    }
    causes
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--sysfs: {}", self.what)?;
        if let Some(error) = self.error {
            write!(f, ": {}", error.desc())?;
        }
        for cause in &self.causes {
            write!(f, "; {cause}")?;
        }
        f.write_str(
            ". --sysfs needs root or a user namespace. Without it everything works but what programs look for in /sys/class/infiniband and /dev/infiniband",
        )
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_it_is_named() {
        let ubuntu = |name: &str| {
            let value = if name.contains("apparmor") {
                "1\n"
            } else {
                "60000\n"
            };
            Some(value.to_owned())
        };
        let found = causes(ubuntu, "Name:\tadverb\nSeccomp:\t0\n", false);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("kernel.apparmor_restrict_unprivileged_userns is 1"));
        assert!(causes(ubuntu, "", true).is_empty());

        let docker = causes(|_| None, "Seccomp:\t2\nSeccomp_filters:\t1\n", true);
        assert!(docker[0].contains("seccomp"), "{docker:?}");
    }

    #[test]
    fn a_refusal_says_that_the_rest_works() {
        let text = Refusal::new("no", Some(Errno::EPERM)).to_string();
        assert!(text.contains("Operation not permitted"), "{text}");
        assert!(text.contains("Without it everything works"), "{text}");
    }
}
