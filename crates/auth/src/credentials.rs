//! Credentials for servers, by whom and what they are for: obtained once by one request, used until shortly before they expire.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::aws::AwsCredentials;
use crate::caller::Secret;
use crate::verified::Digest;

/// How many credentials are kept, at most.
const MOST: usize = 10_000;
/// How much memory they take together, at most, in bytes. One may be as long as the response of its issuer allows.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// What the place of a credential takes beside the credential.
const ENTRY: usize = 512;
/// How long the place of a credential that is being obtained is kept, in seconds.
const OBTAINING: i64 = 60;
/// How long before it expires a credential is obtained anew, in seconds; at most half of its lifetime.
const EARLY: i64 = 30;
/// How long a credential is used whose issuer does not say when it expires, in seconds.
const UNKNOWN_LIFETIME: i64 = 60;

/// Credentials by the digest of what they were obtained for. What has expired is dropped, and those that expire first make room for new
/// ones.
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

/// What a cache keeps.
pub trait Credential: Clone + PartialEq {
    /// About how much memory it takes, in bytes.
    fn size(&self) -> usize;
}

#[derive(Debug)]
struct Slots<T> {
    by_key: HashMap<Digest, Entry<T>>,
    /// By when they expire, and then by when they came.
    order: BTreeMap<(i64, u64), Digest>,
    bytes: usize,
    /// How many came.
    count: u64,
}

#[derive(Debug)]
struct Entry<T> {
    slot: Arc<Slot<T>>,
    /// Until when it is kept, in seconds since 1970, and its number.
    place: (i64, u64),
    bytes: usize,
}

/// The place of one credential. It stays while credentials come and go.
#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    /// Held by whoever obtains the credential; the others wait.
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

// === impl Credential ===

impl Credential for Secret {
    fn size(&self) -> usize {
        self.expose().len()
    }
}

impl Credential for AwsCredentials {
    fn size(&self) -> usize {
        let secrets = self.secret_access_key.expose().len().saturating_add(self.session_token.expose().len());
        self.access_key_id.len().saturating_add(secrets)
    }
}

// === impl CredentialCache ===

impl<T> Default for CredentialCache<T> {
    fn default() -> Self {
        Self(Mutex::new(Slots { by_key: HashMap::new(), order: BTreeMap::new(), bytes: 0, count: 0 }))
    }
}

impl<T: Credential> CredentialCache<T> {
    /// The credential for a key that is known and still good at `now`.
    pub fn known(&self, key: &Digest, now: i64) -> Option<T> {
        self.lock().by_key.get(key)?.slot.good(now)
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
        let slot = self.slot(key, now);
        let failures = slot.lock().failures;
        let _obtaining = slot.obtaining.lock().await;
        if let Some(credential) = slot.good(now) {
            return Ok(credential);
        }
        if slot.lock().failures != failures {
            return Err(failed());
        }
        match obtain.await {
            Ok(issued) => {
                let bytes = issued.credential.size();
                let (credential, until) = slot.put(issued, now);
                self.lock().keep(key, &slot, (until, ENTRY.saturating_add(bytes)), now);
                Ok(credential)
            }
            Err(error) => {
                slot.lock().failures += 1;
                Err(error)
            }
        }
    }

    /// The server refused a credential: the next request obtains another one. What was obtained for that reason and is refused as well
    /// is kept until it expires, or every request of a client without rights would reach the issuer.
    pub fn refused(&self, key: &Digest, credential: &T) {
        let Some(slot) = self.lock().by_key.get(key).map(|entry| entry.slot.clone()) else { return };
        let mut state = slot.lock();
        if state.kept.as_ref().is_some_and(|kept| kept.credential == *credential && !kept.after_refusal) {
            state.kept = None;
            state.was_refused = true;
        }
    }

    fn slot(&self, key: Digest, now: i64) -> Arc<Slot<T>> {
        let mut slots = self.lock();
        let until = now.saturating_add(OBTAINING);
        if let Some(entry) = slots.by_key.get(&key) {
            let (slot, bytes) = (entry.slot.clone(), entry.bytes);
            // Others that ask for the same one must find it while it is obtained anew.
            if entry.place.0 <= now {
                slots.put(key, slot.clone(), until, bytes);
            }
            return slot;
        }
        let state = Mutex::new(State { kept: None, failures: 0, was_refused: false });
        let slot = Arc::new(Slot { state, obtaining: tokio::sync::Mutex::default() });
        slots.put(key, slot.clone(), until, ENTRY);
        slots.make_room(now);
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slots ===

impl<T> Slots<T> {
    /// Keeps what was obtained for a slot, unless the slot had to make room meanwhile.
    fn keep(&mut self, key: Digest, slot: &Arc<Slot<T>>, (until, bytes): (i64, usize), now: i64) {
        if !self.by_key.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.slot, slot)) {
            return;
        }
        if bytes > MOST_BYTES {
            self.remove(&key);
        } else {
            self.put(key, slot.clone(), until, bytes);
            self.make_room(now);
        }
    }

    fn put(&mut self, key: Digest, slot: Arc<Slot<T>>, until: i64, bytes: usize) {
        self.remove(&key);
        self.count += 1;
        let place = (until, self.count);
        self.bytes = self.bytes.saturating_add(bytes);
        self.order.insert(place, key);
        self.by_key.insert(key, Entry { slot, place, bytes });
    }

    fn remove(&mut self, key: &Digest) {
        if let Some(entry) = self.by_key.remove(key) {
            self.order.remove(&entry.place);
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }

    /// Drops what has expired, and more if there is too much.
    fn make_room(&mut self, now: i64) {
        while let Some((&(until, _), &key)) = self.order.first_key_value() {
            if until > now && self.by_key.len() <= MOST && self.bytes <= MOST_BYTES {
                break;
            }
            self.remove(&key);
        }
    }
}

// === impl Slot ===

impl<T: Clone> Slot<T> {
    fn good(&self, now: i64) -> Option<T> {
        self.lock().kept.as_ref().filter(|kept| kept.until > now).map(|kept| kept.credential.clone())
    }

    /// Keeps a credential, and returns it with the time until which it is used.
    fn put(&self, issued: Issued<T>, now: i64) -> (T, i64) {
        let mut state = self.lock();
        let until = issued.expires.map_or(now.saturating_add(UNKNOWN_LIFETIME), |expires| {
            let lifetime = expires.saturating_sub(now).max(0);
            expires.saturating_sub(EARLY.min(lifetime / 2))
        });
        let after_refusal = std::mem::take(&mut state.was_refused);
        state.kept = Some(Kept { credential: issued.credential.clone(), until, after_refusal });
        (issued.credential, until)
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

    impl Credential for usize {
        fn size(&self) -> usize {
            0
        }
    }

    /// A token of any length.
    impl Credential for String {
        fn size(&self) -> usize {
            self.len()
        }
    }

    fn length<T>(cache: &CredentialCache<T>) -> (usize, usize, usize) {
        let slots = cache.0.lock().unwrap();
        (slots.by_key.len(), slots.order.len(), slots.bytes)
    }

    async fn put(cache: &CredentialCache<String>, key: &str, bytes: usize, expires: i64, now: i64) {
        let issued = Issued { credential: "x".repeat(bytes), expires: Some(expires) };
        cache.get(of_token(key), now, async { Ok::<_, &str>(issued) }, || "failed").await.unwrap();
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
        // Whoever comes later asks again.
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
    async fn credentials_that_expired_go_when_another_one_comes() {
        let cache = CredentialCache::default();
        for number in 0..100 {
            put(&cache, &number.to_string(), 100, 100 + number % 2 * 100, 0).await;
        }
        assert_eq!(length(&cache), (100, 100, 100 * (ENTRY + 100)));
        put(&cache, "late", 100, 1_000, 100).await;
        assert_eq!(length(&cache), (51, 51, 51 * (ENTRY + 100)));
        put(&cache, "later", 100, 1_000, 200).await;
        assert_eq!(length(&cache), (2, 2, 2 * (ENTRY + 100)));
        // One that could not be obtained takes no room for long.
        let failed = cache.get(of_token("none"), 200, async { Err("issuer") }, || "failed").await;
        assert_eq!((failed, length(&cache).0), (Err("issuer"), 3));
        put(&cache, "last", 100, 1_000, 200 + OBTAINING).await;
        assert_eq!(length(&cache).0, 3);
    }

    #[tokio::test]
    async fn long_credentials_are_bounded_together_and_those_that_expire_first_go_first() {
        let cache = CredentialCache::default();
        for number in 0..1_000 {
            put(&cache, &number.to_string(), 16 * 1024, 10_000 - number, 0).await;
        }
        let (kept, places, bytes) = length(&cache);
        assert!(bytes <= MOST_BYTES && (400..1_000).contains(&kept) && kept == places, "{kept} {bytes}");
        assert!(cache.known(&of_token("0"), 0).is_some() && cache.known(&of_token("999"), 0).is_none());
        put(&cache, "huge", MOST_BYTES, 1_000_000, 0).await;
        assert!(cache.known(&of_token("huge"), 0).is_none() && cache.known(&of_token("0"), 0).is_some());
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
