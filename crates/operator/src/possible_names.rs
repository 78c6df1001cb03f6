//! Texts of an object that could be names of what it refers to, where its references cannot be read.
//!
//! An object that is sent in a megabyte can have half a million of them, and is kept for as long as it exists. So only a hash of each is
//! kept: two that meet are no danger, because what may be in use stays.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;
use skep_plan::text::is_dns_subdomain;

/// A set of names, by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossibleNames {
    /// Sorted, and each once, up to the last time that they were [compacted](Self::compact).
    hashes: Vec<u64>,
    compacted: usize,
}

impl PossibleNames {
    /// Adds every text of a value that could be a name.
    ///
    /// INVARIANT: no value is deeper than `OBJECT_DEPTH`, so recursion ends.
    pub fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Array(values) => values.iter().for_each(|value| self.collect(value)),
            Value::Object(members) => members.values().for_each(|value| self.collect(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds a text if it could be a name.
    pub fn add(&mut self, text: &str) {
        if !is_dns_subdomain(text) {
            return;
        }
        self.hashes.push(hash(text));
        // The same text again and again takes no more than one.
        if self.hashes.len() > 2 * self.compacted + 1024 {
            self.compact();
        }
    }

    /// Whether a name was added.
    pub fn contains(&self, name: &str) -> bool {
        let (sorted, rest) = self.hashes.split_at_checked(self.compacted).unwrap_or_default();
        sorted.binary_search(&hash(name)).is_ok() || rest.contains(&hash(name))
    }

    /// Takes no more memory than the names need.
    pub fn compact(&mut self) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.hashes.shrink_to_fit();
        self.compacted = self.hashes.len();
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_that_could_be_names_are_found_wherever_they_are() {
        let mut names = PossibleNames::default();
        names.collect(&json!({ "a": ["b", { "c": "d.e" }, 1, null], "f": "No Name" }));
        names.compact();
        assert_eq!(["a", "b", "d.e", "No Name"].map(|name| names.contains(name)), [false, true, true, false]);
    }

    #[test]
    fn a_name_takes_eight_bytes_however_often_it_is_there() {
        let mut names = PossibleNames::default();
        (0..1_000_000).for_each(|number| names.add(&format!("name-{}", number % 5_000)));
        names.compact();
        assert_eq!((names.hashes.len(), names.hashes.capacity()), (5_000, 5_000));
        assert!(names.contains("name-4999") && !names.contains("name-5000"));
    }
}
