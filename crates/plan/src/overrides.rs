//! Overrides of a user under names that the operator sets itself: they are dropped, and the status says which and where.
//!
//! What the operator stamps on a workload (the generation, checksums, credentials, the mounts of its configuration) must be what the
//! pods run with, whatever an override or a pod template says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skep_api::workload::MetadataOverrides;

use crate::status::Status;

/// Where variables of a proxy's container are overridden.
pub(crate) const PROXY_ENV: &str = "spec.resourceOverrides.proxyDeployment.env";
/// Where labels and annotations of a proxy's Deployment are overridden.
pub(crate) const PROXY_DEPLOYMENT: &str = "spec.resourceOverrides.proxyDeployment";
/// Where labels and annotations of a proxy's Service are overridden.
pub(crate) const PROXY_SERVICE: &str = "spec.resourceOverrides.proxyService";
/// Where labels and annotations of a proxy's pods are overridden.
pub(crate) const PROXY_PODS: &str = "spec.resourceOverrides.proxyDeployment.podTemplateMetadataOverrides";
/// Where a pod template is overridden.
pub(crate) const POD_TEMPLATE: &str = "spec.podTemplateSpec";

/// Beginnings of the names of annotations that other programs write: the Deployment controller, kubectl, and Skep's own. An override of one
/// would be applied by force against that program, without end.
const RESERVED_ANNOTATIONS: &[&str] = &[
    "deployment.kubernetes.io/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "toolhive.stacklok.dev/",
    "toolhive.stacklok.io/",
];

/// The condition that names what was dropped.
const CONDITION: &str = "OverridesApplied";
/// How many names a message has.
const NAMED: usize = 20;

/// The overrides that were dropped: field and name of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DroppedOverrides(BTreeSet<(String, String)>);

// === impl DroppedOverrides ===

impl DroppedOverrides {
    /// Adds one: the field that holds it, and its name there.
    pub(crate) fn add(&mut self, field: &str, name: &str) {
        self.0.insert((field.to_owned(), name.to_owned()));
    }

    /// Adds all of another list.
    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    /// Adds the labels and annotations of an override that the finished metadata of an object has with other values.
    pub(crate) fn compare(&mut self, field: &str, wanted: Option<&MetadataOverrides>, metadata: Option<&Value>) {
        let Some(wanted) = wanted else { return };
        self.compare_entries(&format!("{field}.labels"), &wanted.labels, metadata.and_then(|all| all.get("labels")));
        let annotations = metadata.and_then(|all| all.get("annotations"));
        self.compare_entries(&format!("{field}.annotations"), &wanted.annotations, annotations);
    }

    /// Adds the annotations of an override that only other programs write ([`allowed_annotations`]).
    pub(crate) fn add_reserved(&mut self, field: &str, wanted: Option<&MetadataOverrides>) {
        let names = wanted.into_iter().flat_map(|wanted| wanted.annotations.keys());
        names.filter(|name| is_reserved(name)).for_each(|name| self.add(&format!("{field}.annotations"), name));
    }

    /// Adds the entries that a finished map has with other values.
    pub(crate) fn compare_entries(&mut self, field: &str, wanted: &BTreeMap<String, String>, found: Option<&Value>) {
        for (name, value) in wanted {
            let found = found.and_then(|found| found.get(name)).and_then(Value::as_str);
            if found.is_some_and(|found| found != value) {
                self.add(field, name);
            }
        }
    }

    /// Field and name of each, for tests.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<String> {
        self.0.iter().map(|(field, name)| format!("{field} {name}")).collect()
    }

    /// Says in the status what was dropped; nothing where nothing was.
    pub(crate) fn report(&self, status: &mut Status) {
        if self.0.is_empty() {
            return;
        }
        let named = self.0.iter().take(NAMED).map(|(field, name)| format!("`{name}` in {field}"));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = self.0.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message =
            format!("the operator sets these itself, so the overrides were dropped: {named}{more}; remove them");
        status.condition(CONDITION, false, "ReservedName", message);
    }
}

/// The annotations of an override but for those that only other programs write.
pub(crate) fn allowed_annotations(overrides: &MetadataOverrides) -> impl Iterator<Item = (&String, &String)> {
    overrides.annotations.iter().filter(|(name, _)| !is_reserved(name))
}

fn is_reserved(annotation: &str) -> bool {
    RESERVED_ANNOTATIONS.iter().any(|reserved| annotation.starts_with(reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_what_was_dropped_and_where() {
        let mut status = Status::default();
        DroppedOverrides::default().report(&mut status);
        assert!(status.conditions().is_empty());
        let mut dropped = DroppedOverrides::default();
        dropped.add(PROXY_ENV, "HOME");
        dropped.report(&mut status);
        let condition = status.find(CONDITION).unwrap();
        assert_eq!((condition.is_true(), condition.reason.as_str()), (false, "ReservedName"));
        assert!(condition.message.contains("`HOME` in spec.resourceOverrides.proxyDeployment.env"), "{condition:?}");
        for number in 0..10_000 {
            dropped.add(POD_TEMPLATE, &format!("N{number}"));
        }
        dropped.report(&mut status);
        let message = &status.find(CONDITION).unwrap().message;
        assert!(message.len() < 2000 && message.contains("and 9981 more"), "{message}");
    }
}
