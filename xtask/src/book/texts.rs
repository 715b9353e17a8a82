//! What mdBook would complain of, and more: every chapter is listed, every link and every included anchor is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Chapter, read, root};

/// The section that ends each numbered chapter.
const TRY: &str = "## One thing to try";

/// The numbered chapters, in order.
pub(super) fn chapters() -> Result<Vec<Chapter>> {
    Ok(links(&read("src/SUMMARY.md")?)
        .into_iter()
        .filter(|link| link.numbered)
        .filter_map(|link| {
            Some(Chapter {
                name: link.to.strip_suffix(".md")?.to_owned(),
                title: link.text,
            })
        })
        .collect())
}

pub(super) fn complaints(chapters: &[Chapter]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let listed: BTreeSet<String> = links(&read("src/SUMMARY.md")?)
        .into_iter()
        .map(|link| link.to)
        .collect();
    for file in markdown_files()? {
        if file != "SUMMARY.md" && !listed.contains(&file) {
            complaints.push(format!("src/{file} is not in SUMMARY.md"));
        }
        let text = read(&format!("src/{file}"))?;
        complaints.extend(broken_links(&file, &text)?);
        complaints.extend(broken_includes(&file, &text));
        if text.matches("\n```").count() % 2 == 1 {
            complaints.push(format!("src/{file}: a code block has no end"));
        }
    }
    for chapter in chapters {
        complaints.extend(incomplete(chapter)?);
    }
    Ok(complaints)
}

/// A chapter has its heading, both programs, what they print, and one thing to try at its end.
fn incomplete(chapter: &Chapter) -> Result<Vec<String>> {
    let Chapter { name, title } = chapter;
    let text = read(&format!("src/{name}.md"))?;
    let mut complaints = Vec::new();
    if text.lines().next() != Some(&format!("# {title}")) {
        complaints.push(format!("src/{name}.md does not begin with \"# {title}\""));
    }
    let last = text.lines().rfind(|line| line.starts_with("## "));
    if last != Some(TRY) {
        complaints.push(format!("src/{name}.md does not end with \"{TRY}\""));
    }
    for part in [
        format!("learn/{name}.rs"),
        format!("c/{name}.c"),
        format!("output/{name}."),
    ] {
        if !includes(&text).any(|include| include.contains(&part)) {
            complaints.push(format!("src/{name}.md shows nothing of {part}"));
        }
    }
    Ok(complaints)
}

fn markdown_files() -> Result<Vec<String>> {
    let dir = root().join("src");
    let mut files = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.extend(
                path.file_name()
                    .and_then(|name| name.to_str())
                    .map(str::to_owned),
            );
        }
    }
    files.sort();
    Ok(files)
}

struct Link {
    text: String,
    to: String,
    /// In a list, so that mdBook gives it a number.
    numbered: bool,
}

/// `[text](to)` outside of code.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("](") {
            let Some((to, behind)) = after.split_once(')') else {
                break;
            };
            if let Some(start) = before.rfind('[') {
                found.push(Link {
                    text: before[start + 1..].to_owned(),
                    to: to.to_owned(),
                    numbered: line.trim_start().starts_with("- "),
                });
            }
            rest = behind;
        }
    }
    found
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

fn broken_links(file: &str, text: &str) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for Link { to, .. } in links(text) {
        if to.contains("://") {
            continue;
        }
        let (path, place) = to
            .split_once('#')
            .map_or((to.as_str(), None), |(path, place)| (path, Some(place)));
        let path = if path.is_empty() { file } else { path };
        let target = root().join("src").join(path);
        if !target.is_file() {
            complaints.push(format!("src/{file}: there is no {path}"));
        } else if let Some(place) = place
            && !fs::read_to_string(&target)?.lines().any(|line| {
                line.starts_with('#') && anchor_of(line.trim_start_matches('#')) == place
            })
        {
            complaints.push(format!("src/{file}: {path} has no heading #{place}"));
        }
    }
    Ok(complaints)
}

/// How mdBook names a heading in a link.
fn anchor_of(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// What stands in `{{#include …}}`.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{#include ")
        .skip(1)
        .filter_map(|rest| rest.split_once("}}"))
        .map(|(inside, _)| inside.trim())
}

fn broken_includes(file: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for include in includes(text) {
        let (path, anchor) = include
            .split_once(':')
            .map_or((include, None), |(path, anchor)| (path, Some(anchor)));
        let path = root().join("src").join(path);
        if let Err(why) = included(&path, anchor) {
            complaints.push(format!("src/{file}: {include}: {why}"));
        }
    }
    complaints
}

/// What an include shows, without the lines of other anchors; or why mdBook would show nothing.
fn included(path: &PathBuf, anchor: Option<&str>) -> Result<String, String> {
    let text = fs::read_to_string(Path::new(path)).map_err(|error| error.to_string())?;
    let mark = |line: &str, word: &str, anchor: &str| {
        line.split_once(word)
            .is_some_and(|(_, name)| name.split_whitespace().next() == Some(anchor))
    };
    let Some(anchor) = anchor else {
        return Ok(text);
    };
    let count = |word: &str| text.lines().filter(|line| mark(line, word, anchor)).count();
    if (count("ANCHOR: "), count("ANCHOR_END: ")) != (1, 1) {
        return Err(format!("no anchor {anchor} with one beginning and one end"));
    }
    let shown: String = text
        .lines()
        .skip_while(|line| !mark(line, "ANCHOR: ", anchor))
        .take_while(|line| !mark(line, "ANCHOR_END: ", anchor))
        .filter(|line| !line.contains("ANCHOR"))
        .collect();
    if shown.trim().is_empty() {
        return Err("an empty anchor".to_owned());
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_none() {
        let found = links("- [A b](a.md) and [c](b.md#d)\n```\n[x](y.md)\n```\n[e](f.md)\n");
        let found: Vec<_> = found
            .iter()
            .map(|link| (link.text.as_str(), link.to.as_str(), link.numbered))
            .collect();
        assert_eq!(
            found,
            [
                ("A b", "a.md", true),
                ("c", "b.md#d", true),
                ("e", "f.md", false)
            ]
        );
    }

    #[test]
    fn headings_are_named_as_mdbook_names_them() {
        assert_eq!(anchor_of(" Get, and `ack`"), "get-and-ack");
    }

    #[test]
    fn an_include_that_shows_nothing_is_refused() {
        let path = std::env::temp_dir().join(format!("xtask-book-{}.c", std::process::id()));
        fs::write(
            &path,
            "/* ANCHOR: a */\nint x;\n/* ANCHOR_END: a */\n/* ANCHOR: b */\n/* ANCHOR_END: b */\n",
        )
        .expect("a file");
        assert_eq!(included(&path, Some("a")), Ok("int x;".to_owned()));
        for anchor in ["b", "c"] {
            assert!(included(&path, Some(anchor)).is_err(), "{anchor}");
        }
        let _ = fs::remove_file(&path);
        assert!(included(&path, None).is_err());
    }
}
