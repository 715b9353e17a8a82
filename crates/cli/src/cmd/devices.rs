//! `adverb devices`: what there is, software and system devices alike.

use std::io::{self, Write as _};

use adverb::{Device, GidKind, Origin};
use anyhow::{Context as _, Result};

use crate::args::DevicesArgs;
use crate::report::devices::{self, DeviceInfo, GidInfo, LimitInfo, PortInfo};

pub(crate) fn execute(args: &DevicesArgs) -> Result<()> {
    let all = adverb::devices().context("cannot list devices")?;
    let infos: Vec<_> = all.iter().map(look).collect();
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &infos)?;
        writeln!(out)?;
    } else {
        devices::text(&mut out, &infos, args.verbose)?;
    }
    out.flush()?;
    Ok(())
}

/// One device that cannot be opened does not hide the others.
fn look(device: &Device) -> DeviceInfo {
    let mut info = DeviceInfo {
        name: device.name().to_owned(),
        guid: device.guid().to_string(),
        origin: match device.origin() {
            Origin::Software => "software",
            Origin::System => "system",
        },
        transport: match device.transport_type() {
            0 => "infiniband",
            1 => "iwarp",
            _ => "other",
        },
        error: None,
        firmware: None,
        limits: None,
        ports: Vec::new(),
    };
    if let Err(error) = open(device, &mut info) {
        info.error = Some(format!("{error:#}"));
    }
    info
}

fn open(device: &Device, info: &mut DeviceInfo) -> Result<()> {
    let context = device.open()?;
    let attr = context.query_device()?;
    info.firmware = Some(attr.firmware());
    info.limits = Some(LimitInfo {
        max_qp: attr.max_qp(),
        max_qp_wr: attr.max_qp_wr(),
        max_sge: attr.max_sge(),
        max_cq: attr.max_cq(),
        max_cqe: attr.max_cqe(),
        max_mr: attr.max_mr(),
        max_mr_size: attr.max_mr_size(),
        max_srq: attr.max_srq(),
        max_srq_wr: attr.max_srq_wr(),
        max_rd_atomic: attr.max_rd_atomic(),
        max_init_rd_atomic: attr.max_init_rd_atomic(),
        atomics: attr.has_atomics(),
    });
    for port in 1..=attr.ports() {
        let attr = context.query_port(port)?;
        let gids = context.gid_table(port)?;
        info.ports.push(PortInfo {
            port,
            active: attr.is_active(),
            active_mtu: attr.active_mtu().bytes(),
            max_mtu: attr.max_mtu().bytes(),
            max_message: attr.max_msg_size(),
            link_layer: if attr.is_ethernet() {
                "ethernet"
            } else {
                "infiniband"
            },
            lid: attr.lid(),
            gids: gids
                .into_iter()
                .map(|entry| GidInfo {
                    index: entry.index,
                    gid: entry.gid.to_string(),
                    ip: entry.gid.to_ip().to_string(),
                    kind: match entry.kind {
                        GidKind::Infiniband => "infiniband".to_owned(),
                        GidKind::RoceV1 => "roce v1".to_owned(),
                        GidKind::RoceV2 => "roce v2".to_owned(),
                        GidKind::Other(number) => format!("type {number}"),
                    },
                })
                .collect(),
        });
    }
    Ok(())
}
