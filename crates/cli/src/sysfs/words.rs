//! The spellings that the kernel uses in the files of an RDMA device.

use adverb::{Gid, GidKind, PortAttr};

/// `4: ACTIVE`
pub(super) fn state(port: &PortAttr) -> String {
    let number = port.raw().state;
    let name = match number {
        0 => "NOP",
        1 => "DOWN",
        2 => "INIT",
        3 => "ARMED",
        4 => "ACTIVE",
        5 => "ACTIVE_DEFER",
        _ => "UNKNOWN",
    };
    format!("{number}: {name}")
}

/// `5: LinkUp`
pub(super) fn physical_state(port: &PortAttr) -> String {
    let number = port.raw().phys_state;
    let name = match number {
        1 => "Sleep",
        2 => "Polling",
        3 => "Disabled",
        4 => "PortConfigurationTraining",
        5 => "LinkUp",
        6 => "LinkErrorRecovery",
        7 => "Phy Test",
        _ => "<unknown>",
    };
    format!("{number}: {name}")
}

/// `100 Gb/sec (4X EDR)`
pub(super) fn rate(port: &PortAttr) -> String {
    let raw = port.raw();
    let (tenths, speed) = match raw.active_speed {
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        8 => (100, " FDR10"),
        16 => (140, " FDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        128 => (1000, " NDR"),
        _ => (25, " SDR"),
    };
    let width = match raw.active_width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let tenths = tenths * width;
    let half = if tenths % 10 == 0 { "" } else { ".5" };
    format!("{}{half} Gb/sec ({width}X{speed})", tenths / 10)
}

pub(super) fn link_layer(port: &PortAttr) -> &'static str {
    if port.is_ethernet() {
        "Ethernet"
    } else {
        "InfiniBand"
    }
}

/// Eight groups of four digits, no group left out.
pub(super) fn gid(gid: Gid) -> String {
    let groups: Vec<String> = gid
        .0
        .chunks(2)
        .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}

pub(super) fn gid_kind(kind: GidKind) -> &'static str {
    match kind {
        GidKind::RoceV2 => "RoCE v2",
        _ => "IB/RoCE v1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_has_all_its_digits() {
        let short: Gid = "fe80::1".parse().unwrap();
        assert_eq!(gid(short), "fe80:0000:0000:0000:0000:0000:0000:0001");
        let v4: Gid = "127.0.0.1".parse().unwrap();
        assert_eq!(gid(v4), "0000:0000:0000:0000:0000:ffff:7f00:0001");
    }
}
