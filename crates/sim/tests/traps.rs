//! The list of traps names tests that exist.

use std::collections::HashSet;
use std::path::Path;

fn collect(dir: &Path, names: &mut HashSet<String>) {
    for entry in std::fs::read_dir(dir).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            collect(&path, names);
            continue;
        }
        match path.extension().and_then(|e| e.to_str()) {
            Some("c") => {
                let stem = path.file_stem().expect("it has a name");
                names.insert(stem.to_string_lossy().into_owned());
            }
            Some("rs") => {
                let text = std::fs::read_to_string(&path).expect("source is text");
                // A test is a function with the attribute on one of the few lines above it.
                let mut since_attribute = usize::MAX;
                for line in text.lines().map(str::trim) {
                    since_attribute = since_attribute.saturating_add(1);
                    if line.starts_with("#[test]") {
                        since_attribute = 0;
                    }
                    if let Some(rest) = line.strip_prefix("fn ")
                        && since_attribute < 5
                        && let Some((name, _)) = rest.split_once('(')
                    {
                        names.insert(name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn every_trap_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = HashSet::new();
    collect(&root.join("crates"), &mut names);
    collect(&root.join("tests/c"), &mut names);
    let text = std::fs::read_to_string(root.join("docs/traps.md")).expect("the list is there");
    let mut rows = 0;
    let mut missing = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, _, noticed, _] = cells.as_slice() else {
            continue;
        };
        let Ok(number) = number.parse::<usize>() else {
            continue;
        };
        rows += 1;
        assert_eq!(number, rows, "rows are numbered from 1 on");
        let named: Vec<&str> = noticed.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !noticed.contains("does not apply") {
            missing.push(format!("{number}: no test at all"));
        }
        for name in named {
            if !names.contains(name) {
                missing.push(format!("{number}: {name}"));
            }
        }
    }
    assert_eq!(rows, 65);
    assert!(missing.is_empty(), "tests that do not exist: {missing:#?}");
}
