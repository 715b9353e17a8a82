//! The list of devices.

use std::io::{self, Write};

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct DeviceInfo {
    pub(crate) name: String,
    pub(crate) guid: String,
    /// `software` or `system`.
    pub(crate) origin: &'static str,
    pub(crate) transport: &'static str,
    /// Why it could not be opened or asked.
    pub(crate) error: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) limits: Option<LimitInfo>,
    pub(crate) ports: Vec<PortInfo>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LimitInfo {
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_mr_size: u64,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_rd_atomic: u32,
    pub(crate) max_init_rd_atomic: u32,
    pub(crate) atomics: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct PortInfo {
    pub(crate) port: u8,
    pub(crate) active: bool,
    pub(crate) active_mtu: usize,
    pub(crate) max_mtu: usize,
    pub(crate) max_message: u32,
    pub(crate) link_layer: &'static str,
    pub(crate) lid: u16,
    pub(crate) gids: Vec<GidInfo>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GidInfo {
    pub(crate) index: u32,
    pub(crate) gid: String,
    pub(crate) ip: String,
    pub(crate) kind: String,
}

pub(crate) fn text(out: &mut impl Write, devices: &[DeviceInfo], verbose: bool) -> io::Result<()> {
    if devices.is_empty() {
        return writeln!(
            out,
            "no devices: no network interface of ADVERB_NETDEV is up and has an address, and the system has none (`ip addr` shows the interfaces)"
        );
    }
    for device in devices {
        write!(out, "{:<12} {} {}", device.name, device.guid, device.origin)?;
        match (&device.error, device.ports.first()) {
            (Some(error), _) => writeln!(out, ", cannot be used: {error}")?,
            (None, None) => writeln!(out, ", no ports")?,
            (None, Some(port)) => writeln!(
                out,
                ", {}, {}, MTU {}",
                port.link_layer,
                state(port),
                port.active_mtu
            )?,
        }
        if verbose {
            details(out, device)?;
        }
    }
    Ok(())
}

fn details(out: &mut impl Write, device: &DeviceInfo) -> io::Result<()> {
    let mut line =
        |name: &str, value: &dyn std::fmt::Display| writeln!(out, "    {name:<20} {value}");
    line("transport", &device.transport)?;
    if let Some(firmware) = &device.firmware {
        line("firmware", firmware)?;
    }
    if let Some(limits) = &device.limits {
        line("max_qp", &limits.max_qp)?;
        line("max_qp_wr", &limits.max_qp_wr)?;
        line("max_sge", &limits.max_sge)?;
        line("max_cq", &limits.max_cq)?;
        line("max_cqe", &limits.max_cqe)?;
        line("max_mr", &limits.max_mr)?;
        line("max_mr_size", &limits.max_mr_size)?;
        line("max_srq", &limits.max_srq)?;
        line("max_srq_wr", &limits.max_srq_wr)?;
        line("max_rd_atomic", &limits.max_rd_atomic)?;
        line("max_init_rd_atomic", &limits.max_init_rd_atomic)?;
        line("atomics", &if limits.atomics { "yes" } else { "no" })?;
    }
    for port in &device.ports {
        line(
            &format!("port {}", port.port),
            &format!(
                "{}, MTU {} (max {}), longest message {}, LID {}",
                state(port),
                port.active_mtu,
                port.max_mtu,
                port.max_message,
                port.lid
            ),
        )?;
        for gid in &port.gids {
            line(
                &format!("  GID {}", gid.index),
                &format!("{} ({}, {})", gid.gid, gid.ip, gid.kind),
            )?;
        }
    }
    Ok(())
}

fn state(port: &PortInfo) -> &'static str {
    if port.active { "active" } else { "down" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_says_what_to_look_at() {
        let mut out = Vec::new();
        text(&mut out, &[], false).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("ADVERB_NETDEV"));
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_listed_with_the_reason() {
        let device = DeviceInfo {
            name: "mlx5_0".to_owned(),
            guid: "0".to_owned(),
            origin: "system",
            transport: "infiniband",
            error: Some("permission denied".to_owned()),
            firmware: None,
            limits: None,
            ports: Vec::new(),
        };
        let mut out = Vec::new();
        text(&mut out, &[device], true).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.contains("mlx5_0") && out.contains("permission denied"),
            "{out}"
        );
    }
}
