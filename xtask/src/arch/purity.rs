//! Crates whose output depends on their input alone: no runtime, clock, environment, randomness, or map whose order
//! changes from run to run.

use super::code;

/// The pure crates and where their sources are.
const PURE: &[(&str, &str)] = &[
    ("skep-address", "crates/address/src/"),
    ("skep-bounds", "crates/bounds/src/"),
    ("skep-mcp", "crates/mcp/src/"),
    ("skep-plan", "crates/plan/src/"),
];

/// Crates that bring what a pure crate must not have.
const FORBIDDEN_CRATES: &[&str] = &[
    "async-std",
    "fastrand",
    "getrandom",
    "hyper",
    "kube-client",
    "kube-runtime",
    "mio",
    "rand",
    "reqwest",
    "smol",
    "socket2",
    "tokio",
    "tracing",
];

/// Names that stand for the same in the standard library and elsewhere.
const FORBIDDEN_NAMES: &[&str] = &[
    "HashMap",
    "HashSet",
    "RandomState",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::env",
    "env::var",
    "env::var_os",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio",
    "rand",
    "Uuid::new_v4",
];

pub(super) fn is_pure(package: &str) -> bool {
    PURE.iter().any(|(name, _)| *name == package)
}

/// `tree` is the output of `cargo tree`: one `name version` per line.
pub(super) fn check_dependencies(package: &str, tree: &str) -> Vec<String> {
    let mut found: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    found.sort_unstable();
    found.dedup();
    let forbidden = found.into_iter().filter(|name| FORBIDDEN_CRATES.contains(name));
    forbidden
        .map(|name| {
            format!(
                "crate `{package}` must stay pure, but `{name}` is among its dependencies: see `cargo tree -p {package} \
                 -i {name}`"
            )
        })
        .collect()
}

pub(super) fn check_source(path: &str, text: &str) -> Vec<String> {
    let Some((package, _)) = PURE.iter().find(|(_, place)| path.starts_with(place) && is_rust(path)) else {
        return Vec::new();
    };
    if code::is_for_tests(path) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in code::lines(text) {
        for name in FORBIDDEN_NAMES.iter().filter(|name| mentions(line, name)) {
            complaints.push(format!(
                "{path}:{number}: `{name}` has no place in the pure crate `{package}`: take what it would give as an \
                 argument, or use an ordered map"
            ));
        }
    }
    complaints
}

fn is_rust(path: &str) -> bool {
    std::path::Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Whether a name stands in a line on its own, not as a part of a longer one.
fn mentions(line: &str, name: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(name).any(|(start, _)| {
        let before = line.get(..start).and_then(|before| before.chars().next_back());
        let after = line.get(start + name.len()..).and_then(|after| after.chars().next());
        !is_part(before) && !is_part(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whole() {
        assert!(mentions("let now = std::time::Instant::now();", "Instant::now"));
        assert!(mentions("use std::collections::{BTreeMap, HashMap};", "HashMap"));
        assert!(!mentions("struct NoHashMapHere;", "HashMap"));
        assert!(!mentions("let operand = brand;", "rand"));
    }

    #[test]
    fn only_pure_crates_are_held_to_it() {
        let text = "use std::collections::HashMap;\n";
        let found = check_source("crates/plan/src/lib.rs", text);
        assert!(found[0].starts_with("crates/plan/src/lib.rs:1: `HashMap` has no place"), "{found:?}");
        assert!(check_source("crates/operator/src/lib.rs", text).is_empty());
        assert!(check_source("crates/plan/src/tests.rs", text).is_empty());
        assert!(check_source("crates/plan/src/lib.rs", "// no HashMap, and why\n").is_empty());
    }

    #[test]
    fn dependencies_are_named_once() {
        let tree = "skep-plan v0.1.0\nserde v1.0.0\ntokio v1.0.0\ntokio v1.0.0 (*)\n";
        let found = check_dependencies("skep-plan", tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`tokio` is among its dependencies"), "{found:?}");
    }
}
