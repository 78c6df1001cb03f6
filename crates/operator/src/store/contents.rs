//! What is remembered of Secrets and ConfigMaps: the keys that resources refer to and nothing else, whatever else is in them.
//!
//! Of most keys a digest is enough. The text of a document that plans read is kept up to a budget per namespace; beyond it, all of
//! that namespace are released and read again by those who need them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use skep_api::reference::{Reference, Target};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::{ConfigMapValue, Found};

/// How many bytes of documents are remembered per namespace.
const TEXT_BUDGET: usize = 8 << 20;

/// The keys of one Secret or ConfigMap that resources refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedKeys {
    /// All of them.
    names: BTreeSet<String>,
    /// Those whose text plans read.
    documents: BTreeSet<String>,
}

/// What is remembered of a Secret or ConfigMap.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// What it holds; nothing if it must be read again.
    held: Option<CachedContent>,
    pub(super) version: Option<String>,
}

/// What was read of a Secret or ConfigMap.
#[derive(Clone, Debug)]
pub(super) struct CachedContent {
    /// Nothing if it does not exist.
    pub(super) found: Option<Found>,
    /// The keys that were read.
    keys: ReferencedKeys,
    /// The bytes of its documents.
    text: usize,
}

/// What was read of all Secrets and ConfigMaps.
#[derive(Debug, Default)]
pub(super) struct Contents {
    by_key: HashMap<Key, Content>,
    /// The bytes of documents by namespace.
    text: HashMap<String, usize>,
}

// === impl ReferencedKeys ===

impl ReferencedKeys {
    /// The keys of an object that some of the references lead to.
    pub(super) fn among(references: &[Reference], namespace: &str, object: &Key) -> Self {
        let mut keys = Self::default();
        for reference in references.iter().filter(|reference| Key::target(reference, namespace) == *object) {
            match &reference.to {
                Target::Secret { key } | Target::ConfigMap { key } => keys.names.insert(key.clone()),
                Target::Document { key } => keys.names.insert(key.clone()) | keys.documents.insert(key.clone()),
                Target::Kind(_) => continue,
            };
        }
        keys
    }

    /// Adds the keys that others refer to.
    pub(super) fn extend(&mut self, others: Self) {
        self.names.extend(others.names);
        self.documents.extend(others.documents);
    }

    /// Whether a resource refers to a key.
    pub fn has(&self, key: &str) -> bool {
        self.names.contains(key)
    }

    /// What plans need of a ConfigMap.
    pub fn select(&self, data: BTreeMap<String, String>) -> BTreeMap<String, ConfigMapValue> {
        let data = data.into_iter().filter(|(key, _)| self.has(key));
        data.map(|(key, text)| {
            let value = ConfigMapValue::Text(text);
            let value = if self.documents.contains(&key) { value } else { ConfigMapValue::Digest(value.digest()) };
            (key, value)
        })
        .collect()
    }

    /// Whether it has all of the others.
    pub(super) fn covers(&self, others: &Self) -> bool {
        others.names.is_subset(&self.names) && others.documents.is_subset(&self.documents)
    }
}

// === impl Contents ===

impl Contents {
    pub(super) fn get(&self, key: &Key) -> Option<&Content> {
        self.by_key.get(key)
    }

    /// What was read of an object; nothing if it must be read.
    pub(super) fn held(&self, key: &Key) -> Option<&CachedContent> {
        self.by_key.get(key)?.held.as_ref()
    }

    pub(super) fn insert(&mut self, key: Key, found: Option<Found>, version: Option<String>, keys: ReferencedKeys) {
        self.remove(&key);
        let text = found.as_ref().map_or(0, text_of);
        if text > 0 {
            *self.text.entry(key.namespace.clone()).or_default() += text;
        }
        self.by_key.insert(key, Content { held: Some(CachedContent { found, keys, text }), version });
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.release(key);
        self.by_key.remove(key);
    }

    /// The objects of a kind that were read.
    pub(super) fn keys(&self, kind: ObjectKind) -> impl Iterator<Item = &Key> {
        self.by_key.keys().filter(move |key| key.kind == kind)
    }

    /// Releases what was read of an object if it lacks some of these keys.
    pub(super) fn require(&mut self, key: &Key, keys: &ReferencedKeys) {
        if self.held(key).is_some_and(|held| !held.keys.covers(keys)) {
            self.release(key);
        }
    }

    /// Releases the documents of a namespace if they exceed its budget.
    pub(super) fn trim(&mut self, namespace: &str) {
        if self.text.get(namespace).is_none_or(|text| *text <= TEXT_BUDGET) {
            return;
        }
        let has_text = |content: &Content| content.held.as_ref().is_some_and(|held| held.text > 0);
        let keys = self.by_key.iter().filter(|(key, content)| key.namespace == namespace && has_text(content));
        let keys: Vec<Key> = keys.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.release(&key);
        }
    }

    /// Forgets what an object holds, but not that it was read: its version tells whether a watch shows a change.
    fn release(&mut self, key: &Key) {
        let Some(held) = self.by_key.get_mut(key).and_then(|content| content.held.take()) else { return };
        let Some(text) = self.text.get_mut(&key.namespace) else { return };
        *text -= held.text;
        if *text == 0 {
            self.text.remove(&key.namespace);
        }
    }
}

fn text_of(found: &Found) -> usize {
    let Found::ConfigMap(data) = found else { return 0 };
    data.values().filter_map(ConfigMapValue::text).map(str::len).sum()
}

#[cfg(test)]
mod tests {
    use skep_plan::canonical::sha256_hex;

    use super::*;

    fn key(name: &str) -> Key {
        Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: name.into() }
    }

    fn reference(to: Target) -> Reference {
        Reference { to, name: "c".into(), field: "spec".into() }
    }

    fn keys() -> ReferencedKeys {
        let references = [
            reference(Target::Document { key: "policies".into() }),
            reference(Target::ConfigMap { key: "ca.crt".into() }),
            Reference { name: "other".into(), ..reference(Target::ConfigMap { key: "unused".into() }) },
        ];
        ReferencedKeys::among(&references, "ns", &key("c"))
    }

    fn data(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn only_keys_that_are_referred_to_are_kept_and_only_documents_as_text() {
        let selected = keys().select(data(&[("policies", "permit"), ("ca.crt", "PEM"), ("unused", "x"), ("", "y")]));
        let expected = [
            ("ca.crt".to_owned(), ConfigMapValue::Digest(sha256_hex(b"PEM"))),
            ("policies".to_owned(), ConfigMapValue::Text("permit".to_owned())),
        ];
        assert_eq!(selected, expected.into());
    }

    #[test]
    fn contents_without_a_key_or_beyond_the_budget_are_read_again() {
        let mut contents = Contents::default();
        let document = |size: usize| {
            let data = keys().select(data(&[("policies", &"x".repeat(size))]));
            Some(Found::ConfigMap(data.into()))
        };
        let put = |contents: &mut Contents, name: &str, size: usize| {
            contents.insert(key(name), document(size), Some("1".into()), keys());
        };
        put(&mut contents, "a", TEXT_BUDGET);
        contents.require(&key("a"), &keys());
        contents.trim("ns");
        assert!(contents.held(&key("a")).is_some());
        put(&mut contents, "b", 1);
        contents.insert(key("absent"), None, None, keys());
        contents.trim("other");
        assert!(contents.held(&key("a")).is_some() && contents.held(&key("b")).is_some());
        contents.trim("ns");
        assert!(contents.held(&key("a")).is_none() && contents.held(&key("b")).is_none() && contents.text.is_empty());
        assert_eq!(contents.get(&key("a")).unwrap().version.as_deref(), Some("1"), "a watch shows nothing new");
        assert!(contents.held(&key("absent")).is_some());
        put(&mut contents, "a", 10);
        let more = [reference(Target::Document { key: "ca.crt".into() })];
        contents.require(&key("a"), &ReferencedKeys::among(&more, "ns", &key("c")));
        assert!(contents.held(&key("a")).is_none(), "its text was not kept");
        put(&mut contents, "a", 10);
        contents.remove(&key("a"));
        assert!(contents.text.is_empty() && contents.get(&key("a")).is_none());
    }
}
