//! What the operator may do, and why: one table, [`permissions`].
//!
//! ```text
//! permissions() (what the operator does itself) ─┐
//! grants::ROLES (what it hands to its children)  ┴─▶ rules() ─▶ helm_template() ─▶ the chart
//! ```
//!
//! The resources in it are read from the tables of kinds ([`KindName`](skep_api::resource::KindName), [`skep_plan::kinds`],
//! [`ChildKind`](skep_plan::child::ChildKind)): a new kind needs no change here.
//!
//! The API server lets a client create a Role only with rights that it has itself. So the rules of every child's Role are added to
//! those of the operator; they are written once, with the child.
//!
//! Three shapes follow from how the operator writes:
//! - children are server-side applied: `patch`, and `create` because the apply may make the object;
//! - its own resources are merge patched, the status through `/status`: `patch`;
//! - nothing is ever replaced whole, so no row has `update`. The one exception is `/finalizers`, where `update` is the
//!   verb that an admission plugin asks for; no request is sent to it.
//!
//! Wildcards cannot be written: [`Verb`] has none, and the resources are lists of names that a test checks.

mod helm;
mod permissions;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use helm::{helm_rules, helm_template};
pub use permissions::{permissions, plurals};
pub use skep_plan::grants::{self, Verb};

pub use skep_api::crd::GROUP;

/// Where a permission is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In every namespace the operator watches: a `ClusterRole`, or a Role in each.
    Watched,
    /// On resources without a namespace. Only the storage version migrator has such needs, and it can be switched off.
    Cluster,
    /// In the operator's own namespace.
    Home,
    /// In every namespace that was watched, while the chart is uninstalled.
    LeavingWatched,
    /// In the operator's own namespace, while the chart is uninstalled.
    LeavingHome,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Permission {
    /// Where it is held.
    pub place: Place,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Plural names, with `/status` and the like for a part of them.
    pub resources: Vec<&'static str>,
    /// The objects it is limited to; empty means all. `create`, `list` and `watch` cannot be limited this way.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [Verb],
    /// Why the operator needs it.
    pub reason: &'static str,
}

/// A rule as it stands in a Role: all resources of one group with the same verbs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Sorted.
    pub resources: Vec<&'static str>,
    /// The objects it is limited to; empty means all.
    pub names: &'static [&'static str],
    /// Sorted.
    pub verbs: Vec<Verb>,
    /// One line per row that asked for it.
    pub reasons: Vec<String>,
}

/// What the operator holds in every namespace it watches: what it does, and what it hands on.
pub fn rules() -> Vec<Rule> {
    let mut asks = asks(Place::Watched);
    asks.extend(grants::ROLES.iter().flat_map(|role| {
        role.rules.iter().map(|grant| Ask {
            group: grant.group,
            resources: grant.resources,
            names: &[],
            verbs: grant.verbs,
            reason: format!("granted to {}: {}", role.bearer, verb_list(grant.verbs)),
        })
    }));
    merge(&asks)
}

/// What the storage version migrator needs besides: cluster-wide by nature.
pub fn migrator_rules() -> Vec<Rule> {
    merge(&asks(Place::Cluster))
}

/// What leader election needs in the operator's own namespace.
pub fn leader_election_rules() -> Vec<Rule> {
    merge(&asks(Place::Home))
}

/// What `skep uninstall` needs in every namespace that was watched.
pub fn uninstall_rules() -> Vec<Rule> {
    merge(&asks(Place::LeavingWatched))
}

/// What `skep uninstall` needs in the operator's own namespace.
pub fn uninstall_home_rules() -> Vec<Rule> {
    merge(&asks(Place::LeavingHome))
}

/// A row of either table, on its way into a rule.
struct Ask {
    group: &'static str,
    resources: &'static [&'static str],
    names: &'static [&'static str],
    verbs: &'static [Verb],
    reason: String,
}

fn asks(place: Place) -> Vec<Ask> {
    let held = permissions().iter().filter(|row| row.place == place);
    held.map(|row| Ask {
        group: row.group,
        resources: &row.resources,
        names: row.names,
        verbs: row.verbs,
        reason: row.reason.to_owned(),
    })
    .collect()
}

/// Collects the verbs of each resource, then the resources that have the same ones. The order of the rows does not matter
/// to the rules, only to their reasons.
fn merge(asks: &[Ask]) -> Vec<Rule> {
    let mut verbs_of: BTreeMap<_, BTreeSet<Verb>> = BTreeMap::new();
    for ask in asks {
        for resource in ask.resources {
            verbs_of.entry((ask.group, ask.names, *resource)).or_default().extend(ask.verbs);
        }
    }
    let mut resources_of: BTreeMap<_, BTreeSet<&'static str>> = BTreeMap::new();
    for ((group, names, resource), verbs) in verbs_of {
        resources_of.entry((group, names, verbs)).or_default().insert(resource);
    }
    let mut rules: Vec<Rule> = resources_of
        .into_iter()
        .map(|((group, names, verbs), resources)| {
            let asked = asks.iter().filter(|ask| ask.group == group && ask.names == names);
            let reasons = asked.filter_map(|ask| reason(ask, &resources)).collect();
            Rule {
                group,
                resources: resources.into_iter().collect(),
                names,
                verbs: verbs.into_iter().collect(),
                reasons,
            }
        })
        .collect();
    rules.sort_by(|a, b| (a.group, &a.resources, a.names).cmp(&(b.group, &b.resources, b.names)));
    rules
}

/// Why a row is behind a rule with these resources: it names its resources when it is not about all of them.
fn reason(ask: &Ask, resources: &BTreeSet<&'static str>) -> Option<String> {
    let about: BTreeSet<_> = ask.resources.iter().copied().filter(|resource| resources.contains(resource)).collect();
    if about.is_empty() {
        return None;
    }
    if about == *resources {
        return Some(ask.reason.clone());
    }
    Some(format!("{}: {}", about.into_iter().collect::<Vec<_>>().join(", "), ask.reason))
}

fn verb_list(verbs: &[Verb]) -> String {
    verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", ")
}
