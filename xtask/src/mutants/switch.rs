//! All mutants of a file in one text: each function that is broken has its body once as it is and once for each way to
//! break it, and asks at run time which of them it is to be. So everything is compiled once, however many mutants there are.
//!
//! It works on the text alone. What is changed outside of a function, or in a `const fn`, needs a build of its own.

use std::ops::Range;

use super::list::Mutant;

/// What every crate with mutants gets at the end of its `lib.rs`.
pub(super) const CHOICE: &str = r#"
#[doc(hidden)]
pub fn mutant_number() -> u32 {
    static NUMBER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *NUMBER.get_or_init(|| std::env::var("MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0))
}
"#;

/// The text with all that `mutants` do to it, each under its number; and the numbers of those that need a build of their
/// own. Each mutant's text has to be in `text` once.
pub(super) fn all_in_one(text: &str, mutants: &[(u32, &Mutant)]) -> (String, Vec<u32>) {
    let bodies = function_bodies(text);
    let mut alone = Vec::new();
    // For each body, its other forms.
    let mut forms: Vec<(Range<usize>, String)> = Vec::new();
    for &(number, m) in mutants {
        let change = m.place_in(text).ok().map(|at| change(at, &m.old, &m.new));
        let home = change.as_ref().and_then(|(gone, _)| {
            bodies
                .iter()
                .filter(|b| b.start < gone.start && gone.end < b.end)
                .min_by_key(|b| b.len())
        });
        let (Some((gone, instead)), Some(home)) = (change, home) else {
            alone.push(number);
            continue;
        };
        let form = format!(
            "if crate::mutant_number() == {number} {}{instead}{} else ",
            &text[home.start..gone.start],
            &text[gone.end..home.end]
        );
        match forms.iter_mut().find(|(body, _)| body == home) {
            Some((_, others)) => others.push_str(&form),
            None => forms.push((home.clone(), form)),
        }
    }
    // A function within a function would be written twice: the outer one's mutants wait for builds of their own.
    let nested: Vec<Range<usize>> = forms.iter().map(|(body, _)| body.clone()).collect();
    forms.retain(|(body, others)| {
        let outer = nested
            .iter()
            .any(|b| b != body && body.start <= b.start && b.end <= body.end);
        if outer {
            alone.extend(
                mutants
                    .iter()
                    .map(|(n, _)| *n)
                    .filter(|n| others.contains(&format!("mutant_number() == {n} "))),
            );
        }
        !outer
    });
    forms.sort_by_key(|(body, _)| std::cmp::Reverse(body.start));
    let mut out = text.to_owned();
    for (body, others) in forms {
        let right = &text[body.clone()];
        out.replace_range(body.clone(), &format!("{{ {others}{right} }}"));
    }
    (out, alone)
}

/// What of the replacement of `old` by `new` at `at` is a change: without the lines that both begin and end with.
fn change<'a>(at: usize, old: &str, new: &'a str) -> (Range<usize>, &'a str) {
    let same = |a: &str, b: &str| a == b;
    let (o, n): (Vec<&str>, Vec<&str>) = (
        old.split_inclusive('\n').collect(),
        new.split_inclusive('\n').collect(),
    );
    let shorter = o.len().min(n.len());
    let head = (0..shorter).take_while(|&i| same(o[i], n[i])).count();
    let tail = (0..shorter - head)
        .take_while(|&i| same(o[o.len() - 1 - i], n[n.len() - 1 - i]))
        .count();
    let bytes = |lines: &[&str]| lines.iter().map(|l| l.len()).sum::<usize>();
    let (front, back) = (bytes(&o[..head]), bytes(&o[o.len() - tail..]));
    (
        at + front..at + old.len() - back,
        &new[front..new.len() - back],
    )
}

/// The bodies of all functions that are not `const`, braces included.
fn function_bodies(text: &str) -> Vec<Range<usize>> {
    let code = blanked(text);
    let mut bodies = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("fn ") {
        let at = from + found;
        from = at + 3;
        let starts_a_word = at == 0 || !is_word(code.as_bytes()[at - 1]);
        let names = code[from..].starts_with(|c: char| c.is_alphabetic() || c == '_');
        let line = &code[code[..at].rfind('\n').map_or(0, |n| n + 1)..at];
        if !starts_a_word || !names || line.split_whitespace().any(|w| w == "const") {
            continue;
        }
        if let Some(open) = body_of(&code, from) {
            bodies.push(open..matching(&code, open));
        }
    }
    bodies
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The brace that opens the body of the function whose name is at `at`; none if it has no body.
fn body_of(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(i),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Behind the brace that closes the one at `open`.
fn matching(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    code.len()
}

/// The text with blanks for comments, strings and characters, byte for byte as long.
fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        let end = match bytes[i] {
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                text[i..].find('\n').map_or(bytes.len(), |n| i + n)
            }
            b'/' if bytes.get(i + 1) == Some(&b'*') => {
                text[i..].find("*/").map_or(bytes.len(), |n| i + n + 2)
            }
            b'r' if (i == 0 || !is_word(bytes[i - 1]) || bytes[i - 1] == b'b')
                && raw_string(text, i).is_some() =>
            {
                raw_string(text, i).unwrap_or(i + 1)
            }
            b'"' => string_end(bytes, i),
            b'\'' => char_end(text, i),
            _ => {
                i += 1;
                continue;
            }
        };
        for byte in &mut out[i..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        i = end.max(i + 1);
    }
    String::from_utf8(out).unwrap_or_default()
}

fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut i = open + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// The end of the raw string that begins at `at`, if one does.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let hashes = rest.bytes().take_while(|b| *b == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let len = body.find(&close)?;
    Some(at + 1 + hashes + 1 + len + close.len())
}

/// The end of the character that begins at `at`, or just behind the mark of a lifetime.
fn char_end(text: &str, at: usize) -> usize {
    let rest = &text[at + 1..];
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), Some(escaped)) => {
            let behind = 1 + escaped.len_utf8();
            rest[behind..]
                .find('\'')
                .map_or(at + 1, |n| at + 1 + behind + n + 1)
        }
        (Some(c), Some('\'')) => at + 1 + c.len_utf8() + 1,
        _ => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::Fate;
    use super::*;

    fn mutant(old: &str, new: &str) -> Mutant {
        Mutant {
            name: String::new(),
            file: String::new(),
            old: old.to_owned(),
            new: new.to_owned(),
            judges: Vec::new(),
            fate: Fate::Caught,
        }
    }

    const SOURCE: &str = "const N: u8 = 1;\n\
        /// Not a fn of { code.\n\
        fn one<'a>(x: &'a [u8; 2]) -> u8 {\n\
        let s = \"}\"; // }\n\
        let c = '}';\n\
        x[0]\n\
        }\n\
        const fn two() -> u8 {\n\
        2\n\
        }\n";

    #[test]
    fn a_function_has_its_body_once_for_each_mutant() {
        let (a, b) = (mutant("x[0]\n", "x[1]\n"), mutant("x[0]\n", "7\n"));
        let (text, alone) = all_in_one(SOURCE, &[(4, &a), (5, &b)]);
        assert!(alone.is_empty());
        for part in [
            "if crate::mutant_number() == 4 {",
            "if crate::mutant_number() == 5 {",
            "x[1]\n}",
            "\n7\n}",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(text.matches("x[0]\n").count(), 1);
        assert!(text.ends_with("const fn two() -> u8 {\n2\n}\n"), "{text}");
    }

    #[test]
    fn what_is_no_code_of_a_plain_function_is_built_alone() {
        let constant = mutant("const N: u8 = 1;\n", "const N: u8 = 2;\n");
        let of_const = mutant("2\n}\n", "3\n}\n");
        let (text, alone) = all_in_one(SOURCE, &[(1, &constant), (2, &of_const)]);
        assert_eq!((text.as_str(), alone.as_slice()), (SOURCE, &[1, 2][..]));
    }

    #[test]
    fn only_what_differs_counts_for_where_a_change_is() {
        let m = mutant("x[0]\n}\nconst fn two()", "x[1]\n}\nconst fn two()");
        assert!(all_in_one(SOURCE, &[(1, &m)]).1.is_empty());
    }
}
