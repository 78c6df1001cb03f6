//! Crates whose output depends on their input alone: no runtime, clock, environment, randomness, or map whose order changes from run to
//! run. Clippy checks what they call, by the configuration of pure crates; here stands what it cannot see.

/// The pure crates and their configurations of clippy.
const PURE: &[(&str, &str)] = &[
    ("skep-address", "crates/address/clippy.toml"),
    ("skep-bounds", "crates/bounds/clippy.toml"),
    ("skep-mcp", "crates/mcp/clippy.toml"),
    ("skep-plan", "crates/plan/clippy.toml"),
    ("skep-template", "crates/template/clippy.toml"),
];

/// The configuration that all of them have.
const CONFIGURATION: &str = "pure.clippy.toml";

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

/// Every pure crate must have the configuration of pure crates; `text_of` gives the text of a file of the repository.
pub(super) fn check_configuration<'a>(text_of: impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
    let wanted = text_of(CONFIGURATION);
    let others = PURE.iter().filter(|(_, path)| wanted.is_none() || text_of(path) != wanted);
    others
        .map(|(name, path)| format!("{path}: crate `{name}` must stay pure: make this a link to `{CONFIGURATION}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_named_once() {
        let tree = "skep-plan v0.1.0\nserde v1.0.0\ntokio v1.0.0\ntokio v1.0.0 (*)\n";
        let found = check_dependencies("skep-plan", tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("`tokio` is among its dependencies"), "{found:?}");
    }

    #[test]
    fn a_pure_crate_with_another_configuration_is_named() {
        assert!(check_configuration(|_| Some("same")).is_empty());
        let found = check_configuration(|path| (path != "crates/plan/clippy.toml").then_some("same"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/plan/clippy.toml: crate `skep-plan` must stay pure"), "{found:?}");
        assert_eq!(check_configuration(|_| None).len(), PURE.len());
    }
}
