//! The lists of what is to be broken, and by whom it must be noticed.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use crate::tree;

/// Below `tests/mutants/`.
const LISTS: [&str; 2] = ["engine.txt", "cm.txt"];

/// Tests of one binary, or the simulation's worlds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Judge {
    pub(super) package: String,
    /// `lib`, or the name of an integration test or of a program.
    pub(super) target: String,
    /// Only tests whose name contains one of these; all of them if there is none.
    pub(super) filters: Vec<String>,
}

impl std::fmt::Display for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.target)?;
        for filter in &self.filters {
            write!(f, " {filter}")?;
        }
        Ok(())
    }
}

/// What is to come of a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Caught,
    /// The tests that should notice it never end, which for this one is noticing.
    Endless,
    /// Nobody notices, for this reason.
    Survives(String),
}

pub(super) struct Mutant {
    pub(super) name: String,
    /// Below `crates/`.
    pub(super) file: String,
    pub(super) old: String,
    pub(super) new: String,
    /// Asked in this order, until one notices.
    pub(super) judges: Vec<Judge>,
    pub(super) fate: Fate,
}

impl Mutant {
    /// Where in `text` its own text begins.
    pub(super) fn place_in(&self, text: &str) -> Result<usize> {
        let mut found = text.match_indices(&self.old);
        match (found.next(), found.count()) {
            (Some((at, _)), 0) => Ok(at),
            (None, _) => bail!(
                "{}: its text is not in {}; carry the mutant along with the code",
                self.name,
                self.file
            ),
            (Some(_), more) => bail!(
                "{}: its text is {} times in {}, not once",
                self.name,
                more + 1,
                self.file
            ),
        }
    }

    /// The file as it is.
    pub(super) fn source(&self) -> Result<String> {
        let path = tree::root().join("crates").join(&self.file);
        std::fs::read_to_string(&path)
            .with_context(|| format!("{}: no file {}", self.name, self.file))
    }
}

pub(super) fn all() -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for list in LISTS {
        let path = tree::root().join("tests/mutants").join(list);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        mutants.extend(parse(&text).with_context(|| list.to_owned())?);
    }
    Ok(mutants)
}

fn parse(text: &str) -> Result<Vec<Mutant>> {
    let mut usual = Vec::new();
    let mut mutants: Vec<Mutant> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let n = n + 1;
        let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(m) = mutants.last_mut().filter(|_| sign != "==") else {
            match sign {
                "==" => mutants.push(Mutant {
                    name: rest.to_owned(),
                    file: String::new(),
                    old: String::new(),
                    new: String::new(),
                    judges: Vec::new(),
                    fate: Fate::Caught,
                }),
                "?" => usual.push(judge(rest).with_context(|| format!("line {n}"))?),
                _ => bail!("line {n}: no mutant has begun"),
            }
            continue;
        };
        match sign {
            "@" => rest.clone_into(&mut m.file),
            "-" => writeln!(m.old, "{rest}")?,
            "+" => writeln!(m.new, "{rest}")?,
            "?" => m
                .judges
                .push(judge(rest).with_context(|| format!("line {n}"))?),
            "!" if rest == "endless" => m.fate = Fate::Endless,
            "!" => match rest.strip_prefix("survives: ") {
                Some(why) => m.fate = Fate::Survives(why.to_owned()),
                None => bail!("line {n}: {rest:?} is neither 'endless' nor 'survives: WHY'"),
            },
            _ => bail!("line {n}: {line:?} begins with none of == @ - + ? !"),
        }
    }
    for m in &mut mutants {
        if m.judges.is_empty() {
            m.judges.clone_from(&usual);
        }
        if m.judges.is_empty() {
            bail!("{}: nobody is asked (no '?' line)", m.name);
        }
    }
    Ok(mutants)
}

fn judge(text: &str) -> Result<Judge> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let (Some(package), Some(target)) = (words.next(), words.next()) else {
        bail!("{text:?} is not 'PACKAGE TARGET [TEST..]'");
    };
    Ok(Judge {
        package,
        target,
        filters: words.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_still_has_something_to_change() {
        let mutants = all().unwrap_or_else(|e| panic!("{e:#}"));
        assert!(mutants.len() >= 25);
        for m in &mutants {
            let source = m.source().unwrap_or_else(|e| panic!("{e:#}"));
            m.place_in(&source).unwrap_or_else(|e| panic!("{e:#}"));
            assert_ne!(m.old, m.new, "{}", m.name);
        }
    }

    #[test]
    fn no_two_mutants_have_the_same_name() {
        let mutants = all().unwrap_or_else(|e| panic!("{e:#}"));
        let mut names: Vec<&str> = mutants.iter().map(|m| m.name.as_str()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn a_line_that_is_nothing_is_refused() {
        assert!(parse("? a lib\n== a\nfoo").is_err());
        assert!(parse("- x").is_err());
        assert!(parse("? a lib\n== a\n! perhaps").is_err());
        assert!(parse("== a\n@ f\n- x\n+ y\n").is_err(), "nobody is asked");
    }

    #[test]
    fn a_mutant_asks_its_own_judges_or_those_of_its_list() {
        let text = "? p lib\n== a\n- x\n+ y\n== b\n? q t one two\n! endless\n- x\n+\n";
        let mutants = parse(text).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!(mutants[0].judges[0].to_string(), "p lib");
        assert_eq!(mutants[1].judges.len(), 1);
        assert_eq!(mutants[1].judges[0].to_string(), "q t one two");
        assert_eq!(mutants[1].fate, Fate::Endless);
        assert_eq!(mutants[1].new, "\n");
    }
}
