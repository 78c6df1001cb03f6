//! The keys of an issuer, kept for as long as they are good.
//!
//! They are fetched at the first token, again when they are old, and again when a token names a key that is not among them: that is how an
//! issuer rotates keys without a failed request. Fetches for unknown keys keep a minimum interval, and all tokens that wait for one share
//! it, so invented key ids cause few requests to the issuer. A signature that is not that of the key that it names is no more than a reason to
//! fetch them again if that was not done within the interval: issuers may replace a key under its id. A fetch that fails leaves the last good set
//! in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use http::header::CACHE_CONTROL;
use tokio::sync::{Mutex, RwLock};
use tokio::time::Instant;

use crate::discovery::{DiscoveryError, discover};
use crate::fetch::{FetchError, Fetcher};
use crate::jwt::{Algorithm, shown};
use crate::keys::{Key, KeySet, KeySetError};

/// How long keys are used before they are fetched again: what the issuer says, within these bounds.
const SHORTEST: Duration = Duration::from_mins(15);
const LONGEST: Duration = Duration::from_hours(24);
/// The shortest time between two fetches for keys that are not known. A token waits for its fetch at most this long.
const INTERVAL: Duration = Duration::from_secs(5);
/// The same after a fetch that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The keys of one issuer.
#[derive(Debug)]
pub struct KeyCache {
    fetcher: Fetcher,
    issuer: String,
    /// Where the keys are, if that is configured.
    configured: Option<String>,
    state: RwLock<State>,
    /// Held by the task that fetches.
    fetching: Mutex<()>,
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    keys: Arc<KeySet>,
    url: Option<String>,
    /// When keys were last fetched.
    fetched: Option<Instant>,
    /// Until when they are good.
    good_until: Option<Instant>,
    /// When a fetch last failed.
    failed: Option<Instant>,
    /// How many fetches there were, and why the last one failed, if it did.
    attempts: u64,
    error: Option<Arc<KeyError>>,
}

/// What is known at one moment.
struct Snapshot {
    keys: Arc<KeySet>,
    generation: u64,
    attempts: u64,
    is_old: bool,
}

/// What to do while the minimum interval since the last fetch is not over.
#[derive(Clone, Copy, Debug)]
enum Interval {
    /// Wait until it is.
    Wait,
    /// Do without a fetch.
    Skip,
}

/// Why a key is not available.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The issuer has no such key.
    #[error("failed to parse token: key ID {0} not found in JWKS")]
    Unknown(String),
    /// The issuer does not say where its keys are.
    #[error("OIDC discovery failed: {0}")]
    Discovery(#[from] DiscoveryError),
    /// The keys cannot be fetched.
    #[error("failed to fetch JWKS: {0}")]
    Fetch(#[from] FetchError),
    /// What was fetched is not a set of keys.
    #[error("failed to fetch JWKS: {0}")]
    Document(#[from] KeySetError),
}

// === impl KeyCache ===

impl KeyCache {
    /// The keys of an issuer, at a URL or where the issuer says.
    pub fn new(fetcher: Fetcher, issuer: &str, jwks_url: Option<String>) -> Self {
        Self {
            fetcher,
            issuer: issuer.to_owned(),
            configured: jwks_url,
            state: RwLock::default(),
            fetching: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Changes whenever the issuer's keys do. What was verified before may have been signed with a key that was withdrawn.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The key that a token names, and the generation of the keys that it is one of.
    pub async fn find(self: &Arc<Self>, id: &str, algorithm: Algorithm) -> Result<(Key, u64), Arc<KeyError>> {
        let known = self.known().await;
        if let Some(key) = known.keys.find(id, algorithm) {
            if known.is_old {
                self.refresh_behind();
            }
            return Ok((key.clone(), known.generation));
        }
        self.refresh(known.attempts, Interval::Wait).await?;
        let known = self.known().await;
        let key = known.keys.find(id, algorithm).cloned();
        let key = key.ok_or_else(|| Arc::new(KeyError::Unknown(shown(id))))?;
        Ok((key, known.generation))
    }

    /// The key that has taken the place of one whose generation is given, and its generation. Nothing if there is none, or if the keys were
    /// fetched so short a time ago that they are not fetched again.
    pub async fn replaced(&self, id: &str, algorithm: Algorithm, generation: u64) -> Option<(Key, u64)> {
        let known = self.known().await;
        if known.generation == generation
            && let Err(error) = self.refresh(known.attempts, Interval::Skip).await
        {
            tracing::debug!(%error, "keys of the issuer not refreshed after a signature that is not valid");
        }
        let known = self.known().await;
        let key = known.keys.find(id, algorithm).filter(|_| known.generation != generation)?;
        Some((key.clone(), known.generation))
    }

    /// Fetches the keys again if they are old, while tokens are verified with those that there are.
    pub fn refresh_if_old(self: &Arc<Self>) {
        let is_old = self.state.try_read().is_ok_and(|state| state.fetched.is_some() && state.is_old());
        if is_old {
            self.refresh_behind();
        }
    }

    async fn known(&self) -> Snapshot {
        let state = self.state.read().await;
        // Under the lock, so that the generation is that of the keys.
        let generation = self.generation();
        Snapshot { keys: state.keys.clone(), generation, attempts: state.attempts, is_old: state.is_old() }
    }

    fn refresh_behind(self: &Arc<Self>) {
        if self.fetching.try_lock().is_err() {
            return;
        }
        let cache = self.clone();
        tokio::spawn(async move {
            let attempts = cache.state.read().await.attempts;
            if let Err(error) = cache.refresh(attempts, Interval::Wait).await {
                tracing::warn!(%error, "keys of the issuer not refreshed; the last ones stay in use");
            }
        });
    }

    /// Fetches the keys, unless that was tried since `seen`, by or for another token. Whether it failed holds for all that waited.
    async fn refresh(&self, seen: u64, interval: Interval) -> Result<(), Arc<KeyError>> {
        let _one_at_a_time = self.fetching.lock().await;
        let next = {
            let state = self.state.read().await;
            if state.attempts != seen {
                return state.error.clone().map_or(Ok(()), Err);
            }
            let after = [(state.fetched, INTERVAL), (state.failed, AFTER_FAILURE)];
            after.into_iter().filter_map(|(last, interval)| Some(last? + interval)).max()
        };
        match (next, interval) {
            (Some(next), Interval::Skip) if next > Instant::now() => return Ok(()),
            (Some(next), _) => tokio::time::sleep_until(next).await,
            (None, _) => {}
        }
        let fetched = self.fetch().await.map_err(Arc::new);
        let mut state = self.state.write().await;
        state.attempts += 1;
        state.error = fetched.as_ref().err().cloned();
        let now = Instant::now();
        match fetched {
            Ok((keys, url, good_for)) => {
                if *state.keys != keys {
                    self.generation.fetch_add(1, Ordering::AcqRel);
                    state.keys = Arc::new(keys);
                }
                state.url = Some(url);
                (state.fetched, state.good_until, state.failed) = (Some(now), Some(now + good_for), None);
                Ok(())
            }
            Err(error) => {
                // Where the keys are may have changed as well.
                state.url = None;
                state.failed = Some(now);
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<(KeySet, String, Duration), KeyError> {
        let known = self.state.read().await.url.clone();
        let url = match self.configured.clone().or(known) {
            Some(url) => url,
            None => discover(&self.fetcher, &self.issuer).await?.jwks_url,
        };
        let (document, headers) = self.fetcher.document(&url).await?;
        Ok((KeySet::of_json(&document)?, url, good_for(&headers)))
    }
}

#[cfg(test)]
impl KeyCache {
    /// Keys as if they had been fetched.
    pub(crate) async fn put(&self, keys: KeySet) {
        let (mut state, now) = (self.state.write().await, Instant::now());
        (state.keys, state.fetched, state.good_until) = (Arc::new(keys), Some(now), Some(now + LONGEST));
    }
}

// === impl State ===

impl State {
    fn is_old(&self) -> bool {
        self.good_until.is_none_or(|until| until <= Instant::now())
    }
}

/// For how long keys may be kept.
fn good_for(headers: &HeaderMap) -> Duration {
    let control = headers.get(CACHE_CONTROL).and_then(|control| control.to_str().ok()).unwrap_or_default();
    let mut directives = control.split(',').map(|directive| directive.trim().to_ascii_lowercase());
    let seconds = directives.find_map(|directive| directive.strip_prefix("max-age=")?.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default()).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_as_long_as_the_issuer_says_within_bounds() {
        for (control, kept) in [
            (None, SHORTEST),
            (Some("no-store"), SHORTEST),
            (Some("public, Max-Age=3600"), Duration::from_hours(1)),
            (Some("max-age=99999999999"), LONGEST),
            (Some("max-age=-1"), SHORTEST),
        ] {
            let headers = control.map(|control| (CACHE_CONTROL, control.parse().unwrap())).into_iter().collect();
            assert_eq!(good_for(&headers), kept, "{control:?}");
        }
    }
}
