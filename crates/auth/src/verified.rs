//! Tokens that were verified, by digest, so that a call costs a hash and not a signature check or a request to the issuer.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

use crate::Caller;

/// How many tokens are kept, at most.
const MOST: usize = 10_000;
/// What an entry takes beside its claims and its token, and what a value takes beside its text.
const ENTRY: usize = 256;
const VALUE: usize = 32;

/// What identifies a token without being one.
pub(crate) type Digest = [u8; 32];

/// How many bytes a cache may have. One entry may be as long as a header, or as the response of an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize(pub usize);

/// Verified tokens. Those that expire first make room for new ones.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    entries: Mutex<Entries>,
    most: CacheSize,
}

#[derive(Debug, Default)]
struct Entries {
    callers: HashMap<Digest, Entry>,
    /// By when they expire, and then by when they came.
    order: BTreeMap<(i64, u64), Digest>,
    bytes: usize,
    /// How many came.
    count: u64,
}

#[derive(Debug)]
struct Entry {
    caller: Caller,
    /// Until when it may be used, in seconds since 1970, and its number.
    place: (i64, u64),
    /// The generation of the keys that verified it.
    generation: u64,
    bytes: usize,
}

// === impl CacheSize ===

impl Default for CacheSize {
    fn default() -> Self {
        Self(8 * 1024 * 1024)
    }
}

// === impl Verified ===

impl Verified {
    pub(crate) fn within(most: CacheSize) -> Self {
        Self { entries: Mutex::default(), most }
    }

    /// The client of a token that was verified, if it still holds.
    pub(crate) fn get(&self, token: &Digest, generation: u64, now: i64) -> Option<Caller> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.callers.get(token)?;
        (entry.place.0 > now && entry.generation == generation).then(|| entry.caller.clone())
    }

    /// Keeps the client of a token that was verified at `now`.
    pub(crate) fn put(&self, token: Digest, caller: Caller, until: i64, generation: u64, now: i64) {
        let bytes = size(&caller);
        if until <= now || bytes > self.most.0 {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.count += 1;
        let place = (until, entries.count);
        entries.remove(&token);
        entries.bytes += bytes;
        entries.order.insert(place, token);
        entries.callers.insert(token, Entry { caller, place, generation, bytes });
        entries.make_room(now, self.most);
    }
}

// === impl Entries ===

impl Entries {
    fn remove(&mut self, token: &Digest) {
        if let Some(entry) = self.callers.remove(token) {
            self.order.remove(&entry.place);
            self.bytes -= entry.bytes;
        }
    }

    /// Drops what has expired, and more if there is too much.
    fn make_room(&mut self, now: i64, most: CacheSize) {
        while let Some((&(until, _), &token)) = self.order.first_key_value() {
            if until > now && self.callers.len() <= MOST && self.bytes <= most.0 {
                break;
            }
            self.remove(&token);
        }
    }
}

/// About how much memory a caller takes, in bytes.
fn size(caller: &Caller) -> usize {
    let token = caller.token.as_ref().map_or(0, |token| token.expose().len());
    let names = caller.identity.issuer.len() + caller.identity.subject.len() + caller.identity.name.len();
    ENTRY + token + names + size_of_claims(&caller.claims)
}

fn size_of_claims(claims: &Map<String, Value>) -> usize {
    let names = |members: &Map<String, Value>| members.keys().map(|name| VALUE + name.len()).sum::<usize>();
    let mut bytes = names(claims);
    let mut rest: Vec<&Value> = claims.values().collect();
    while let Some(value) = rest.pop() {
        bytes += VALUE;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(values) => rest.extend(values),
            Value::Object(members) => {
                bytes += names(members);
                rest.extend(members.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes
}

/// The digest of a token.
pub(crate) fn of_token(token: &str) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn length(verified: &Verified) -> (usize, usize, usize) {
        let entries = verified.entries.lock().unwrap();
        (entries.callers.len(), entries.order.len(), entries.bytes)
    }

    #[test]
    fn a_token_holds_until_it_expires_or_the_keys_change() {
        let verified = Verified::default();
        let token = of_token("a");
        verified.put(token, Caller::local("ada", 0), 100, 1, 0);
        assert!(verified.get(&token, 1, 99).is_some());
        assert!(verified.get(&token, 1, 100).is_none());
        assert!(verified.get(&token, 2, 99).is_none());
        assert!(verified.get(&of_token("b"), 1, 99).is_none());
        verified.put(token, Caller::local("ada", 0), 100, 2, 0);
        assert!(verified.get(&token, 2, 99).is_some());
        assert_eq!(length(&verified).0, length(&verified).1);
    }

    #[test]
    fn the_oldest_tokens_make_room_for_new_ones() {
        let verified = Verified::default();
        for number in 0..=MOST {
            let caller = Caller { claims: Arc::default(), ..Caller::anonymous(0) };
            verified.put(of_token(&number.to_string()), caller, 100, 0, 0);
        }
        assert!(verified.get(&of_token("0"), 0, 0).is_none());
        assert!(verified.get(&of_token("1"), 0, 0).is_some());
        assert_eq!(length(&verified).0, MOST);
    }

    #[test]
    fn tokens_that_expired_go_when_another_one_comes() {
        let verified = Verified::default();
        for number in 0..100 {
            verified.put(of_token(&number.to_string()), Caller::anonymous(0), 10 + number % 2, 0, 0);
        }
        verified.put(of_token("late"), Caller::anonymous(0), 100, 0, 10);
        assert_eq!(length(&verified).0, 51);
        verified.put(of_token("later"), Caller::anonymous(0), 100, 0, 50);
        assert_eq!(length(&verified).0, 2);
        verified.put(of_token("gone"), Caller::anonymous(0), 50, 0, 50);
        assert_eq!(length(&verified).0, 2);
    }

    #[test]
    fn long_claims_are_bounded_together() {
        let verified = Verified::default();
        let groups = json!((0..500).map(|number| format!("group-{number}")).collect::<Vec<_>>());
        for number in 0..1_000 {
            let claims = Map::from_iter([("groups".to_owned(), groups.clone())]);
            let caller = Caller { claims: Arc::new(claims), ..Caller::anonymous(0) };
            verified.put(of_token(&number.to_string()), caller, 100, 0, 0);
        }
        let (callers, places, bytes) = length(&verified);
        assert!(bytes <= verified.most.0 && (100..1_000).contains(&callers) && callers == places, "{callers} {bytes}");
        assert!(verified.get(&of_token("999"), 0, 0).is_some() && verified.get(&of_token("0"), 0, 0).is_none());
        let huge = Map::from_iter([("a".to_owned(), json!("x".repeat(verified.most.0)))]);
        verified.put(of_token("huge"), Caller { claims: Arc::new(huge), ..Caller::anonymous(0) }, 100, 0, 0);
        assert!(verified.get(&of_token("huge"), 0, 0).is_none() && length(&verified).0 == callers);
    }
}
