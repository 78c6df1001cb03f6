//! Opaque tokens on their way to their issuer: what a client can cause there is bounded.
//!
//! Requests with one token share one introspection. What was refused is refused without one for some seconds, and only so many run at the
//! same time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::AuthError;
use crate::claims::{ClaimError, Claims};
use crate::introspection::{Introspection, IntrospectionError};
use crate::verified::Digest;

/// How long a token stays refused, in seconds.
const REFUSED: i64 = 8;
/// How long a token is not introspected again after that failed, in seconds.
const FAILED: i64 = 1;
/// How many tokens are remembered for that, at most. The ones that were added first go first.
const MOST: usize = 10_000;
/// How many introspections run at the same time, and how long a request waits for one of them to end.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);

/// Introspects opaque tokens.
#[derive(Debug)]
pub(crate) struct OpaqueTokens {
    introspection: Introspection,
    state: Mutex<State>,
    running: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    refused: HashMap<Digest, Refused>,
    order: VecDeque<Digest>,
    turns: HashMap<Digest, Weak<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct Refused {
    why: Refusal,
    /// Until when, in seconds since 1970.
    until: i64,
}

/// Why a token was refused.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The issuer says so.
    Inactive,
    /// Its claims are not as expected.
    Claims(ClaimError),
    /// The issuer failed.
    Failed,
}

// === impl OpaqueTokens ===

impl OpaqueTokens {
    pub(crate) fn new(introspection: Introspection) -> Self {
        Self { introspection, state: Mutex::default(), running: Semaphore::new(AT_ONCE) }
    }

    /// Waits for the turn to introspect a token. Until it is over, no other request introspects it.
    pub(crate) async fn turn(&self, token: Digest) -> OwnedMutexGuard<()> {
        let turn = {
            let mut state = self.lock();
            let turn = state.turns.get(&token).and_then(Weak::upgrade).unwrap_or_default();
            if state.turns.len() >= MOST {
                state.turns.retain(|_, turn| turn.strong_count() > 0);
            }
            state.turns.insert(token, Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }

    /// The claims that the issuer reports for a token, at `now`.
    pub(crate) async fn introspect(&self, digest: &Digest, token: &str, now: i64) -> Result<Claims, AuthError> {
        if let Some(refused) = self.lock().refused.get(digest).filter(|refused| refused.until > now) {
            return Err(refused.why.clone().into());
        }
        let room = tokio::time::timeout(PATIENCE, self.running.acquire()).await;
        let Ok(Ok(_running)) = room else { return Err(AuthError::Saturated) };
        let claims = self.introspection.introspect(token, now).await;
        claims.map_err(|error| {
            let why = if matches!(error, IntrospectionError::Inactive) { Refusal::Inactive } else { Refusal::Failed };
            self.refuse(*digest, why, now);
            error.into()
        })
    }

    /// Refuses a token for some seconds.
    pub(crate) fn refuse(&self, token: Digest, why: Refusal, now: i64) {
        let until = now.saturating_add(if matches!(why, Refusal::Failed) { FAILED } else { REFUSED });
        let mut state = self.lock();
        if state.refused.insert(token, Refused { why, until }).is_none() {
            state.order.push_back(token);
        }
        while state.order.len() > MOST {
            if let Some(oldest) = state.order.pop_front() {
                state.refused.remove(&oldest);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Refusal ===

impl From<Refusal> for AuthError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Inactive => IntrospectionError::Inactive.into(),
            Refusal::Claims(error) => error.into(),
            Refusal::Failed => IntrospectionError::Recent.into(),
        }
    }
}
