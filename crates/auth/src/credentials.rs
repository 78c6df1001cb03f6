//! Credentials for servers, by whom and what they are for: obtained once by one request, used until shortly before they expire.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::aws::AwsCredentials;
use crate::caller::Secret;
use crate::verified::{CacheSize, Digest};

/// How many credentials are kept, at most.
const MOST: usize = 10_000;
/// What the place of a credential takes beside the credential.
const ENTRY: usize = 512;
/// How long the place of a credential that is being obtained is kept, in seconds.
const OBTAINING: i64 = 60;
/// How long before it expires a credential is obtained anew, in seconds; at most half of its lifetime.
const EARLY: i64 = 30;
/// How long a credential is used whose issuer does not say when it expires, in seconds.
const UNKNOWN_LIFETIME: i64 = 60;

/// Credentials by the digest of what they were obtained for. What has expired is dropped, and those that expire first make room for new
/// ones. The place of one that is being obtained is never dropped: those that ask for it then would each obtain it.
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
    /// How much memory they take together, at most. One may be as long as the response of its issuer allows.
    most: CacheSize,
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

// === impl Issued ===

impl<T> Issued<T> {
    /// Lets a credential expire by a time, if there is one: it must not outlive what it was obtained for.
    pub(crate) fn expire_by(&mut self, latest: Option<i64>, now: i64) {
        let Some(latest) = latest else { return };
        let expires = self.expires.unwrap_or(now.saturating_add(UNKNOWN_LIFETIME));
        if latest < expires {
            self.expires = Some(latest);
        }
    }
}

// === impl CredentialCache ===

impl<T> Default for CredentialCache<T> {
    fn default() -> Self {
        Self::within(CacheSize::default())
    }
}

impl<T> CredentialCache<T> {
    /// One of so many bytes.
    pub fn within(most: CacheSize) -> Self {
        Self(Mutex::new(Slots { most, by_key: HashMap::new(), order: BTreeMap::new(), bytes: 0, count: 0 }))
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
        if bytes > self.most.0 {
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

    /// Drops what has expired, and more if there is too much, but nothing that is in use.
    fn make_room(&mut self, now: i64) {
        let (mut length, mut bytes, mut dropped) = (self.by_key.len(), self.bytes, Vec::new());
        for (&(until, _), &key) in &self.order {
            if until > now && length <= MOST && bytes <= self.most.0 {
                break;
            }
            // A request that obtains the credential, or waits for it, holds the slot.
            let unused = self.by_key.get(&key).filter(|entry| Arc::strong_count(&entry.slot) == 1);
            if let Some(entry) = unused {
                length -= 1;
                bytes = bytes.saturating_sub(entry.bytes);
                dropped.push(key);
            }
        }
        for key in dropped {
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
mod tests;
