//! The device files of /dev/infiniband.
//!
//! Programs that find a device by libibverbs take a character device of this name, which they may read and write, for the
//! sign that they may use it, and leave it to libibverbs to open it (UCX and what stands on it, Mooncake). Ours opens
//! nothing. So what stands there is the null device: whoever speaks the kernel's language with it is told that it does
//! not speak it (ENOTTY).

use std::path::Path;

use super::{Entry, Node};

const INFINIBAND: &str = "/dev/infiniband";

/// The directory to cover, and what is to stand in it. `classes` are the entries of sysfs, which have the names.
pub(super) fn of(classes: &[Entry]) -> (&'static Path, Vec<Entry>) {
    let (directory, before) = if Path::new(INFINIBAND).is_dir() {
        (INFINIBAND, "")
    } else {
        ("/dev", "infiniband/")
    };
    let nodes = names(classes).map(|name| Entry {
        path: format!("{before}{name}"),
        node: Node::Null,
    });
    (Path::new(directory), nodes.collect())
}

fn names(classes: &[Entry]) -> impl Iterator<Item = &str> {
    classes.iter().filter_map(|entry| {
        entry
            .path
            .strip_prefix("infiniband_verbs/")?
            .strip_suffix("/ibdev")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_one() {
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            node: Node::Directory,
        };
        let classes = [
            entry("infiniband/adverb0/node_guid"),
            entry("infiniband_verbs/uverbs0/ibdev"),
            entry("infiniband_verbs/uverbs0/dev"),
            entry("infiniband_verbs/uverbs1/ibdev"),
            entry("infiniband_verbs/abi_version"),
        ];
        let found: Vec<&str> = names(&classes).collect();
        assert_eq!(found, ["uverbs0", "uverbs1"]);
    }
}
