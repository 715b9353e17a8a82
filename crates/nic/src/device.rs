//! Devices: one for each network interface that is up and has an address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use adverb_wire::{Gid, Mtu};

use crate::config::Config;
use crate::error::NicError;

/// A software RDMA device on a network interface. It has one port.
#[derive(Debug)]
pub struct Device {
    /// `adverb0`, `adverb1`, …
    pub name: String,
    /// Position among the devices of this process, from 0.
    pub index: u32,
    /// The interface's name.
    pub netdev: String,
    /// The interface's index in the kernel.
    pub ifindex: u32,
    /// EUI-64, host order; stable for the interface, never zero.
    pub guid: u64,
    /// The interface's own addresses, those a socket can be bound to.
    pub addresses: Vec<IpAddr>,
    gids: Vec<Gid>,
    netdev_mtu: u32,
    limits: Limits,
}

/// Multicast groups of a device.
pub(crate) const MAX_GROUPS: u32 = 1024;
/// Queue pairs in one multicast group.
pub(crate) const MAX_MEMBERS: u32 = 1024;

/// What one device can hold. Everything here can be created in full.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    /// Bytes of device memory in all.
    pub max_dm_size: u64,
    pub max_mr_size: u64,
    pub max_pd: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_rd_atom: u8,
    pub max_init_rd_atom: u8,
    pub comp_vectors: u32,
    pub max_groups: u32,
    /// Queue pairs in one multicast group.
    pub max_group_members: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_qp: 16_000,
            max_qp_wr: 16_384,
            max_sge: adverb_engine::MAX_SGE as u32,
            max_inline: 1024,
            max_cq: 32_768,
            max_cqe: 1 << 22,
            max_mr: 65_536,
            max_mw: 65_536,
            max_dm_size: 1 << 20,
            max_mr_size: 1 << 47,
            max_pd: 32_768,
            max_ah: 65_536,
            max_srq: 16_384,
            max_srq_wr: 32_768,
            max_srq_sge: adverb_engine::MAX_SGE as u32,
            // As many as the kernel's software RoCE: programs take the smaller or the larger of two
            // sides' numbers, and some the other side's.
            max_rd_atom: 128,
            max_init_rd_atom: 128,
            comp_vectors: 1,
            max_groups: MAX_GROUPS,
            max_group_members: MAX_MEMBERS,
        }
    }
}

/// The state of a device's port.
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    pub active: bool,
    /// As `ibv_mtu`: 1 is 256 bytes, 5 is 4096.
    pub active_mtu: u32,
    pub max_mtu: u32,
    pub gid_count: u32,
    pub pkey_count: u32,
    pub max_message: u32,
}

/// The only partition key of a RoCE port: the default one, full member.
pub const PKEYS: [u16; 1] = [adverb_wire::DEFAULT_PKEY];

/// Places in the GID table; those behind the last address are empty, as on any card.
const GID_TABLE: u32 = 16;

impl Device {
    /// Index 0 is the link-local IPv6 form, index 1 the first IPv4 address, then the other IPv6 addresses, then the other
    /// IPv4 ones.
    pub fn gids(&self) -> &[Gid] {
        &self.gids
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn pkey(&self, index: u16) -> Option<u16> {
        PKEYS.get(usize::from(index)).copied()
    }

    /// The port as it is now: the interface's carrier and MTU are looked up.
    pub fn port(&self) -> PortInfo {
        let up = sysfs(&self.netdev, "operstate").is_none_or(|s| s != "down");
        let mtu = sysfs_number(&self.netdev, "mtu").unwrap_or(self.netdev_mtu);
        PortInfo {
            active: up,
            active_mtu: Mtu::fitting(mtu as usize).unwrap_or(Mtu::ALL[0]).ibv(),
            max_mtu: 5,
            gid_count: GID_TABLE.max(self.gids.len() as u32),
            pkey_count: PKEYS.len() as u32,
            max_message: 1 << 31,
        }
    }

    /// Whether only this host can be reached through it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.addresses.iter().all(IpAddr::is_loopback)
    }

    /// Whether `ip` is this device's: an address of the interface, or one of its GIDs.
    pub(crate) fn owns(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip) || self.gids.iter().any(|g| g.to_ip() == ip)
    }
}

/// The devices this process offers, by `ADVERB_NETDEV`. Starts nothing and opens no socket.
pub fn devices() -> Result<Vec<Arc<Device>>, NicError> {
    let config = Config::from_env()?;
    let interfaces = interfaces()?;
    let all = config.netdevs.iter().any(|n| n == "all");
    let wanted: Vec<&Interface> = if all {
        interfaces.values().collect()
    } else if config.netdevs.is_empty() {
        interfaces.values().filter(|i| i.loopback).collect()
    } else {
        let mut list = Vec::new();
        for name in &config.netdevs {
            list.push(interfaces.get(name).ok_or_else(|| NicError::Setting {
                name: "ADVERB_NETDEV",
                value: name.clone(),
                wants: "the name of an interface that is up and has an address, or \"all\"",
            })?);
        }
        list
    };
    Ok(wanted
        .iter()
        .enumerate()
        .map(|(i, f)| Arc::new(device(i as u32, f)))
        .collect())
}

struct Interface {
    name: String,
    ifindex: u32,
    loopback: bool,
    addresses: Vec<IpAddr>,
}

fn interfaces() -> Result<BTreeMap<String, Interface>, NicError> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for a in if_addrs::get_if_addrs().map_err(NicError::io("listing the network interfaces"))? {
        if !a.is_oper_up() && !a.is_loopback() {
            continue;
        }
        let entry = found.entry(a.name.clone()).or_insert_with(|| Interface {
            name: a.name.clone(),
            ifindex: a.index.unwrap_or(0),
            loopback: a.is_loopback(),
            addresses: Vec::new(),
        });
        entry.addresses.push(a.ip());
    }
    Ok(found)
}

/// The interface that has an address, offered or not.
pub(crate) fn interface_of(address: IpAddr) -> Option<String> {
    let all = interfaces().ok()?;
    let found = all.values().find(|i| i.addresses.contains(&address));
    found.map(|i| i.name.clone())
}

fn device(index: u32, from: &Interface) -> Device {
    let mac = sysfs(&from.name, "address")
        .and_then(|s| parse_mac(&s))
        .unwrap_or([0; 6]);
    let default_gid = Gid::default_for_mac(mac);
    // An interface that has a link-local address need not have the one its hardware address gives.
    let mut own_v6 = from
        .addresses
        .iter()
        .filter(|a| a.is_ipv6())
        .map(|a| Gid::from_ip(*a));
    let link_local = own_v6.find(|gid| gid.is_link_local());
    // IPv4 comes second, and what further IPv4 addresses there are come last: many clients ask for index 1 or the first that fits.
    let mut gids = vec![link_local.unwrap_or(default_gid)];
    gids.extend(
        from.addresses
            .iter()
            .find(|a| a.is_ipv4())
            .map(|a| Gid::from_ip(*a)),
    );
    for a in from.addresses.iter().filter(|a| a.is_ipv6()) {
        let gid = Gid::from_ip(*a);
        if !gids.contains(&gid) {
            gids.push(gid);
        }
    }
    let others = from.addresses.iter().filter(|a| a.is_ipv4()).skip(1);
    gids.extend(others.map(|a| Gid::from_ip(*a)));
    let eui = u64::from_be_bytes(default_gid.0[8..16].try_into().unwrap_or([0; 8]));
    Device {
        name: format!("adverb{index}"),
        index,
        netdev: from.name.clone(),
        ifindex: from.ifindex,
        // The loopback interface has no MAC; the low bytes then tell devices apart.
        guid: eui ^ (u64::from(from.ifindex) << 48),
        addresses: from.addresses.clone(),
        gids,
        netdev_mtu: sysfs_number(&from.name, "mtu").unwrap_or(1500),
        limits: Limits::default(),
    }
}

fn sysfs(netdev: &str, file: &str) -> Option<String> {
    let path = Path::new("/sys/class/net").join(netdev).join(file);
    std::fs::read_to_string(path)
        .ok()
        .map(|s| s.trim().to_owned())
}

fn sysfs_number(netdev: &str, file: &str) -> Option<u32> {
    sysfs(netdev, file)?.parse().ok()
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0u8; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_an_interface_is_a_gid_and_the_first_of_ipv4_is_the_second_gid() {
        let addresses = ["10.1.0.1", "fd00::1", "10.1.0.9", "192.0.2.3"];
        let found = device(
            0,
            &Interface {
                name: "none such".to_owned(),
                ifindex: 7,
                loopback: false,
                addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            },
        );
        let gids: Vec<String> = found.gids().iter().map(|g| g.to_ip().to_string()).collect();
        assert!(found.gids()[0].is_link_local());
        assert_eq!(gids[1..], ["10.1.0.1", "fd00::1", "10.1.0.9", "192.0.2.3"]);
    }

    #[test]
    fn the_loopback_interface_is_the_default_device() {
        let list = devices().unwrap();
        let lo = &list[0];
        assert_eq!((lo.name.as_str(), lo.netdev.as_str()), ("adverb0", "lo"));
        assert!(lo.gids()[0].is_link_local());
        assert_eq!(lo.gids()[1].to_ip(), "127.0.0.1".parse::<IpAddr>().unwrap());
        assert!(lo.guid != 0);
    }
}
