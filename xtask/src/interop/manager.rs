//! By what we see that programs of the connection manager did their work.

use super::matrix::Row;

/// What is wrong with two programs that both said they succeeded.
pub(super) fn complaint(row: &Row, server: &str, client: &str) -> Option<String> {
    if server.contains("mismatch") || client.contains("mismatch") {
        return Some("rping found wrong content".to_owned());
    }
    // Lines of both sides, and of the client alone.
    let (both, of_client): (&[&str], &[&str]) = match row.program {
        "rping" => (&["ping data: rdma-ping-"], &[]),
        "ucmatose" | "udaddy" => (&["data transfers complete", "return status 0"], &[]),
        "rdma_client" => (&[" end 0"], &[]),
        "cmtime" => (&[], &["connect      :", "destroy      :"]),
        other => return Some(format!("nobody has said what {other} prints")),
    };
    // rping prints each of its messages.
    let wanted = match row.program {
        "rping" => count(&row.args),
        _ => 1,
    };
    let few = |name: &str, text: &str, sign: &&str| {
        let found = text.lines().filter(|line| line.contains(*sign)).count();
        (found < wanted)
            .then(|| format!("the {name} said {sign:?} {found} times instead of {wanted}"))
    };
    both.iter()
        .find_map(|sign| few("server", server, sign))
        .or_else(|| {
            both.iter()
                .chain(of_client)
                .find_map(|sign| few("client", client, sign))
        })
}

/// Whether both programs wait for the end of a connection that the other side confirms.
pub(super) fn disconnects(row: &Row) -> bool {
    let programs = ["rping", "ucmatose", "rdma_client", "cmtime"];
    programs.contains(&row.program) || row.args.split_whitespace().any(|word| word == "-R")
}

/// The number behind `-C`.
fn count(args: &str) -> usize {
    args.split_whitespace()
        .skip_while(|word| *word != "-C")
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::super::matrix::{Role, Weather};
    use super::*;

    #[test]
    fn rping_must_show_every_message_on_both_sides() {
        let row = Row {
            program: "rping",
            args: "-v -V -C 2".to_owned(),
            role: Role::Client,
            gid: 1,
            weather: Weather::Fair,
        };
        let two = "ping data: rdma-ping-0: A\nping data: rdma-ping-1: B\n";
        assert!(complaint(&row, two, two).is_none());
        assert!(complaint(&row, two, "ping data: rdma-ping-0: A\n").is_some());
        assert!(complaint(&row, two, &format!("{two}data mismatch!\n")).is_some());
    }
}
