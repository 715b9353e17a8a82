//! What is run against the kernel: program × GID × what the network does × role.

/// Which side Adverb is; kernel software RoCE is the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Client,
    Server,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weather {
    Fair,
    /// One packet of a hundred is lost, in each direction.
    Loss,
    /// Every fourth packet comes 2 ms late, behind those sent after it.
    Reorder,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) program: &'static str,
    pub(super) args: String,
    pub(super) role: Role,
    pub(super) gid: u8,
    pub(super) weather: Weather,
}

impl Role {
    pub(super) const ALL: [Self; 2] = [Self::Client, Self::Server];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl Weather {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fair => "none",
            Self::Loss => "loss",
            Self::Reorder => "reorder",
        }
    }
}

impl Row {
    pub(super) fn operation(&self) -> String {
        format!("{} {}", self.program, self.args).trim().to_owned()
    }

    pub(super) fn gid_name(&self) -> &'static str {
        ["fe80::", "IPv4", "fd00::"][usize::from(self.gid)]
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{} / {} / {} / {}",
            self.operation(),
            self.role.word(),
            self.gid_name(),
            self.weather.word()
        )
    }

    /// Its line in the guest's list.
    pub(super) fn line(&self, number: usize) -> String {
        format!(
            "{number}\t{}\t{}\t{}\t{BOUND}\t{}\t{}\n",
            self.role.word(),
            self.gid,
            self.weather.word(),
            self.program,
            self.args
        )
    }
}

/// Seconds for a client: ten times what a slow row takes in a guest that has the host for itself.
const BOUND: u32 = 60;

/// Programs and arguments; which GIDs, or which address of the connection manager; in which weather.
type Group = (
    &'static [(&'static str, &'static str)],
    &'static [u8],
    &'static [Weather],
);

use Weather::{Fair, Loss, Reorder};

const GROUPS: &[Group] = &[
    // Contents, statuses and events on both sides, at three packet sizes.
    (&[("interop", "-m 1024")], &[0, 1, 2], &[Fair]),
    (
        &[("interop", "-m 256"), ("interop", "-m 4096")],
        &[1],
        &[Fair],
    ),
    (&[("interop", "-m 1024 --lossy")], &[1, 2], &[Loss, Reorder]),
    // The ping-pong programs, polling and sleeping, around the MTU.
    (
        &[
            ("ibv_rc_pingpong", "-c -n 50 -s 4096"),
            ("ibv_uc_pingpong", "-c -n 50 -s 4096"),
            ("ibv_ud_pingpong", "-c -n 50 -s 1024"),
            ("ibv_srq_pingpong", "-c -n 100 -s 4096"),
        ],
        &[0, 1, 2],
        &[Fair],
    ),
    (
        &[
            ("ibv_rc_pingpong", "-c -e -n 50 -s 1"),
            ("ibv_rc_pingpong", "-c -n 50 -s 4097"),
            ("ibv_rc_pingpong", "-c -n 20 -s 1048576"),
            ("ibv_rc_pingpong", "-c -m 1024 -n 50 -s 1025"),
            ("ibv_uc_pingpong", "-c -e -n 50 -s 65536"),
            ("ibv_ud_pingpong", "-c -e -n 50 -s 2048"),
            ("ibv_srq_pingpong", "-c -e -n 100 -s 16384"),
        ],
        &[1],
        &[Fair],
    ),
    (
        &[("ibv_rc_pingpong", "-c -n 100 -s 65536")],
        &[1, 2],
        &[Loss, Reorder],
    ),
    (
        &[("ibv_srq_pingpong", "-c -n 100 -s 4096")],
        &[1],
        &[Loss, Reorder],
    ),
    // A lost datagram stops these for ever; a late one does not.
    (&[("ibv_ud_pingpong", "-c -n 50 -s 1024")], &[1], &[Reorder]),
    // perftest.
    (
        &[
            ("ib_send_lat", "-F -n 100"),
            ("ib_write_lat", "-F -n 100"),
            ("ib_read_lat", "-F -n 100"),
            ("ib_atomic_lat", "-F -n 100"),
            ("ib_read_lat", "-F -e -n 100"),
            ("ib_atomic_lat", "-F -e -n 100"),
            ("ib_atomic_lat", "-F -A CMP_AND_SWAP -n 100"),
            ("ib_send_lat", "-F -c UC -n 100"),
            ("ib_write_lat", "-F -c UC -n 100"),
            ("ib_send_lat", "-F -c UD -n 100"),
            ("ib_send_bw", "-F -a -n 5"),
            ("ib_write_bw", "-F -a -n 5"),
            ("ib_read_bw", "-F -a -n 5"),
            ("ib_send_bw", "-F -e -n 100"),
            ("ib_read_bw", "-F -e -n 100"),
            ("ib_atomic_bw", "-F -n 100"),
            ("ib_atomic_bw", "-F -e -n 100"),
            ("ib_write_bw", "-F -b -n 100"),
            ("ib_write_bw", "-F -q 4 -n 100"),
            ("ib_write_bw", "-F -b -q 4 -n 100"),
        ],
        &[1],
        &[Fair],
    ),
    (
        &[
            ("ib_send_bw", "-F -n 100"),
            ("ib_write_bw", "-F -n 100"),
            ("ib_read_bw", "-F -n 100"),
            ("ib_atomic_bw", "-F -n 100"),
        ],
        &[0, 2],
        &[Fair],
    ),
    (
        &[
            ("ib_send_bw", "-F -n 100"),
            ("ib_write_bw", "-F -n 100"),
            ("ib_read_bw", "-F -n 50"),
            ("ib_atomic_bw", "-F -n 100"),
        ],
        &[1, 2],
        &[Loss, Reorder],
    ),
    // The connection manager: ours against the kernel's.
    (
        &[
            ("rping", "-v -V -C 20"),
            ("rping", "-v -V -C 10 -S 65535"),
            ("ucmatose", "-c 5 -C 10 -S 4096"),
            ("udaddy", "-c 3 -C 10 -S 1024"),
        ],
        &[1, 2],
        &[Fair],
    ),
    (
        &[
            ("rping", "-v -V -q -C 10"),
            ("ucmatose", "-c 3 -m -t 32"),
            ("cmtime", "-c 20"),
            ("rdma_client", ""),
            ("ib_send_lat", "-F -R -n 100"),
            ("ib_send_lat", "-F -R -c UD -n 100"),
            ("ib_send_bw", "-F -R -e -n 100"),
            ("ib_write_bw", "-F -R -n 100"),
            ("ib_read_lat", "-F -R -n 100"),
            ("ib_read_bw", "-F -R -e -n 100"),
            ("ib_atomic_bw", "-F -R -n 100"),
        ],
        &[1],
        &[Fair],
    ),
    // What is lost of a datagram's data stops udaddy for ever, so here are the others alone.
    (
        &[
            ("rping", "-v -V -C 50 -S 4096"),
            ("ucmatose", "-c 10 -C 20 -S 4096"),
        ],
        &[1, 2],
        &[Loss, Reorder],
    ),
    (
        &[("ib_write_bw", "-F -R -n 100"), ("cmtime", "-c 20")],
        &[1],
        &[Loss],
    ),
];

/// Rows of one weather stand together: changing it takes time.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for weather in [Fair, Loss, Reorder] {
        for (programs, gids, weathers) in GROUPS {
            if !weathers.contains(&weather) {
                continue;
            }
            for &(program, args) in *programs {
                for &gid in *gids {
                    rows.extend(Role::ALL.map(|role| Row {
                        program,
                        args: args.to_owned(),
                        role,
                        gid,
                        weather,
                    }));
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = rows();
        let names: std::collections::BTreeSet<_> = rows.iter().map(Row::name).collect();
        assert_eq!(names.len(), rows.len());
    }
}
