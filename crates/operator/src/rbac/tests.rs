use super::{
    GROUP, Permission, Place, Rule, Verb,
    grants::{self, ROLES},
    helm_rules, helm_template, leader_election_rules, migrator_rules, permissions, plurals, rules,
    uninstall_home_rules, uninstall_rules,
};
use skep_api::resource::KindName;
use std::collections::BTreeSet;

fn all_rules() -> Vec<Rule> {
    [rules(), migrator_rules(), leader_election_rules(), uninstall_rules(), uninstall_home_rules()].concat()
}

/// Group, resource and verb of everything in the rules, one by one.
fn flat(rules: &[Rule]) -> BTreeSet<(&'static str, &'static str, Verb)> {
    let mut flat = BTreeSet::new();
    for rule in rules {
        for resource in &rule.resources {
            flat.extend(rule.verbs.iter().map(|verb| (rule.group, *resource, *verb)));
        }
    }
    flat
}

fn rows_with(resource: &str) -> Vec<&'static Permission> {
    permissions().iter().filter(|row| row.group == GROUP && row.resources.contains(&resource)).collect()
}

#[test]
fn every_status_is_held_once_for_reading_and_patching() {
    for kind in plurals() {
        let status = format!("{kind}/status");
        let rows = rows_with(&status);
        assert_eq!(rows.len(), 1, "{status}");
        assert_eq!(rows[0].verbs, [Verb::Get, Verb::Patch], "{status}");
    }
}

#[test]
fn statuses_of_configs_are_granted_to_no_child() {
    let handed: Vec<_> = ROLES.iter().flat_map(|role| role.rules).flat_map(|grant| grant.resources).collect();
    let statuses: BTreeSet<_> = handed.iter().filter(|resource| resource.ends_with("/status")).collect();
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [&&"virtualmcpservers/status"]);
}

#[test]
fn the_operator_replaces_nothing_whole() {
    for row in permissions().iter().filter(|row| row.verbs.contains(&Verb::Update)) {
        assert!(row.resources.iter().all(|resource| resource.ends_with("/finalizers")), "{row:?}");
    }
    for kind in plurals() {
        assert!(!flat(&rules()).contains(&(GROUP, kind, Verb::Update)), "{kind}");
    }
}

#[test]
fn the_operator_neither_makes_nor_removes_what_users_write() {
    for kind in plurals() {
        assert!(!flat(&rules()).contains(&(GROUP, kind, Verb::Create)), "{kind}");
        assert!(!flat(&rules()).contains(&(GROUP, kind, Verb::Delete)), "{kind}");
    }
}

#[test]
fn secrets_are_read_and_made_but_never_changed() {
    let verbs: Vec<_> = flat(&rules()).into_iter().filter(|held| held.1 == "secrets").map(|held| held.2).collect();
    assert_eq!(verbs, [Verb::Create, Verb::Get, Verb::List, Verb::Watch]);
}

#[test]
fn no_rule_has_a_wildcard_or_is_empty() {
    for rule in all_rules() {
        assert!(!rule.resources.is_empty() && !rule.verbs.is_empty() && !rule.reasons.is_empty(), "{rule:?}");
        for name in rule.resources.iter().chain(rule.names).chain([&rule.group]) {
            assert!(!name.contains('*'), "{rule:?}");
        }
    }
    assert!(!helm_template().contains("\"*\""));
}

#[test]
fn every_permission_that_is_granted_is_held() {
    let held = flat(&rules());
    for role in ROLES {
        for grant in role.rules {
            for resource in grant.resources {
                for verb in grant.verbs {
                    assert!(held.contains(&(grant.group, *resource, *verb)), "{resource} {verb:?} of {}", role.bearer);
                }
            }
        }
    }
}

#[test]
fn kinds_that_are_applied_may_also_be_created_and_pruned() {
    let held = flat(&rules());
    for (group, resource) in [
        ("", "configmaps"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    ] {
        for verb in [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete] {
            assert!(held.contains(&(group, resource, verb)), "{resource} {verb:?}");
        }
    }
}

#[test]
fn both_restart_strategies_are_permitted() {
    let held = flat(&rules());
    assert!(held.contains(&("apps", "deployments", Verb::Patch)), "rolling, of the proxy");
    assert!(held.contains(&("apps", "statefulsets", Verb::Patch)), "rolling, of the server");
    assert!(held.contains(&("", "pods", Verb::Delete)), "immediate");
}

#[test]
fn owners_of_children_may_be_named_as_blocking_owners() {
    for kind in ["mcpservers", "mcpremoteproxies", "virtualmcpservers", "mcpregistries", "embeddingservers"] {
        let resource = format!("{kind}/finalizers");
        assert!(rows_with(&resource).iter().any(|row| row.verbs == [Verb::Update]), "{resource}");
    }
}

#[test]
fn the_operator_elects_its_leader_at_home_only() {
    let rows: Vec<_> = permissions().iter().filter(|row| row.resources.contains(&"leases")).collect();
    assert!(rows.iter().all(|row| matches!(row.place, Place::Home | Place::LeavingHome)));
    // Of all leases there, the one that it competes for.
    let named = |row: &&&Permission| row.names == ["toolhive-operator-leader-election"];
    assert!(rows.iter().filter(|row| row.verbs != [Verb::Create]).all(|row| named(&row)));
    // The one cluster-wide rule about leases exists to be handed on.
    let rules = rules();
    let leases = rules.iter().find(|rule| rule.resources == ["leases"]).unwrap();
    assert!(leases.reasons.iter().all(|reason| reason.starts_with("granted to the API of an MCPRegistry")));
}

/// Leaving needs no right that would let it do harm to what stays.
#[test]
fn uninstalling_changes_nothing_but_resources_with_a_finalizer_and_the_operators_scale() {
    let held = flat(&[uninstall_rules(), uninstall_home_rules()].concat());
    let changes: Vec<_> = held.iter().filter(|held| !matches!(held.2, Verb::Get | Verb::List)).collect();
    let finalized = KindName::ALL.iter().filter(|kind| kind.finalizer().is_some());
    let expected = finalized.map(|kind| (GROUP, kind.plural(), Verb::Patch));
    let expected: BTreeSet<_> = expected
        .chain([("apps", "deployments/scale", Verb::Patch), ("coordination.k8s.io", "leases", Verb::Delete)])
        .collect();
    assert_eq!(changes.into_iter().copied().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn only_definitions_of_our_group_can_be_changed() {
    for rule in migrator_rules() {
        let named = rule.names.len() == plurals().len() && rule.names.iter().all(|name| name.ends_with(GROUP));
        let reads_all = rule.verbs == [Verb::List, Verb::Watch];
        assert!(named || reads_all, "{rule:?}");
    }
}

#[test]
fn a_resource_is_in_one_rule() {
    for rules in [rules(), leader_election_rules(), uninstall_rules(), uninstall_home_rules()] {
        let count: usize = rules.iter().map(|rule| rule.resources.len()).sum();
        // Those that are limited to some objects are rules of their own.
        let one = |rule: &Rule| (rule.group, rule.names);
        let distinct: BTreeSet<_> =
            rules.iter().flat_map(|rule| rule.resources.iter().map(move |resource| (one(rule), *resource))).collect();
        assert_eq!(distinct.len(), count);
    }
}

#[test]
fn rules_are_sorted_and_always_the_same() {
    assert_eq!(rules(), rules());
    assert_eq!(helm_template(), helm_template());
    for rule in all_rules() {
        assert!(rule.resources.is_sorted() && rule.verbs.is_sorted(), "{rule:?}");
    }
    assert!(rules().is_sorted_by_key(|rule| (rule.group, rule.resources.clone())));
}

#[test]
fn a_reason_names_its_resources_when_it_is_not_about_all_of_them() {
    let rules = rules();
    let services = rules.iter().find(|rule| rule.resources.contains(&"services")).unwrap();
    assert_eq!(services.resources, ["configmaps", "services"]);
    assert!(services.reasons.contains(&"services: children".to_owned()));
    assert!(services.reasons.contains(&"configmaps: granted to an MCPRemoteProxy: get, list, watch".to_owned()));
}

#[test]
fn rules_are_written_as_yaml() {
    let rule = Rule {
        group: "",
        resources: vec!["pods", "pods/log"],
        names: &["one"],
        verbs: vec![Verb::Get, Verb::List],
        reasons: vec!["because".to_owned(), "and because".to_owned()],
    };
    let text = "# because\n# and because\n- apiGroups: [\"\"]\n  resources:\n  - \"pods\"\n  - \"pods/log\"\n  resourceNames:\n  - \"one\"\n  verbs: [\"get\", \"list\"]\n";
    assert_eq!(helm_rules(&[rule]), text);
}

#[test]
fn roles_of_children_keep_their_order() {
    let order: Vec<_> = grants::SERVER_PROXY.rules.iter().map(|grant| grant.resources[0]).collect();
    assert_eq!(order, ["statefulsets", "services", "pods", "pods/log", "pods/attach", "configmaps"]);
    let verbs: Vec<_> = grants::SERVER_PROXY.rules[0].verbs.iter().map(|verb| verb.as_str()).collect();
    assert_eq!(verbs, ["get", "list", "watch", "create", "update", "patch", "delete"]);
}
