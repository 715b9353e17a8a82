//! Every name the drop-in library exports, with its version nodes: the one table, which the exports and the tests read.
//!
//! A row is `name, kind, version...`. The first version is the one a newly linked program binds to; further ones are
//! for programs linked long ago. The version `private` stands for all nodes of [`private`]. The kinds:
//!
//! | kind | what a call does |
//! |---|---|
//! | `code` | the function of that name in `adverb_provider::calls` |
//! | `pointer` | returns NULL, errno EOPNOTSUPP |
//! | `minus_one` | returns -1, errno EOPNOTSUPP |
//! | `errno` | returns EOPNOTSUPP |
//! | `nothing` | returns 0; for calls where silence is the right answer, and those that return nothing |

mod efa;
mod ibverbs;
mod mlx5;
mod private;
mod rdmacm;

pub(crate) use {efa::efa, ibverbs::ibverbs, mlx5::mlx5, private::private, rdmacm::rdmacm};
