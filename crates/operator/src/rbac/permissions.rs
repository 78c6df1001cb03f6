//! The table of permissions, one function for each part of the operator that needs them.

use std::sync::LazyLock;

use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_plan::grants::Verb;
use skep_plan::kinds;

use super::{GROUP, Permission, Place};

/// The one Lease that operators compete for.
const LEASES: &[&str] = &[crate::run::LEASE];
/// The operator's Deployment, whose name only the chart knows.
const DEPLOYMENT: &[&str] = &["{{ include `skep.fullname` . }}"];

const WATCH: &[Verb] = &[Verb::Get, Verb::List, Verb::Watch];
const CHILD: &[Verb] = &[Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete];

/// Everything the operator does itself.
pub fn permissions() -> &'static [Permission] {
    static ROWS: LazyLock<Vec<Permission>> = LazyLock::new(|| {
        [own_resources(), children(), surroundings(), migrator(), leader_election(), uninstall()].concat()
    });
    &ROWS
}

/// The custom resources, by plural name.
pub fn plurals() -> Vec<&'static str> {
    KindName::ALL.iter().map(|kind| kind.plural()).collect()
}

/// What users write down.
fn own_resources() -> Vec<Permission> {
    static STATUSES: LazyLock<Vec<String>> = LazyLock::new(|| parts("status", |_| true));
    static FINALIZERS: LazyLock<Vec<String>> =
        LazyLock::new(|| parts("finalizers", |kind| !kinds::entry(kind).owns.is_empty()));
    vec![
        watched(GROUP, plurals(), WATCH, "what users write down; every plan starts here"),
        watched(
            GROUP,
            plurals(),
            &[Verb::Patch],
            "finalizers and the processed-restart annotation, as merge patches of the difference; also how the migrator stores one anew",
        ),
        watched(
            GROUP,
            texts(&STATUSES),
            &[Verb::Get, Verb::Patch],
            "patched by the controller of that kind; a workload never writes the status of a config it uses",
        ),
        watched(
            GROUP,
            texts(&FINALIZERS),
            &[Verb::Update],
            "children block the deletion of their owner, which OwnerReferencesPermissionEnforcement (OpenShift) allows only with this",
        ),
    ]
}

/// Children. `delete` prunes what a plan no longer has; it is also what the plugin of OpenShift wants for a change of owner.
fn children() -> Vec<Permission> {
    let reason = |kind: ChildKind| match kind {
        ChildKind::Deployment | ChildKind::StatefulSet => "children: proxies, backends, registries, embedding servers",
        ChildKind::Service | ChildKind::ServiceAccount => "children",
        ChildKind::ConfigMap => {
            "children: run configurations, inline policies; and what resources refer to: policies, CA bundles"
        }
        ChildKind::Role | ChildKind::RoleBinding => "children: what a proxy may do in its namespace",
    };
    let mut rows: Vec<Permission> = Vec::new();
    for kind in ChildKind::ALL {
        let (group, _, plural) = kind.api();
        match rows.iter_mut().find(|row| row.group == group && row.reason == reason(*kind)) {
            Some(row) => row.resources.push(plural),
            None => rows.push(watched(group, vec![plural], CHILD, reason(*kind))),
        }
    }
    rows
}

/// What the resources refer to, and what became of the children.
fn surroundings() -> Vec<Permission> {
    vec![
        watched(
            "",
            vec!["secrets"],
            WATCH,
            "what resources refer to: watched by metadata, read when a plan depends on their keys or content",
        ),
        watched(
            "",
            vec!["secrets"],
            &[Verb::Create],
            "the session key of a VirtualMCPServer: made once, never changed",
        ),
        watched("", vec!["pods"], WATCH, "status: which pods run, and why others do not"),
        watched(
            "",
            vec!["pods"],
            &[Verb::Delete],
            "the restart strategy `immediate`, and failing pods of an earlier revision that block a StatefulSet",
        ),
        watched(
            "events.k8s.io",
            vec!["events"],
            &[Verb::Create, Verb::Patch],
            "events; a repeated one is patched into a series",
        ),
    ]
}

/// The storage version migrator.
fn migrator() -> Vec<Permission> {
    static DEFINITIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<String> = plurals().iter().map(|plural| format!("{plural}.{GROUP}")).collect();
        names.sort();
        names
    });
    static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| texts(&DEFINITIONS));
    let row = |resource: &'static str, names, verbs, reason| Permission {
        place: Place::Cluster,
        group: "apiextensions.k8s.io",
        resources: vec![resource],
        names,
        verbs,
        reason,
    };
    vec![
        row(
            "customresourcedefinitions",
            &[],
            &[Verb::List, Verb::Watch],
            "which definitions ask for migration, by metadata only",
        ),
        row("customresourcedefinitions", &NAMES, &[Verb::Get], "the stored versions of our own definitions"),
        row(
            "customresourcedefinitions/status",
            &NAMES,
            &[Verb::Patch],
            "drop a stored version from our own definitions once nothing is stored in it",
        ),
    ]
}

/// Leader election. A create request names its object only in its body, which no rule can inspect.
fn leader_election() -> Vec<Permission> {
    let row = |names, verbs, reason| Permission {
        place: Place::Home,
        group: "coordination.k8s.io",
        resources: vec!["leases"],
        names,
        verbs,
        reason,
    };
    vec![
        row(&[], &[Verb::Create], "one of several replicas is active: it holds the lease"),
        row(LEASES, &[Verb::Get, Verb::Patch], "it takes over and renews the lease"),
    ]
}

/// `skep uninstall`, by an account of its own that exists until it has succeeded.
fn uninstall() -> Vec<Permission> {
    let held = KindName::ALL.iter().filter(|kind| kind.finalizer().is_some());
    let home = |group, resource: &'static str, names, verbs, reason| Permission {
        place: Place::LeavingHome,
        group,
        resources: vec![resource],
        names,
        verbs,
        reason,
    };
    vec![
        Permission {
            place: Place::LeavingWatched,
            group: GROUP,
            resources: held.map(|kind| kind.plural()).collect(),
            names: &[],
            verbs: &[Verb::Get, Verb::List, Verb::Patch],
            reason: "finalizers of the operator, which no process would remove any more",
        },
        home("apps", "deployments", DEPLOYMENT, &[Verb::Get], "which pods are the operator's"),
        home(
            "apps",
            "deployments/scale",
            DEPLOYMENT,
            &[Verb::Patch],
            "the operator is stopped first: it would add its finalizers again",
        ),
        home("", "pods", &[], &[Verb::List], "whether it has stopped"),
        home(
            "coordination.k8s.io",
            "leases",
            LEASES,
            &[Verb::Delete, Verb::Get],
            "the lease, which no process will renew any more",
        ),
    ]
}

const fn watched(
    group: &'static str,
    resources: Vec<&'static str>,
    verbs: &'static [Verb],
    reason: &'static str,
) -> Permission {
    Permission { place: Place::Watched, group, resources, names: &[], verbs, reason }
}

/// A part of the kinds that meet a condition, such as `mcpservers/status`.
fn parts(part: &str, is_meant: impl Fn(KindName) -> bool) -> Vec<String> {
    let kinds = KindName::ALL.iter().copied().filter(|kind| is_meant(*kind));
    kinds.map(|kind| format!("{}/{part}", kind.plural())).collect()
}

fn texts(owned: &'static [String]) -> Vec<&'static str> {
    owned.iter().map(String::as_str).collect()
}
