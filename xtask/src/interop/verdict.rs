//! What the programs of a row left behind, and the table of all rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::last_lines;
use super::manager;
use super::matrix::{Role, Row, Weather};

pub(super) enum Verdict {
    /// Seconds that it took in the guest.
    Good(f64),
    /// What the kernel does wrong here; the number is that of docs/interop.md.
    Known(u8),
    Bad(String),
    /// One side was done and gone while the other still waited for a last word that the network had lost: note 11 of
    /// docs/interop.md. Such a row is run once more and must pass then.
    LastWordLost(String),
}

/// Failures that are the kernel's: a row, a word of its output, the number in docs/interop.md.
struct Known {
    matches: fn(&Row) -> bool,
    says: &'static str,
    number: u8,
}

const KNOWN: &[Known] = &[Known {
    matches: |row| row.program == "ib_write_bw" && row.args.contains("-b -q 4"),
    says: "Failed status 12",
    number: 10,
}];

pub(super) fn judge(row: &Row, share: &Path, number: usize) -> Verdict {
    let read = |file: &str| {
        let bytes = fs::read(share.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let server = read(&format!("out/{number}.server"));
    let client = read(&format!("out/{number}.client"));
    let results = read("results.tsv");
    let Some(line) = results
        .lines()
        .find(|line| line.split('\t').next() == Some(number.to_string().as_str()))
    else {
        return Verdict::Bad("it was not run".to_owned());
    };
    let fields: Vec<&str> = line.split('\t').collect();
    let [_, "0", "0", took] = fields.as_slice() else {
        let text = format!(
            "exit codes of server and client: {}\n-- server\n{}\n-- client\n{}",
            fields.get(1..3).unwrap_or_default().join(", "),
            essence(&server),
            essence(&client)
        );
        let known = KNOWN.iter().find(|known| {
            (known.matches)(row) && (server.contains(known.says) || client.contains(known.says))
        });
        let codes = fields.get(1..3).unwrap_or_default();
        return match known {
            Some(known) => Verdict::Known(known.number),
            None if lost_a_last_word(row, codes, [&server, &client]) => Verdict::LastWordLost(text),
            None => Verdict::Bad(text),
        };
    };
    match complaint(row, &server, &client) {
        None => Verdict::Good(took.parse::<f64>().unwrap_or(0.0) / 1000.0),
        Some(why) => Verdict::Bad(format!(
            "{why}\n-- server\n{}\n-- client\n{}",
            essence(&server),
            essence(&client)
        )),
    }
}

/// Whether exactly one side ended well, and the other found nobody to repeat what was lost.
fn lost_a_last_word(row: &Row, codes: &[&str], texts: [&str; 2]) -> bool {
    let alone = |code: &str, text: &str| {
        let gave_up = text.contains("transport retry counter exceeded");
        // A kernel asks for the end of a connection for longer than a row may take.
        let waits = code == TIMED_OUT && manager::disconnects(row);
        gave_up || waits
    };
    row.weather != Weather::Fair
        && match codes {
            ["0", client] => alone(client, texts[1]),
            [server, "0"] => alone(server, texts[0]),
            _ => false,
        }
}

/// What `timeout` makes of a program that it had to end.
const TIMED_OUT: &str = "124";

/// What is wrong with two programs that both said they succeeded.
fn complaint(row: &Row, server: &str, client: &str) -> Option<String> {
    let each = [("server", server), ("client", client)];
    if row.program.starts_with("ibv_") {
        return each.iter().find_map(|(name, text)| {
            if text.contains("invalid data") {
                Some(format!("the {name} found wrong content"))
            } else if !text.contains("iters in") {
                Some(format!("the {name} did not say how long it took"))
            } else {
                None
            }
        });
    }
    if !row.program.starts_with("ib_") && row.program != "interop" {
        return manager::complaint(row, server, client);
    }
    if row.program == "interop" {
        return each.iter().find_map(|(name, text)| {
            (!text.contains("all is well")).then(|| format!("the {name} did not end its checks"))
        });
    }
    let results = client
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"))
        .filter(|line| {
            let first = line.split_whitespace().next();
            first.is_some_and(|word| word.parse::<u64>().is_ok())
        })
        .count();
    // Powers of two from 2 bytes to 8 MiB.
    let wanted = if row.args.contains("-a ") { 23 } else { 1 };
    (results != wanted).then(|| format!("{results} lines of results instead of {wanted}"))
}

fn essence(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| {
            ![" address: ", " GID: ", "ping data: "]
                .iter()
                .any(|noise| line.contains(noise))
        })
        .collect();
    last_lines(&lines.join("\n"))
}

/// By weather, GID, role.
type Cells = BTreeMap<(u8, u8, u8), String>;

/// Operations down, weather, GID and role across.
pub(super) struct Table {
    lines: Vec<(String, Cells)>,
    counts: [usize; 3],
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            counts: [0; 3],
        }
    }

    pub(super) fn add(&mut self, row: &Row, verdict: &Verdict) {
        let operation = row.operation();
        let (cell, count) = match verdict {
            Verdict::Good(took) => {
                println!("ok    {took:6.1} s  {}", row.name());
                ("ok".to_owned(), 0)
            }
            Verdict::Known(number) => {
                println!(
                    "KERNEL           {}: note {number} of docs/interop.md",
                    row.name()
                );
                (format!("note {number}"), 1)
            }
            Verdict::Bad(why) | Verdict::LastWordLost(why) => {
                println!("FAIL             {}", row.name());
                for line in why.lines() {
                    println!("      | {line}");
                }
                ("FAIL".to_owned(), 2)
            }
        };
        self.counts[count] += 1;
        let weather = match row.weather {
            Weather::Fair => 0,
            Weather::Loss => 1,
            Weather::Reorder => 2,
        };
        let role = u8::from(row.role == Role::Server);
        let place = (weather, row.gid, role);
        match self.lines.iter_mut().find(|(name, _)| *name == operation) {
            Some((_, cells)) => {
                cells.insert(place, cell);
            }
            None => self.lines.push((operation, Cells::from([(place, cell)]))),
        }
    }

    pub(super) fn print(&self) {
        const GIDS: [&str; 3] = ["fe80::", "IPv4", "fd00::"];
        println!(
            "\npeer: Linux software RoCE (rdma_rxe). Adverb as client/server, per GID; \"-\" is not run.\n"
        );
        println!(
            "| operation | {} | loss 1 %: IPv4 | fd00:: | reorder: IPv4 | fd00:: |",
            GIDS.join(" | ")
        );
        println!("|---|---|---|---|---|---|---|---|");
        for (operation, cells) in &self.lines {
            let columns = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)];
            let text: Vec<String> = columns
                .iter()
                .map(|&(weather, gid)| {
                    let one = |role| cells.get(&(weather, gid, role)).map_or("-", String::as_str);
                    match (one(0), one(1)) {
                        ("-", "-") => "-".to_owned(),
                        (client, server) => format!("{client}/{server}"),
                    }
                })
                .collect();
            println!("| `{operation}` | {} |", text.join(" | "));
        }
        let [good, known, bad] = self.counts;
        println!("\ninterop: {good} passed, {known} the kernel's own failures, {bad} failed");
    }

    pub(super) fn is_green(&self) -> bool {
        self.counts[2] == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: &'static str, weather: Weather) -> Row {
        Row {
            program,
            args: String::new(),
            role: Role::Server,
            gid: 1,
            weather,
        }
    }

    #[test]
    fn a_last_word_is_lost_only_where_words_get_lost_and_one_side_ended_well() {
        let gave_up = "Failed status transport retry counter exceeded (12) for wr_id 2";
        let lost = |row: &Row, codes: [&str; 2], server| {
            lost_a_last_word(row, &codes, [server, "100 iters"])
        };
        let ping = row("ibv_srq_pingpong", Weather::Loss);
        assert!(lost(&ping, ["1", "0"], gave_up));
        assert!(!lost(&ping, ["1", "1"], gave_up), "both failed");
        assert!(!lost(&ping, ["1", "0"], "invalid data in page 0"));
        assert!(
            !lost(&ping, ["124", "0"], ""),
            "a hang, and no connection to end"
        );
        let fair = row("ibv_srq_pingpong", Weather::Fair);
        assert!(!lost(&fair, ["1", "0"], gave_up));
        assert!(lost(&row("ucmatose", Weather::Loss), ["124", "0"], ""));
    }
}
