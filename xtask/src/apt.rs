//! The Debian packages that the tests need beyond Rust and gcc, and what is skipped without them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::{step, tree};

struct Need {
    package: &'static str,
    /// A program on the path, or an absolute path, by which we see that it is there.
    probe: &'static str,
    /// What is not tested without it.
    otherwise: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        package: "ibverbs-utils",
        probe: "ibv_rc_pingpong",
        otherwise: "the ping-pong programs and ibv_devinfo",
    },
    Need {
        package: "perftest",
        probe: "ib_send_lat",
        otherwise: "all of perftest",
    },
    Need {
        package: "rdmacm-utils",
        probe: "rping",
        otherwise: "the clients of the connection manager",
    },
    Need {
        package: "qperf",
        probe: "qperf",
        otherwise: "qperf",
    },
    Need {
        package: "fio",
        probe: "fio",
        otherwise: "fio",
    },
    Need {
        package: "libfabric-bin",
        probe: "fi_pingpong",
        otherwise: "libfabric",
    },
    Need {
        package: "ucx-utils",
        probe: "ucx_perftest",
        otherwise: "UCX",
    },
    Need {
        package: "openmpi-bin",
        probe: "mpirun",
        otherwise: "Open MPI",
    },
    Need {
        package: "python3-mpi4py",
        probe: "/usr/lib/python3/dist-packages/mpi4py",
        otherwise: "Open MPI",
    },
    Need {
        package: "libibverbs-dev",
        probe: "/usr/include/infiniband/verbs.h",
        otherwise: "C programs, the kill test and the layout tests",
    },
    Need {
        package: "librdmacm-dev",
        probe: "/usr/include/rdma/rdma_cma.h",
        otherwise: "the layout tests of librdmacm's structs",
    },
    Need {
        package: "python3-pyverbs",
        probe: "/usr/lib/python3/dist-packages/pyverbs",
        otherwise: "rdma-core's conformance suite",
    },
    Need {
        package: "rdma-core",
        probe: "/usr/share/doc/rdma-core/tests",
        otherwise: "rdma-core's conformance suite",
    },
    Need {
        package: "iproute2",
        probe: "ip",
        otherwise: "tests of the conformance suite that look at network interfaces",
    },
    Need {
        package: "valgrind",
        probe: "valgrind",
        otherwise: "the C programs under memcheck",
    },
    Need {
        package: "tshark",
        probe: "tshark",
        otherwise: "whether others can read our packets",
    },
    Need {
        package: "g++",
        probe: "c++",
        otherwise: "fuzzing",
    },
    Need {
        package: "binutils",
        probe: "readelf",
        otherwise: "the check of exported symbols",
    },
    Need {
        package: "gdb",
        probe: "gdb",
        otherwise: "user stacks of a program that hangs (nothing else)",
    },
];

impl Need {
    fn is_met(&self) -> bool {
        if self.probe.starts_with('/') {
            Path::new(self.probe).exists()
        } else {
            tree::on_path(self.probe)
        }
    }
}

/// Installs what is missing, as root; otherwise says loudly what is skipped. False only when an installation failed.
pub(crate) fn install_missing() -> Result<bool> {
    let missing = || NEEDS.iter().filter(|need| !need.is_met());
    let packages: Vec<&str> = missing().map(|need| need.package).collect();
    if packages.is_empty() {
        println!(
            "all there: {}",
            NEEDS
                .iter()
                .map(|need| need.package)
                .collect::<Vec<_>>()
                .join(" ")
        );
        return Ok(true);
    }
    let root = rustix::process::geteuid().is_root();
    let tried = root && tree::on_path("apt-get");
    if tried {
        update()?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install
            .args(["install", "-y", "-q", "--no-install-recommends"])
            .args(&packages);
        step::run(&mut install, Duration::from_secs(600))?;
    }
    let mut complete = true;
    for need in missing() {
        complete = false;
        println!(
            "SKIPPED: {} (package {} is not installed)",
            need.otherwise, need.package
        );
    }
    if !complete && !tried {
        println!(
            "to run them: as root, apt-get install {}",
            packages.join(" ")
        );
    }
    Ok(complete || !tried)
}

/// A mirror that answers badly once often answers well the next time.
fn update() -> Result<()> {
    for _ in 0..3 {
        let mut update = Command::new("apt-get");
        update.args(["update", "-q"]);
        if step::run(&mut update, Duration::from_secs(180))? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(5));
    }
    println!(
        "apt-get update failed three times; trying the installation with the lists that are there"
    );
    Ok(())
}
