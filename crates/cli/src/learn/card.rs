//! What to look at before a program moves to another device.

use std::error::Error;

use adverb::{Context, GidKind, Origin};
use rustix::process::{Resource, getrlimit};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    for device in adverb::devices()? {
        println!("{} ({:?})", device.name(), device.origin());
        // ANCHOR: open
        let ctx = match device.open() {
            Ok(ctx) => ctx,
            Err(error) => {
                println!("  cannot be opened: {error}");
                continue;
            }
        };
        // ANCHOR_END: open
        ports(&ctx)?;
        limits(&ctx, device.origin())?;
    }
    Ok(())
}

// ANCHOR: ports
fn ports(ctx: &Context) -> Result<(), Box<dyn Error>> {
    for port in 1..=ctx.query_device()?.ports() {
        let attr = ctx.query_port(port)?;
        println!(
            "  port {port}            {}",
            if attr.is_active() {
                "active"
            } else {
                "NOT ACTIVE: no cable, or no link"
            }
        );
        println!(
            "  path MTU          up to {} bytes",
            attr.active_mtu().bytes()
        );
        let gids = ctx.gid_table(port)?;
        match gids
            .iter()
            .find(|gid| gid.kind == GidKind::RoceV2 && gid.gid.is_ipv4())
        {
            Some(gid) => println!(
                "  GID index         {} is RoCE v2 over IPv4: {}",
                gid.index,
                gid.gid.to_ip()
            ),
            None if attr.is_ethernet() => println!(
                "  GID index         NONE for RoCE v2 over IPv4: has the interface an address?"
            ),
            None => println!("  LID               {}", attr.lid()),
        }
    }
    Ok(())
}
// ANCHOR_END: ports

// ANCHOR: limits
fn limits(ctx: &Context, origin: Origin) -> Result<(), Box<dyn Error>> {
    let attr = ctx.query_device()?;
    println!(
        "  one queue         up to {} requests of {} pieces",
        attr.max_qp_wr(),
        attr.max_sge()
    );
    println!("  completion queue  up to {} entries", attr.max_cqe());
    println!(
        "  reads at a time   {} served, {} started",
        attr.max_rd_atomic(),
        attr.max_init_rd_atomic()
    );
    println!(
        "  atomics           {}",
        match (attr.has_atomics(), attr.atomics_are_global()) {
            (false, _) => "none",
            (true, false) => "among requests of this device only, not with the processor's",
            (true, true) => "with the processor's, too",
        }
    );
    if origin == Origin::System {
        // A card pins what is registered; the software NIC does not.
        match getrlimit(Resource::Memlock).current {
            Some(bytes) => println!("  locked memory     {bytes} bytes at most (ulimit -l)"),
            None => println!("  locked memory     no limit"),
        }
    }
    Ok(())
}
// ANCHOR_END: limits
