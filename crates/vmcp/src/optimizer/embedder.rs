//! Vectors of tools, computed in the background, and the search by them.
//!
//! What waits to be computed is what the index has without a vector: a queue of its own would only repeat it, and could grow. Vectors are
//! kept by what they were computed from, so a tool that comes back costs nothing. While the service fails, what was computed still counts,
//! and searches go on by words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skep_proxy::capacity::Caches;
use skep_workload::backoff::Backoff;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::index::{Rows, Vector, ranked};
use super::service::{EmbeddingError, EmbeddingService, Model};
use super::{SharedIndex, with};
use crate::metrics::VirtualMetrics;

/// How many texts are embedded before the index is read again.
const ROUND: usize = 4096;
/// How long after a failure the service is called again, at first.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is found out whether the service has another model.
const RECHECK: Duration = Duration::from_mins(5);
/// How long a search waits for the vector of its text, at most.
const QUERY: Duration = Duration::from_secs(5);

/// Computes vectors.
#[derive(Debug)]
pub(super) struct Embedder {
    me: Weak<Self>,
    service: EmbeddingService,
    index: SharedIndex,
    wanted: Arc<Notify>,
    state: Mutex<State>,
    metrics: VirtualMetrics,
}

#[derive(Debug, Default)]
struct State {
    /// The model of the vectors in the index.
    model: Option<String>,
    kept: KeptVectors,
    /// Until when the service is not called by searches, because it failed.
    failing_until: Option<Instant>,
    is_failing: bool,
}

/// Vectors by what they were computed from, of tools that are gone and of those that are not. Those that were used longest ago are
/// forgotten.
#[derive(Debug, Default)]
struct KeptVectors {
    vectors: BTreeMap<[u8; 32], (u64, Vector)>,
    order: BTreeMap<u64, [u8; 32]>,
    count: u64,
    bytes: usize,
}

// === impl Embedder ===

impl Embedder {
    pub(super) fn new(service: EmbeddingService, index: SharedIndex, metrics: VirtualMetrics) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            service,
            index,
            wanted: Arc::default(),
            state: Mutex::default(),
            metrics,
        })
    }

    /// There may be texts without a vector.
    pub(super) fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Computes what is missing, whenever something is, until the embedder is gone.
    pub(super) fn start(&self) {
        tokio::spawn(run(self.me.clone()).in_current_span());
    }

    /// The tools of a view that are near in meaning, nearest first. Nothing if meaning cannot be searched for now.
    pub(super) async fn nearest(&self, rows: &Rows, description: &str, threshold: f64) -> Option<Vec<String>> {
        if self.with(|state| state.model.is_none() || state.failing_until.is_some_and(|until| Instant::now() < until)) {
            self.metrics.search_without_meaning();
            return None;
        }
        let vectors = with(&self.index, |index| {
            index.vectors(rows).into_iter().map(|(name, vector)| (name.to_owned(), vector)).collect::<Vec<_>>()
        });
        // The words have all of the result until there is a vector to compare with.
        if vectors.is_empty() {
            self.metrics.search_without_meaning();
            return None;
        }
        let timeout = QUERY.min(self.service.timeout());
        let embedded = tokio::time::timeout(timeout, self.service.embed(&[description])).await;
        let embedded = embedded.unwrap_or(Err(EmbeddingError::Timeout(timeout)));
        let query = match embedded {
            Ok((vectors, _model)) => {
                self.recovered();
                vectors.into_iter().next()?
            }
            Err(error) => {
                self.failed(&error, RETRY);
                self.wake();
                self.metrics.search_without_meaning();
                return None;
            }
        };
        let near = vectors.iter().filter_map(|(name, vector)| Some((distance(&query, vector)?, name.as_str())));
        let near = near.filter(|(distance, _)| *distance <= threshold).collect();
        Some(ranked(near).into_iter().map(str::to_owned).collect())
    }

    /// Computes what is missing. Says whether there may be more.
    async fn round(&self) -> Result<bool, EmbeddingError> {
        let mut attempts = 2;
        loop {
            attempts -= 1;
            let model = self.service.model().await?;
            if self.service.says_its_model() {
                self.recovered();
            }
            self.use_model(&model.id);
            let missing = with(&self.index, |index| index.without_vector(ROUND));
            if missing.is_empty() {
                return Ok(false);
            }
            match self.embed_all(&model, &missing).await {
                Err(EmbeddingError::ModelChanged) if attempts > 0 => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.recovered();
                    return Ok(missing.len() == ROUND);
                }
            }
        }
    }

    async fn embed_all(&self, model: &Model, missing: &[(u64, Arc<str>)]) -> Result<(), EmbeddingError> {
        let mut ready = Vec::new();
        let mut unknown = Vec::new();
        for (id, text) in missing {
            let key = self.key(&model.id, text);
            match self.with(|state| state.kept.get(&key)) {
                Some(vector) => ready.push((*id, vector)),
                None => unknown.push((*id, key, &**text)),
            }
        }
        let mut computed = Vec::new();
        let mut named: Option<String> = None;
        let mut failed = None;
        for batch in unknown.chunks(model.batch) {
            let texts: Vec<&str> = batch.iter().map(|(_, _, text)| *text).collect();
            let (vectors, by) = match self.service.embed(&texts).await {
                Ok(embedded) => embedded,
                // What was computed before is kept.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            if by.is_some() && named.is_some() && by != named {
                return Err(EmbeddingError::ModelChanged);
            }
            named = by.or(named);
            computed.extend(batch.iter().map(|(id, key, _)| (*id, *key)).zip(vectors));
        }
        // Vectors of two models cannot be compared.
        if !computed.is_empty() && self.service.model().await?.id != model.id {
            return Err(EmbeddingError::ModelChanged);
        }
        self.with(|state| {
            for ((_, key), vector) in &computed {
                state.kept.insert(*key, vector.clone());
            }
        });
        ready.extend(computed.into_iter().map(|((id, _), vector)| (id, vector)));
        with(&self.index, |index| ready.into_iter().for_each(|(id, vector)| index.set_vector(id, vector)));
        failed.map_or(Ok(()), Err)
    }

    /// Forgets the vectors of another model.
    fn use_model(&self, id: &str) {
        if self.is_of_other_model(id) {
            with(&self.index, super::index::Index::forget_vectors);
        }
        self.with(|state| state.model = Some(id.to_owned()));
    }

    fn is_of_other_model(&self, id: &str) -> bool {
        self.with(|state| state.model.as_ref().is_some_and(|model| model != id))
    }

    /// What a vector is kept by: everything that it depends on, each with its length, so that no two run together.
    fn key(&self, model: &str, text: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in ["v1"].into_iter().chain(self.service.identity()).chain([model, text]) {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn failed(&self, error: &EmbeddingError, pause: Duration) {
        self.metrics.embedding_failed();
        let was_failing = self.with(|state| {
            state.failing_until = Some(Instant::now() + pause);
            std::mem::replace(&mut state.is_failing, true)
        });
        if !was_failing {
            tracing::warn!(%error, "the optimizer searches by words alone");
        }
    }

    fn recovered(&self) {
        let was_failing = self.with(|state| {
            state.failing_until = None;
            std::mem::take(&mut state.is_failing)
        });
        if was_failing {
            tracing::info!("the optimizer searches by meaning again");
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn run(embedder: Weak<Embedder>) {
    let mut backoff = Backoff::new(RETRY);
    loop {
        let (pause, wanted, is_failing) = {
            let Some(me) = embedder.upgrade() else { return };
            let since = Instant::now();
            let pause = match me.round().await {
                Ok(true) => continue,
                Ok(false) => {
                    backoff = Backoff::new(RETRY);
                    RECHECK
                }
                Err(error) => {
                    let pause = backoff.after(since.elapsed());
                    me.failed(&error, pause);
                    pause
                }
            };
            (pause, me.wanted.clone(), me.with(|state| state.is_failing))
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // What is new waits like the rest until the service is called again.
            () = wanted.notified(), if !is_failing => {}
        }
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // The task finds that it is gone.
        self.wake();
    }
}

/// The cosine distance of two vectors, from 0 to 2. Nothing if they have different dimensions, or no direction.
fn distance(one: &[f32], other: &[f32]) -> Option<f64> {
    if one.len() != other.len() {
        return None;
    }
    let (mut product, mut mine, mut its) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (one, other) in one.iter().zip(other) {
        let (one, other) = (f64::from(*one), f64::from(*other));
        product += one * other;
        mine += one * one;
        its += other * other;
    }
    let distance = 1.0 - product / (mine.sqrt() * its.sqrt());
    distance.is_finite().then_some(distance)
}

// === impl KeptVectors ===

impl KeptVectors {
    fn get(&mut self, key: &[u8; 32]) -> Option<Vector> {
        let vector = self.vectors.get(key)?.1.clone();
        self.insert(*key, vector.clone());
        Some(vector)
    }

    fn insert(&mut self, key: [u8; 32], vector: Vector) {
        self.count += 1;
        self.bytes += size_of_val(&*vector);
        if let Some((before, replaced)) = self.vectors.insert(key, (self.count, vector)) {
            self.bytes -= size_of_val(&*replaced);
            self.order.remove(&before);
        }
        self.order.insert(self.count, key);
        while self.bytes > Caches::of_process().vectors
            && let Some((_, oldest)) = self.order.pop_first()
        {
            let removed = self.vectors.remove(&oldest);
            self.bytes -= removed.map_or(0, |(_, vector)| size_of_val(&*vector));
        }
    }
}

#[cfg(test)]
mod tests;
