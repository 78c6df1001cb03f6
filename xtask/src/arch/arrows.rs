//! Which crate may use which. Arrows point up this table only, so data and control can be followed in one direction.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A crate of the workspace and the crates of the workspace that it may use.
type Row = (&'static str, Allowed);

enum Allowed {
    These(&'static [&'static str]),
    /// Another crate, what that one may use, and these.
    OnTopOfAnd(&'static str, &'static [&'static str]),
    /// The binary is made of everything that is shipped.
    Shipped,
    /// Tools for tests see all of it, and each other.
    All,
}

use Allowed::{All, OnTopOfAnd, Shipped, These};

/// The table of the design document, with the crates that a crate's own types need.
const HOUSE: &[Row] = &[
    ("skep-address", These(&[])),
    ("skep-bounds", These(&[])),
    ("skep-template", These(&["skep-bounds"])),
    ("skep-mcp", These(&[])),
    ("skep-demo", These(&["skep-mcp"])),
    ("skep-api", These(&["skep-bounds"])),
    ("skep-runconfig", These(&["skep-bounds"])),
    ("skep-plan", These(&["skep-address", "skep-bounds", "skep-template", "skep-api", "skep-runconfig"])),
    ("skep-operator", These(&["skep-bounds", "skep-api", "skep-runconfig", "skep-plan"])),
    ("skep-net", These(&["skep-address"])),
    ("skep-store", These(&[])),
    ("skep-auth", These(&["skep-bounds", "skep-net", "skep-store"])),
    ("skep-authz", These(&["skep-bounds", "skep-mcp"])),
    ("skep-authserver", These(&["skep-net", "skep-store"])),
    ("skep-telemetry", These(&["skep-net"])),
    ("skep-webhook", These(&["skep-auth", "skep-bounds", "skep-mcp", "skep-net", "skep-runconfig"])),
    ("skep-workload", These(&["skep-bounds", "skep-api"])),
    ("skep-upstream", These(&["skep-auth", "skep-mcp", "skep-net", "skep-store", "skep-workload"])),
    (
        "skep-proxy",
        These(&[
            "skep-address",
            "skep-bounds",
            "skep-mcp",
            "skep-api",
            "skep-runconfig",
            "skep-net",
            "skep-store",
            "skep-auth",
            "skep-authz",
            "skep-authserver",
            "skep-telemetry",
            "skep-webhook",
            "skep-workload",
            "skep-upstream",
        ]),
    ),
    ("skep-vmcp", OnTopOfAnd("skep-proxy", &["skep-plan", "skep-template"])),
    ("skep", Shipped),
    ("skep-testkit", These(&[])),
    ("skep-e2e", All),
    ("skep-fuzz", All),
    ("xtask", All),
];

/// Any crate's tests may use this.
const FOR_TESTS: &str = "skep-testkit";

/// A crate of the workspace and what it uses of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    uses: Vec<Use>,
}

#[derive(Debug)]
struct Use {
    name: String,
    in_tests_only: bool,
}

/// Reads the output of `cargo metadata`. A dependency with a path is one of ours.
pub(super) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("`cargo metadata` lists no packages")?;
    packages.iter().map(|package| Ok(Package { name: name(package)?, uses: uses(package)? })).collect()
}

fn uses(package: &Value) -> Result<Vec<Use>> {
    let dependencies = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
    let ours = dependencies.filter(|dependency| dependency.get("path").is_some_and(Value::is_string));
    let is_dev = |dependency: &Value| dependency.get("kind").and_then(Value::as_str) == Some("dev");
    ours.map(|ours| Ok(Use { name: name(ours)?, in_tests_only: is_dev(ours) })).collect()
}

fn name(of: &Value) -> Result<String> {
    let name = of.get("name").and_then(Value::as_str);
    name.map(str::to_owned).context("`cargo metadata` has a package without a name")
}

pub(super) fn check(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(allowed) = row(name) else {
        return vec![format!(
            "crate `{name}` is not in the table of crates: add it, with what it may use, to the table in \
             xtask/src/arch/arrows.rs and to the design"
        )];
    };
    let in_tests = |used: &Use| used.in_tests_only && used.name == FOR_TESTS;
    let forbidden = package.uses.iter().filter(|used| !in_tests(used) && !allowed.includes(&used.name));
    forbidden
        .map(|used| {
            format!("crate `{name}` may not use `{}`: move what both need to a crate that both may use", used.name)
        })
        .collect()
}

fn row(name: &str) -> Option<&'static Allowed> {
    HOUSE.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, allowed)| allowed)
}

impl Allowed {
    fn includes(&self, name: &str) -> bool {
        match self {
            All => true,
            Shipped => !matches!(row(name), Some(All)) && name != FOR_TESTS,
            These(these) => these.contains(&name),
            OnTopOfAnd(base, these) => {
                name == *base || these.contains(&name) || row(base).is_some_and(|allowed| allowed.includes(name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(name: &str, dependencies: &Value) -> Vec<String> {
        let metadata = json!({ "packages": [{ "name": name, "dependencies": dependencies }] });
        check(&packages(&metadata).unwrap())
    }

    fn ours(name: &str, kind: Option<&str>) -> Value {
        json!({ "name": name, "path": "somewhere", "kind": kind })
    }

    #[test]
    fn arrows_point_one_way() {
        assert!(complaints("skep-plan", &json!([ours("skep-api", None)])).is_empty());
        let back = complaints("skep-api", &json!([ours("skep-plan", None)]));
        assert_eq!(back.len(), 1);
        assert!(back[0].starts_with("crate `skep-api` may not use `skep-plan`"), "{back:?}");
        assert!(complaints("skep-vmcp", &json!([ours("skep-proxy", None), ours("skep-mcp", None)])).is_empty());
        assert!(complaints("skep-vmcp", &json!([ours("skep-plan", None)])).is_empty());
        assert_eq!(complaints("skep-vmcp", &json!([ours("skep-operator", None)])).len(), 1);
        assert!(complaints("skep", &json!([ours("skep-vmcp", None)])).is_empty());
    }

    #[test]
    fn the_testkit_is_for_tests() {
        assert!(complaints("skep-api", &json!([ours("skep-testkit", Some("dev"))])).is_empty());
        assert_eq!(complaints("skep-api", &json!([ours("skep-testkit", None)])).len(), 1);
        assert_eq!(complaints("skep", &json!([ours("skep-testkit", None)])).len(), 1);
        assert!(complaints("xtask", &json!([ours("skep-testkit", None)])).is_empty());
    }

    #[test]
    fn crates_of_others_are_not_our_business() {
        assert!(complaints("skep-mcp", &json!([{ "name": "bytes", "kind": null }])).is_empty());
    }

    #[test]
    fn an_unknown_crate_must_be_given_a_place() {
        let unknown = complaints("skep-attic", &json!([]));
        assert!(unknown[0].contains("`skep-attic` is not in the table of crates: add it"), "{unknown:?}");
    }

    #[test]
    fn the_table_has_no_cycle() {
        let names: Vec<&str> = HOUSE.iter().map(|(name, _)| *name).collect();
        for (position, (name, allowed)) in HOUSE.iter().enumerate() {
            let below = &names[position..];
            assert!(
                matches!(allowed, All | Shipped) || !below.iter().any(|used| allowed.includes(used)),
                "{name} looks down"
            );
        }
    }
}
