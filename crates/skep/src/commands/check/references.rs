//! References of the files to what is not in the files.
//!
//! Files rarely hold everything that a cluster holds, Secrets least of all. So a reference is an error only where the files can tell:
//! the namespace has other objects of that kind in the files, so the one that is meant should be among them and is misspelt; or the
//! object is there and lacks the key. Otherwise it is a warning.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::reference::{Reference, Target};
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::Found;

/// How many names of other objects a message lists.
const LISTED: usize = 5;

/// What a plan may see.
pub(super) type Objects = BTreeMap<Key, Found>;

/// What a resource refers to and the files do not have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing(Vec<Gap>);

/// One thing that is missing.
#[derive(Debug, PartialEq, Eq)]
struct Gap {
    target: Key,
    /// Whether the files should have it. Otherwise it may be in the cluster.
    is_certain: bool,
    message: String,
}

/// What the files say, and Secrets that they refer to and do not hold: the cluster is assumed to have those, with every key that is
/// named. A plan sees no more of a Secret than its keys. What a ConfigMap holds cannot be assumed.
pub(super) fn assumed(found: &Objects) -> Objects {
    let mut assumed = found.clone();
    let resources = found.iter().filter_map(|(key, object)| match object {
        Found::Resource(resource) => Some((key, resource)),
        _ => None,
    });
    for (key, resource) in resources {
        for reference in resource.references() {
            let target = Key::target(&reference, &key.namespace);
            if let Target::Secret { key } = reference.to
                && !found.contains_key(&target)
            {
                let secret = assumed.entry(target).or_insert_with(|| Found::Secret(BTreeMap::new()));
                if let Found::Secret(keys) = secret {
                    keys.insert(key, String::new());
                }
            }
        }
    }
    assumed
}

// === impl Missing ===

impl Missing {
    /// What a resource refers to and is not in `found`, each object once.
    pub(super) fn of(me: &Resource, found: &Objects) -> Self {
        let mut seen = BTreeSet::new();
        let gaps = me.references().into_iter().filter_map(|reference| Gap::of(&reference, me.namespace(), found));
        Self(gaps.filter(|gap| gap.is_certain || seen.insert(gap.target.clone())).collect())
    }

    /// Whether nothing is missing.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the files should have.
    pub(super) fn problems(&self) -> Vec<String> {
        self.messages(true)
    }

    /// What may be in the cluster.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.messages(false)
    }

    /// Whether a message of a plan only says that one of these is missing.
    pub(super) fn explains(&self, message: &str) -> bool {
        let names = |gap: &Gap| {
            let Key { kind, name, .. } = &gap.target;
            message.contains(&format!("{kind} `{name}`")) || message.contains(&format!("{kind} '{name}'"))
        };
        message.contains("not found") && self.0.iter().any(names)
    }

    fn messages(&self, is_certain: bool) -> Vec<String> {
        self.0.iter().filter(|gap| gap.is_certain == is_certain).map(|gap| gap.message.clone()).collect()
    }
}

// === impl Gap ===

impl Gap {
    /// What is missing where a reference leads, if anything is.
    fn of(reference: &Reference, namespace: &str, found: &Objects) -> Option<Self> {
        let target = Key::target(reference, namespace);
        let (field, Key { kind, name, .. }) = (&reference.field, &target);
        let (is_certain, message) = match found.get(&target) {
            Some(object) => {
                let key = missing_key(&reference.to, object)?;
                (true, format!("{field}: {kind} `{name}` has no key `{key}`; add it, or correct the key"))
            }
            None => match others(*kind, namespace, found) {
                known if known.is_empty() => {
                    let place = format!("it must exist in namespace `{namespace}`");
                    (false, format!("{field}: {kind} `{name}` is not in these files; {place}"))
                }
                known => {
                    let advice = "add it, or correct the name";
                    (true, format!("{field}: {kind} `{name}` is not in these files, which have {known}; {advice}"))
                }
            },
        };
        Some(Self { target, is_certain, message })
    }
}

/// The key that a Secret or ConfigMap should have and does not.
fn missing_key<'a>(to: &'a Target, object: &Found) -> Option<&'a str> {
    let (Target::Secret { key } | Target::ConfigMap { key }) = to else { return None };
    let (Found::Secret(keys) | Found::ConfigMap(keys)) = object else { return None };
    (!key.is_empty() && !keys.contains_key(key)).then_some(key.as_str())
}

/// The objects of a kind that the files have in a namespace, for a message.
fn others(kind: ObjectKind, namespace: &str, found: &Objects) -> String {
    let others = found.keys().filter(|key| key.kind == kind && key.namespace == namespace);
    others.take(LISTED).map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(", ")
}
