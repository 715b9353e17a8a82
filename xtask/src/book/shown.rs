//! Whether a program printed what the book shows.

/// In the text that is shown: anything within the line, such as an address or a time.
const ANY: char = '…';

/// The first line that differs, if one does.
pub(super) fn difference(shown: &str, printed: &str) -> Option<String> {
    let (mut shown_lines, mut printed_lines) = (shown.lines(), printed.lines());
    for number in 1.. {
        match (shown_lines.next(), printed_lines.next()) {
            (None, None) => break,
            (Some(shown), Some(printed)) if fits(shown, printed) => {}
            (shown, printed) => {
                let or_end = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
                return Some(format!(
                    "line {number}\nthe book shows: {}\nit printed:     {}",
                    or_end(shown),
                    or_end(printed)
                ));
            }
        }
    }
    None
}

fn fits(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let Some(at) = rest.find(middle) else {
                return false;
            };
            rest = &rest[at + middle.len()..];
        }
    }
    match last {
        // Something stands for the mark, or nothing does.
        Some(last) => rest.ends_with(last),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_for_anything_within_its_line() {
        assert!(fits("QP 0x… is in …", "QP 0x22ba81 is in RTS"));
        assert!(fits("p50 … µs, p99 … µs", "p50 1.2 µs, p99 3.4 µs"));
        assert!(!fits("QP 0x… is in RTS", "QP 0x22ba81 is in RTR"));
        assert!(!fits("p50 … µs, p99 … µs", "p50 1.2 µs"));
        assert!(!fits("same", "same and more"));
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let text = difference("a\nb\n", "a\nc\n").expect("they differ");
        assert!(text.starts_with("line 2"), "{text}");
        assert!(difference("a\n", "a\nb\n").is_some_and(|text| text.contains("(the end)")));
        assert!(difference("a\nb\n", "a\n").is_some());
    }
}
