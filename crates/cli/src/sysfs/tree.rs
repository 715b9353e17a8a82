//! Which files a software device has below /sys/class, and what they hold.
//!
//! All of it is what the library answers: `ibv_query_port(3)` and its kin, and `ibv_read_sysfs_file` for what only files
//! tell. So a program that reads files and one that asks the library cannot see two different devices.
//!
//! An entry of the GID table that is empty has zeros in `gids/`, and no file in `gid_attrs/`: the kernel has one there,
//! which cannot be read.

use std::collections::BTreeMap;
use std::path::Path;

use adverb::{Device, Origin};
use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use super::{Entry, Node, words};

const CLASS: &str = "/sys/class";

/// The file of the class: version 6 of the commands between kernel and library, which is all that there ever was since.
const ABI_VERSION: &str = "6";
/// The file of a device. Each driver has numbers of its own, and we are none.
const DRIVER_ABI_VERSION: &str = "1";

/// Files of the device that tell what it is.
const ATTRIBUTES: &[&str] = &[
    "board_id",
    "fw_ver",
    "hca_type",
    "hw_rev",
    "node_desc",
    "node_guid",
    "node_type",
    "sys_image_guid",
];

/// The entries of all software devices that ADVERB_NETDEV selects; none if there is no device.
pub(crate) fn of_software_devices() -> Result<Vec<Entry>> {
    let devices = adverb::devices().context("cannot list devices")?;
    let mut tree = Tree(Vec::new());
    for device in devices
        .iter()
        .filter(|device| device.origin() == Origin::Software)
    {
        tree.device(device)
            .with_context(|| device.name().to_owned())?;
    }
    if !tree.0.is_empty() {
        tree.file("infiniband_verbs/abi_version", ABI_VERSION);
    }
    Ok(tree.0)
}

struct Tree(Vec<Entry>);

impl Tree {
    fn add(&mut self, path: impl Into<String>, node: Node) {
        self.0.push(Entry {
            path: path.into(),
            node,
        });
    }

    fn file(&mut self, path: impl Into<String>, text: impl std::fmt::Display) {
        self.add(path, Node::File(format!("{text}\n")));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.add(path, Node::Link(target.into()));
    }

    fn device(&mut self, device: &Device) -> Result<()> {
        let context = device.open()?;
        let ports = context.query_device()?.ports();
        let (name, uverbs) = (device.name(), device.uverbs_name());
        let here = format!("infiniband/{name}");

        for attribute in ATTRIBUTES {
            if let Some(text) = device.sysfs_attribute(attribute) {
                self.file(format!("{here}/{attribute}"), text);
            }
        }
        let mut interfaces = Interfaces::default();
        for port in 1..=ports {
            self.port(
                &context,
                port,
                &format!("{here}/ports/{port}"),
                &mut interfaces,
            )?;
        }
        self.file(format!("{here}/uevent"), format!("NAME={name}"));
        self.link(format!("{here}/subsystem"), format!("{CLASS}/infiniband"));
        if let Some(interface) = interfaces.first() {
            self.file(format!("{here}/parent"), interface);
            self.beneath(&here, interface, name, &uverbs);
        }

        let there = format!("infiniband_verbs/{uverbs}");
        self.file(format!("{there}/ibdev"), name);
        self.file(format!("{there}/abi_version"), DRIVER_ABI_VERSION);
        self.file(format!("{there}/dev"), character_device());
        self.link(format!("{there}/device"), format!("{CLASS}/{here}/device"));
        self.link(
            format!("{there}/subsystem"),
            format!("{CLASS}/infiniband_verbs"),
        );
        Ok(())
    }

    fn port(
        &mut self,
        context: &adverb::Context,
        port: u8,
        here: &str,
        interfaces: &mut Interfaces,
    ) -> Result<()> {
        let attr = context.query_port(port)?;
        let raw = attr.raw();
        self.file(format!("{here}/state"), words::state(&attr));
        self.file(format!("{here}/phys_state"), words::physical_state(&attr));
        self.file(format!("{here}/rate"), words::rate(&attr));
        self.file(format!("{here}/link_layer"), words::link_layer(&attr));
        self.file(
            format!("{here}/cap_mask"),
            format!("{:#010x}", raw.port_cap_flags),
        );
        self.file(format!("{here}/lid"), format!("{:#x}", raw.lid));
        self.file(format!("{here}/lid_mask_count"), raw.lmc);
        self.file(format!("{here}/sm_lid"), format!("{:#x}", raw.sm_lid));
        self.file(format!("{here}/sm_sl"), raw.sm_sl);
        for index in 0..raw.pkey_tbl_len {
            let key = context.query_pkey(port, index)?;
            self.file(format!("{here}/pkeys/{index}"), format!("{key:#06x}"));
        }
        for index in 0..attr.gid_count() {
            let gid = context.query_gid(port, index)?;
            self.file(format!("{here}/gids/{index}"), words::gid(gid));
        }
        for part in ["types", "ndevs"] {
            self.add(format!("{here}/gid_attrs/{part}"), Node::Directory);
        }
        for entry in context.gid_table(port)? {
            let index = entry.index;
            self.file(
                format!("{here}/gid_attrs/types/{index}"),
                words::gid_kind(entry.kind),
            );
            if let Some(interface) = interfaces.name(entry.ifindex) {
                self.file(format!("{here}/gid_attrs/ndevs/{index}"), interface);
            }
        }
        Ok(())
    }

    /// What is beneath the RDMA device: the hardware that it shares with the network interface, or, where that is made of
    /// software too, a directory from which the interface is found all the same.
    fn beneath(&mut self, here: &str, interface: &str, name: &str, uverbs: &str) {
        let there = format!("{CLASS}/net/{interface}/device");
        if let Ok(hardware) = Path::new(&there).canonicalize()
            && hardware.join("net").join(interface).exists()
            && let Some(hardware) = hardware.to_str()
        {
            self.link(format!("{here}/device"), hardware);
            return;
        }
        for (class, of_it) in [
            ("net", interface),
            ("infiniband", name),
            ("infiniband_verbs", uverbs),
        ] {
            self.link(
                format!("{here}/device/{class}/{of_it}"),
                format!("{CLASS}/{class}/{of_it}"),
            );
        }
    }
}

/// Names of network interfaces, each asked for once.
#[derive(Default)]
struct Interfaces(BTreeMap<u32, Option<String>>);

impl Interfaces {
    fn name(&mut self, index: u32) -> Option<&str> {
        self.0
            .entry(index)
            .or_insert_with(|| {
                let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
                netdevice::index_to_name(&any, index).ok()
            })
            .as_deref()
    }

    fn first(&self) -> Option<&str> {
        self.0.values().flatten().next().map(String::as_str)
    }
}

/// Major and minor number of what the view has in /dev/infiniband.
fn character_device() -> String {
    use std::os::unix::fs::MetadataExt as _;
    let number = std::fs::metadata("/dev/null").map_or(0, |file| file.rdev());
    format!(
        "{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(entries: &'a [Entry], path: &str) -> &'a str {
        let entry = entries.iter().find(|entry| entry.path == path);
        match entry.map(|entry| &entry.node) {
            Some(Node::File(text)) => text.trim_end(),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn files_say_what_the_library_answers() {
        let entries = of_software_devices().unwrap();
        let device = adverb::devices().unwrap().remove(0);
        let context = device.open().unwrap();
        let here = format!("infiniband/{}", device.name());
        assert_eq!(
            text(&entries, &format!("{here}/node_guid")),
            device.guid().to_string()
        );
        assert_eq!(text(&entries, &format!("{here}/node_type")), "1: CA");
        let firmware = context.query_device().unwrap().firmware();
        assert_eq!(text(&entries, &format!("{here}/fw_ver")), firmware);

        let port = format!("{here}/ports/1");
        assert_eq!(text(&entries, &format!("{port}/state")), "4: ACTIVE");
        assert_eq!(text(&entries, &format!("{port}/phys_state")), "5: LinkUp");
        assert_eq!(
            text(&entries, &format!("{port}/rate")),
            "100 Gb/sec (4X EDR)"
        );
        let told = device.sysfs_attribute("ports/1/link_layer").unwrap();
        assert_eq!(text(&entries, &format!("{port}/link_layer")), told);
        let attr = context.query_port(1).unwrap();
        for index in 0..attr.gid_count() {
            let gid = context.query_gid(1, index).unwrap();
            let file: adverb::Gid = text(&entries, &format!("{port}/gids/{index}"))
                .parse()
                .unwrap();
            assert_eq!(file, gid);
        }
        for entry in context.gid_table(1).unwrap() {
            for part in ["types", "ndevs"] {
                let file = format!("ports/1/gid_attrs/{part}/{}", entry.index);
                let told = device.sysfs_attribute(&file).unwrap();
                assert_eq!(text(&entries, &format!("{here}/{file}")), told);
            }
        }
        assert_eq!(
            text(&entries, "infiniband_verbs/uverbs0/ibdev"),
            device.name()
        );
    }

    #[test]
    fn no_path_leaves_the_two_classes() {
        for entry in of_software_devices().unwrap() {
            let class = entry.path.split('/').next().unwrap();
            assert!(
                ["infiniband", "infiniband_verbs"].contains(&class),
                "{entry:?}"
            );
            assert!(!entry.path.contains(".."), "{entry:?}");
        }
    }
}
