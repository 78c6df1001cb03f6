//! Tokens that were verified, by digest, so that a call costs a hash and not a signature check or a request to the issuer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};

use crate::Caller;

/// How many tokens are kept, at most. The ones that were added first go first.
const MOST: usize = 10_000;

/// What identifies a token without being one.
pub(crate) type Digest = [u8; 32];

/// Verified tokens.
#[derive(Debug, Default)]
pub(crate) struct Verified(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    callers: HashMap<Digest, Entry>,
    order: VecDeque<Digest>,
}

#[derive(Debug)]
struct Entry {
    caller: Caller,
    /// Until when it may be used, in seconds since 1970.
    until: i64,
    /// The generation of the keys that verified it.
    generation: u64,
}

// === impl Verified ===

impl Verified {
    /// The client of a token that was verified, if it still holds.
    pub(crate) fn get(&self, token: &Digest, generation: u64, now: i64) -> Option<Caller> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.callers.get(token)?;
        (entry.until > now && entry.generation == generation).then(|| entry.caller.clone())
    }

    /// Keeps the client of a token that was verified.
    pub(crate) fn put(&self, token: Digest, caller: Caller, until: i64, generation: u64) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.callers.insert(token, Entry { caller, until, generation }).is_none() {
            entries.order.push_back(token);
        }
        while entries.order.len() > MOST {
            if let Some(oldest) = entries.order.pop_front() {
                entries.callers.remove(&oldest);
            }
        }
    }
}

/// The digest of a token.
pub(crate) fn of_token(token: &str) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_holds_until_it_expires_or_the_keys_change() {
        let verified = Verified::default();
        let token = of_token("a");
        verified.put(token, Caller::local("ada", 0), 100, 1);
        assert!(verified.get(&token, 1, 99).is_some());
        assert!(verified.get(&token, 1, 100).is_none());
        assert!(verified.get(&token, 2, 99).is_none());
        assert!(verified.get(&of_token("b"), 1, 99).is_none());
        verified.put(token, Caller::local("ada", 0), 100, 2);
        assert!(verified.get(&token, 2, 99).is_some());
    }

    #[test]
    fn the_oldest_tokens_make_room_for_new_ones() {
        let verified = Verified::default();
        for number in 0..=MOST {
            verified.put(of_token(&number.to_string()), Caller::anonymous(0), 100, 0);
        }
        assert!(verified.get(&of_token("0"), 0, 0).is_none());
        assert!(verified.get(&of_token("1"), 0, 0).is_some());
        assert_eq!(verified.0.lock().unwrap().callers.len(), MOST);
    }
}
