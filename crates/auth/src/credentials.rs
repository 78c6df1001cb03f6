//! Credentials for servers, by whom and what they are for: obtained once by one request, used until shortly before they expire.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::verified::Digest;

/// How many credentials are kept, at most. The ones that were added first go first.
const MOST: usize = 10_000;
/// How long before it expires a credential is obtained anew, in seconds; at most half of its lifetime.
const EARLY: i64 = 30;
/// How long a credential is used whose issuer does not say when it expires, in seconds.
const UNKNOWN_LIFETIME: i64 = 60;

/// Credentials by the digest of what they were obtained for.
#[derive(Debug)]
pub struct CredentialCache<T>(Mutex<Slots<T>>);

/// A credential as its issuer returned it.
#[derive(Clone, Debug)]
pub struct Issued<T> {
    /// The credential.
    pub credential: T,
    /// When it expires, in seconds since 1970, if that is known.
    pub expires: Option<i64>,
}

#[derive(Debug)]
struct Slots<T> {
    by_key: HashMap<Digest, Arc<Slot<T>>>,
    order: VecDeque<Digest>,
}

/// The place of one credential. It stays while credentials come and go.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    /// Held by the caller that obtains the credential; the others wait.
    obtaining: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T> {
    kept: Option<Kept<T>>,
    /// How many attempts to obtain it have failed.
    failures: u64,
    /// Whether the server refused the credential before.
    was_refused: bool,
}

#[derive(Debug)]
struct Kept<T> {
    credential: T,
    /// Until when it is used, in seconds since 1970.
    until: i64,
    /// Whether it replaced one that the server had refused.
    after_refusal: bool,
}

// === impl CredentialCache ===

impl<T> Default for CredentialCache<T> {
    fn default() -> Self {
        Self(Mutex::new(Slots { by_key: HashMap::new(), order: VecDeque::new() }))
    }
}

impl<T: Clone + PartialEq> CredentialCache<T> {
    /// The credential for a key that is known and still good at `now`.
    pub fn known(&self, key: &Digest, now: i64) -> Option<T> {
        self.lock().by_key.get(key)?.good(now)
    }

    /// The credential for a key, obtained unless it is known. Of many who ask at the same time one obtains it. If that fails, so do
    /// those who waited for it, with `failed`: asking again one after the other would take as many times as long.
    pub async fn get<E>(
        &self,
        key: Digest,
        now: i64,
        obtain: impl Future<Output = Result<Issued<T>, E>>,
        failed: impl FnOnce() -> E,
    ) -> Result<T, E> {
        let slot = self.slot(key);
        let failures = slot.lock().failures;
        let _obtaining = slot.obtaining.lock().await;
        if let Some(credential) = slot.good(now) {
            return Ok(credential);
        }
        if slot.lock().failures != failures {
            return Err(failed());
        }
        match obtain.await {
            Ok(issued) => Ok(slot.put(issued, now)),
            Err(error) => {
                slot.lock().failures += 1;
                Err(error)
            }
        }
    }

    /// The server refused a credential: the next request obtains another one. What was obtained for that reason and is refused as well
    /// is kept until it expires, or every request of a client without rights would reach the issuer.
    pub fn refused(&self, key: &Digest, credential: &T) {
        let Some(slot) = self.lock().by_key.get(key).cloned() else { return };
        let mut state = slot.lock();
        if state.kept.as_ref().is_some_and(|kept| kept.credential == *credential && !kept.after_refusal) {
            state.kept = None;
            state.was_refused = true;
        }
    }

    fn slot(&self, key: Digest) -> Arc<Slot<T>> {
        let mut slots = self.lock();
        if let Some(slot) = slots.by_key.get(&key) {
            return slot.clone();
        }
        let state = Mutex::new(State { kept: None, failures: 0, was_refused: false });
        let slot = Arc::new(Slot { state, obtaining: tokio::sync::Mutex::default() });
        slots.by_key.insert(key, slot.clone());
        slots.order.push_back(key);
        while slots.order.len() > MOST {
            if let Some(oldest) = slots.order.pop_front() {
                slots.by_key.remove(&oldest);
            }
        }
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl<T: Clone> Slot<T> {
    fn good(&self, now: i64) -> Option<T> {
        self.lock().kept.as_ref().filter(|kept| kept.until > now).map(|kept| kept.credential.clone())
    }

    fn put(&self, issued: Issued<T>, now: i64) -> T {
        let mut state = self.lock();
        let until = issued.expires.map_or(now.saturating_add(UNKNOWN_LIFETIME), |expires| {
            let lifetime = expires.saturating_sub(now).max(0);
            expires.saturating_sub(EARLY.min(lifetime / 2))
        });
        let after_refusal = std::mem::take(&mut state.was_refused);
        state.kept = Some(Kept { credential: issued.credential.clone(), until, after_refusal });
        issued.credential
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::verified::of_token;

    #[derive(Default)]
    struct Issuer {
        requests: AtomicUsize,
    }

    impl Issuer {
        fn issue(&self, expires: Option<i64>) -> Issued<usize> {
            Issued { credential: self.requests.fetch_add(1, Ordering::Relaxed) + 1, expires }
        }
    }

    async fn get(cache: &CredentialCache<usize>, issuer: &Issuer, key: &str, now: i64, expires: Option<i64>) -> usize {
        cache.get(of_token(key), now, async { Ok::<_, &str>(issuer.issue(expires)) }, || "failed").await.unwrap()
    }

    #[tokio::test]
    async fn a_credential_is_used_until_shortly_before_it_expires() {
        let (cache, issuer) = (CredentialCache::default(), Issuer::default());
        assert_eq!(get(&cache, &issuer, "ada", 0, Some(100)).await, 1);
        assert_eq!(get(&cache, &issuer, "ada", 100 - EARLY - 1, Some(0)).await, 1);
        assert_eq!(get(&cache, &issuer, "bob", 0, None).await, 2, "each has their own");
        assert_eq!(get(&cache, &issuer, "ada", 100 - EARLY, Some(200)).await, 3);
        assert_eq!(cache.known(&of_token("bob"), UNKNOWN_LIFETIME - 1), Some(2));
        assert_eq!(cache.known(&of_token("bob"), UNKNOWN_LIFETIME), None);
    }

    /// Otherwise every request would obtain one.
    #[tokio::test]
    async fn a_credential_that_expires_soon_is_used_for_half_of_its_lifetime() {
        let (cache, issuer) = (CredentialCache::default(), Issuer::default());
        assert_eq!(get(&cache, &issuer, "ada", 100, Some(120)).await, 1);
        assert_eq!(get(&cache, &issuer, "ada", 109, Some(120)).await, 1);
        assert_eq!(get(&cache, &issuer, "ada", 110, Some(120)).await, 2);
    }

    #[tokio::test]
    async fn a_refused_credential_is_obtained_again_once() {
        let (cache, issuer) = (CredentialCache::default(), Issuer::default());
        let key = of_token("ada");
        assert_eq!(get(&cache, &issuer, "ada", 0, Some(1000)).await, 1);
        cache.refused(&key, &7);
        assert_eq!(get(&cache, &issuer, "ada", 0, Some(1000)).await, 1, "another one was refused");
        cache.refused(&key, &1);
        assert_eq!(get(&cache, &issuer, "ada", 0, Some(1000)).await, 2);
        cache.refused(&key, &2);
        assert_eq!(get(&cache, &issuer, "ada", 0, Some(1000)).await, 2);
        // Once it expired, the same begins anew.
        assert_eq!(get(&cache, &issuer, "ada", 1000, Some(2000)).await, 3);
        cache.refused(&key, &3);
        assert_eq!(get(&cache, &issuer, "ada", 1000, Some(2000)).await, 4);
    }

    #[tokio::test]
    async fn many_who_ask_at_once_cause_one_request_and_share_its_failure() {
        let cache = CredentialCache::<usize>::default();
        let (requests, gate) = (AtomicUsize::new(0), Semaphore::new(0));
        let one = async || {
            let obtain = async {
                requests.fetch_add(1, Ordering::Relaxed);
                let _passed = gate.acquire().await;
                Err("issuer")
            };
            cache.get(of_token("ada"), 0, obtain, || "shared").await
        };
        let all = async { tokio::join!(one(), one(), one()) };
        let open = async {
            tokio::task::yield_now().await;
            gate.add_permits(10);
        };
        let ((first, second, third), ()) = tokio::join!(all, open);
        assert_eq!((first, second, third), (Err("issuer"), Err("shared"), Err("shared")));
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        // A later caller asks again.
        assert_eq!(one().await, Err("issuer"));
    }

    #[tokio::test]
    async fn who_waits_obtains_it_when_the_one_before_gave_up() {
        let (cache, issuer) = (CredentialCache::default(), Issuer::default());
        let never = cache.get(of_token("ada"), 0, std::future::pending::<Result<Issued<usize>, &str>>(), || "");
        let gone = tokio::time::timeout(std::time::Duration::from_millis(1), never).await;
        assert!(gone.is_err());
        assert_eq!(get(&cache, &issuer, "ada", 0, None).await, 1);
    }

    #[tokio::test]
    async fn the_oldest_credentials_make_room_for_new_ones() {
        let (cache, issuer) = (CredentialCache::default(), Issuer::default());
        for number in 0..=MOST {
            get(&cache, &issuer, &number.to_string(), 0, None).await;
        }
        assert_eq!(cache.known(&of_token("0"), 0), None);
        assert_eq!(cache.known(&of_token("1"), 0), Some(2));
    }
}
