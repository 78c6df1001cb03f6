//! The inverted index over all tools that clients see: pure, and shared by all views.
//!
//! ```text
//!   View ─▶ Documents (name, description), each once for all views, by the digest of the shown tool
//!   search ─▶ terms ─▶ postings, of the documents of one view ─▶ BM25 ─▶ names, best first
//! ```
//!
//! A document is added with the first view that has it, and removed with the last one: a changed catalogue costs what changed. What a
//! search finds depends on the view and on the search alone, and never on what other clients see: the statistics are those of the view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::words::stems;

/// The parameters of BM25: how soon more occurrences of a word count no more, and how much the length of a document counts.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;

/// A place in the index.
pub(super) type DocumentId = u64;

/// What a search by meaning compares.
pub(super) type Vector = Arc<[f32]>;

/// How many bytes of a tool are embedded: a little less than models of 512 tokens take.
const EMBEDDED: usize = 2048;

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    documents: BTreeMap<DocumentId, Document>,
    by_digest: BTreeMap<[u8; 32], DocumentId>,
    /// How often a word occurs in which documents.
    postings: BTreeMap<Box<str>, BTreeMap<DocumentId, u32>>,
    next: DocumentId,
}

#[derive(Debug)]
struct Document {
    digest: [u8; 32],
    /// How many views have it.
    uses: usize,
    length: u32,
    terms: Box<[Box<str>]>,
    /// What stands for its meaning.
    text: Arc<str>,
    vector: Option<Vector>,
}

/// The tools of a view in the index.
#[derive(Debug, Default)]
pub(super) struct Rows {
    names: BTreeMap<DocumentId, Box<str>>,
    length: f64,
}

// === impl Index ===

impl Index {
    /// Adds the tools of a view: name, description, and the tool as it is shown. They stay until [`Self::release`].
    pub(super) fn add<'a>(&mut self, tools: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Rows {
        let mut rows = Rows::default();
        for (name, description, shown) in tools {
            let digest = digest_of(name, shown);
            let id = match self.by_digest.get(&digest) {
                Some(id) => *id,
                None => self.insert(digest, name, description),
            };
            if let Some(document) = self.documents.get_mut(&id) {
                document.uses += 1;
                rows.length += f64::from(document.length);
            }
            rows.names.insert(id, name.into());
        }
        rows
    }

    /// Takes the tools of a view back.
    pub(super) fn release(&mut self, rows: &Rows) {
        for id in rows.names.keys() {
            let Some(document) = self.documents.get_mut(id) else { continue };
            document.uses = document.uses.saturating_sub(1);
            if document.uses == 0 {
                self.remove(*id);
            }
        }
    }

    /// The tools of a view that have any of these words, best first. Equally good ones are in the order of their names.
    pub(super) fn search<'a>(&self, rows: &'a Rows, terms: &BTreeSet<String>) -> Vec<&'a str> {
        let mut scores: BTreeMap<DocumentId, f64> = BTreeMap::new();
        for term in terms {
            let Some(posting) = self.postings.get(term.as_str()) else { continue };
            let found: Vec<(DocumentId, u32)> =
                posting.iter().filter(|(id, _)| rows.names.contains_key(id)).map(|(id, count)| (*id, *count)).collect();
            let rarity = rarity(rows.names.len(), found.len());
            for (id, count) in found {
                let length = self.documents.get(&id).map_or(0, |document| document.length);
                *scores.entry(id).or_default() += rarity * weight(count, length, rows.mean_length());
            }
        }
        ranked(scores.into_iter().filter_map(|(id, score)| Some((-score, &**rows.names.get(&id)?))).collect())
    }

    /// The vectors of the tools of a view, as far as there are any.
    pub(super) fn vectors<'a>(&self, rows: &'a Rows) -> Vec<(&'a str, Vector)> {
        let vector = |id: &DocumentId| self.documents.get(id)?.vector.clone();
        rows.names.iter().filter_map(|(id, name)| Some((&**name, vector(id)?))).collect()
    }

    /// The documents without a vector, at most so many, and their texts.
    pub(super) fn without_vector(&self, most: usize) -> Vec<(DocumentId, Arc<str>)> {
        let missing = self.documents.iter().filter(|(_, document)| document.vector.is_none());
        missing.take(most).map(|(id, document)| (*id, document.text.clone())).collect()
    }

    /// Keeps the vector of a document, if that is still there.
    pub(super) fn set_vector(&mut self, id: DocumentId, vector: Vector) {
        if let Some(document) = self.documents.get_mut(&id) {
            document.vector = Some(vector);
        }
    }

    /// Forgets all vectors: they are of another model.
    pub(super) fn forget_vectors(&mut self) {
        self.documents.values_mut().for_each(|document| document.vector = None);
    }

    /// How many documents there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.documents.len()
    }

    fn insert(&mut self, digest: [u8; 32], name: &str, description: &str) -> DocumentId {
        let id = self.next;
        self.next += 1;
        let mut counts: BTreeMap<Box<str>, u32> = BTreeMap::new();
        let mut length = 0;
        for stem in stems(name).into_iter().chain(stems(description)) {
            *counts.entry(stem.into()).or_default() += 1;
            length += 1;
        }
        let terms = counts.keys().cloned().collect();
        for (term, count) in counts {
            self.postings.entry(term).or_default().insert(id, count);
        }
        // A model refuses what is too long for it, and with it all that is sent in the same request.
        let text = format!("name: {name} description: {description}");
        let text = text.get(..text.floor_char_boundary(EMBEDDED)).unwrap_or_default().into();
        self.documents.insert(id, Document { digest, uses: 0, length, terms, text, vector: None });
        self.by_digest.insert(digest, id);
        id
    }

    fn remove(&mut self, id: DocumentId) {
        let Some(document) = self.documents.remove(&id) else { return };
        self.by_digest.remove(&document.digest);
        for term in &document.terms {
            if let Some(posting) = self.postings.get_mut(term) {
                posting.remove(&id);
                if posting.is_empty() {
                    self.postings.remove(term);
                }
            }
        }
    }
}

// === impl Rows ===

impl Rows {
    fn mean_length(&self) -> f64 {
        self.length / count(self.names.len().max(1))
    }
}

/// The names in the order of what is small first, and then of the names.
pub(super) fn ranked(mut found: Vec<(f64, &str)>) -> Vec<&str> {
    found.sort_by(|(one, name), (other, than)| one.total_cmp(other).then_with(|| name.cmp(than)));
    found.into_iter().map(|(_, name)| name).collect()
}

/// How much a word says that is in so many of all documents. It is never nothing: of few documents, one word may be in all.
fn rarity(all: usize, found: usize) -> f64 {
    let (all, found) = (count(all), count(found));
    (1.0 + (all - found + 0.5) / (found + 0.5)).ln()
}

fn weight(occurrences: u32, length: u32, mean_length: f64) -> f64 {
    let occurrences = f64::from(occurrences);
    let length = if mean_length > 0.0 { f64::from(length) / mean_length } else { 1.0 };
    occurrences * (SATURATION + 1.0) / (occurrences + SATURATION * (1.0 - LENGTH + LENGTH * length))
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// What tells a tool from any other: its name is in what is shown, and stands in front of it because that is not parsed here.
fn digest_of(name: &str, shown: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(name.len().to_be_bytes());
    digest.update(name);
    digest.update(shown);
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
