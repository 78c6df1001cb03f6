//! The rights that the operator's code needs, against the table that the chart is generated from.
//!
//! Every call of the Kubernetes client in `crates/operator` is found by the name of its method; [`USES`] says what right it needs. A call
//! that stands in no row is a complaint, and so is a row whose right the table does not grant, or that no call needs any more.

use skep_api::resource::KindName;
use skep_operator::rbac::{Rule, leader_election_rules, migrator_rules, rules, uninstall_home_rules, uninstall_rules};
use skep_plan::child::ChildKind;

use super::code;

/// Where the operator's code is.
const PLACE: &str = "crates/operator/src/";

/// Methods of the client that send a request, and nothing else in this crate is called so.
const METHODS: &[&str] = &[
    "patch",
    "patch_status",
    "patch_metadata",
    "patch_scale",
    "get",
    "get_opt",
    "get_metadata_opt",
    "list_metadata",
    "create",
    "delete",
    "publish",
    "watch",
];

/// What a request is sent to.
#[derive(Clone, Copy)]
enum On {
    /// Every kind of ours.
    Resources,
    /// The status of every kind of ours.
    Statuses,
    /// Every kind of child.
    Children,
    /// One resource, as (group, plural).
    One(&'static str, &'static str),
}

use On::{Children, One, Resources, Statuses};

/// File, method, and the verbs on what that it needs.
type Use = (&'static str, &'static str, &'static [(&'static [&'static str], On)]);

const USES: &[Use] = &[
    ("write/resources.rs", "patch", &[(&["patch"], Resources)]),
    ("write/resources.rs", "patch_status", &[(&["patch"], Statuses)]),
    ("write/resources.rs", "patch_metadata", &[(&["patch"], Resources)]),
    ("write/resources.rs", "get", &[(&["get"], Resources)]),
    ("write/children.rs", "patch_metadata", &[(&["create", "patch"], Children)]),
    ("write/children.rs", "get_metadata_opt", &[(&["get"], Children)]),
    ("write/children.rs", "delete", &[(&["delete"], Children), (&["delete"], One("", "pods"))]),
    ("write/children.rs", "create", &[(&["create"], One("", "secrets"))]),
    ("write/cluster.rs", "create", &[(&["create"], One("coordination.k8s.io", "leases"))]),
    ("write/cluster.rs", "patch", &[(&["patch"], One("coordination.k8s.io", "leases"))]),
    ("write/cluster.rs", "delete", &[(&["delete"], One("coordination.k8s.io", "leases"))]),
    (
        "write/cluster.rs",
        "patch_status",
        &[(&["patch"], One("apiextensions.k8s.io", "customresourcedefinitions/status"))],
    ),
    ("write/cluster.rs", "patch_scale", &[(&["patch"], One("apps", "deployments/scale"))]),
    ("write/cluster.rs", "publish", &[(&["create", "patch"], One("events.k8s.io", "events"))]),
    ("reconcile/gather.rs", "get_opt", &[(&["get"], One("", "secrets")), (&["get"], One("", "configmaps"))]),
    ("lease.rs", "get", &[(&["get"], One("coordination.k8s.io", "leases"))]),
    ("lease.rs", "get_opt", &[(&["get"], One("coordination.k8s.io", "leases"))]),
    ("migrate.rs", "get_opt", &[(&["get"], One("apiextensions.k8s.io", "customresourcedefinitions"))]),
    ("migrate.rs", "list_metadata", &[(&["list"], Resources)]),
    (
        "uninstall.rs",
        "get_opt",
        &[(&["get"], One("apps", "deployments")), (&["get"], One("coordination.k8s.io", "leases"))],
    ),
    ("uninstall.rs", "list_metadata", &[(&["list"], Resources), (&["list"], One("", "pods"))]),
    ("uninstall.rs", "get_metadata_opt", &[(&["get"], Resources)]),
    ("watch/kind.rs", "list_metadata", &[(&["list"], Resources)]),
    ("events.rs", "publish", &[(&["create", "patch"], One("events.k8s.io", "events"))]),
    (
        "watch.rs",
        "watch",
        &[
            (&["list", "watch"], Resources),
            (&["list", "watch"], Children),
            (&["list", "watch"], One("", "pods")),
            (&["list", "watch"], One("", "secrets")),
        ],
    ),
];

/// Complaints about calls without a row, rows without a call, and rights that the table lacks.
pub(super) fn check<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let calls = calls(sources);
    let mut complaints = Vec::new();
    for (file, method, line) in &calls {
        if !USES.iter().any(|(known, name, _)| known == file && name == method) {
            complaints.push(format!(
                "{PLACE}{file}:{line}: `.{method}(` needs a right: say which in xtask/src/arch/rights.rs"
            ));
        }
    }
    let granted: Vec<Rule> =
        [rules(), migrator_rules(), leader_election_rules(), uninstall_rules(), uninstall_home_rules()].concat();
    for (file, method, needs) in USES {
        if !calls.iter().any(|(known, name, _)| known == file && name == method) {
            complaints
                .push(format!("xtask/src/arch/rights.rs: {PLACE}{file} calls `.{method}(` no more: take the row out"));
        }
        for (verbs, on) in *needs {
            for (group, resource) in targets(*on) {
                for verb in verbs.iter().filter(|verb| !grants(&granted, verb, &group, &resource)) {
                    complaints.push(format!(
                        "{PLACE}{file}: `.{method}(` needs `{verb}` on `{resource}`, which rbac.rs does not grant"
                    ));
                }
            }
        }
    }
    complaints
}

fn calls<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, String, usize)> {
    let mut calls = Vec::new();
    for (path, text) in sources {
        // What stores and queues are asked is no request; only the files that hold a client can send one.
        let Some(file) = path.strip_prefix(PLACE).filter(|_| !code::is_for_tests(path) && text.contains("kube::"))
        else {
            continue;
        };
        if file.starts_with("store") || file == "metrics.rs" {
            continue;
        }
        for (line, code) in code::lines(text) {
            for method in METHODS {
                let called =
                    code.contains(&format!(".{method}(")) || (*method == "watch" && code.contains("watch(api, "));
                // Maps and lists have a `get` of their own, which takes a name that is quoted or borrowed from a map.
                let of_a_map = *method == "get" && !code.contains(".await") && !code.contains("leases.get(");
                // The writer's own methods are accounted for where they send.
                if called && !of_a_map && !code.contains("writer.") {
                    calls.push((file.to_owned(), (*method).to_owned(), line));
                }
            }
        }
    }
    calls
}

fn targets(on: On) -> Vec<(String, String)> {
    let ours = skep_operator::rbac::GROUP;
    match on {
        Resources => KindName::ALL.iter().map(|kind| (ours.to_owned(), kind.plural().to_owned())).collect(),
        Statuses => KindName::ALL.iter().map(|kind| (ours.to_owned(), format!("{}/status", kind.plural()))).collect(),
        Children => ChildKind::ALL.iter().map(|kind| (kind.api().0.to_owned(), kind.api().2.to_owned())).collect(),
        One(group, resource) => vec![(group.to_owned(), resource.to_owned())],
    }
}

fn grants(rules: &[Rule], verb: &str, group: &str, resource: &str) -> bool {
    rules.iter().any(|rule| {
        rule.group == group
            && rule.resources.contains(&resource)
            && rule.verbs.iter().any(|known| known.as_str() == verb)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_nobody_accounted_for_is_a_complaint() {
        let source = "use kube::Api;\nasync fn f() {\n    nodes.delete(\"n\", &parameters).await;\n}\n";
        let complaints = check([("crates/operator/src/new.rs", source)].into_iter());
        assert!(
            complaints.iter().any(|complaint| complaint.contains("new.rs:3") && complaint.contains("`.delete(`")),
            "{complaints:?}"
        );
    }

    #[test]
    fn a_right_that_the_table_lacks_is_noticed() {
        assert!(grants(&rules(), "patch", "apps", "deployments"));
        assert!(!grants(&rules(), "update", skep_operator::rbac::GROUP, "mcpservers"));
        assert!(!grants(&rules(), "delete", "", "secrets"));
    }
}
