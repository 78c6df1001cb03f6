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

#[test]
fn a_credential_expires_with_what_it_was_obtained_for() {
    for (expires, latest, expected) in [
        (Some(100), Some(50), Some(50)),
        (Some(100), Some(200), Some(100)),
        (Some(100), None, Some(100)),
        (None, Some(10 + UNKNOWN_LIFETIME - 1), Some(10 + UNKNOWN_LIFETIME - 1)),
        (None, Some(1_000), None),
        (None, None, None),
        (Some(100), Some(-1), Some(-1)),
    ] {
        let mut issued = Issued { credential: 0_usize, expires };
        issued.expire_by(latest, 10);
        assert_eq!(issued.expires, expected, "{expires:?} {latest:?}");
    }
}

#[tokio::test]
async fn a_credential_is_used_until_shortly_before_it_expires() {
    let (cache, issuer) = (CredentialCache::default(), Issuer::default());
    assert_eq!(get(&cache, &issuer, "ada", 0, Some(100)).await, 1);
    assert_eq!(get(&cache, &issuer, "ada", 100 - EARLY - 1, Some(0)).await, 1);
    assert_eq!(get(&cache, &issuer, "bob", 0, None).await, 2, "each has their own");
    assert_eq!(cache.known(&of_token("bob"), UNKNOWN_LIFETIME - 1), Some(2));
    assert_eq!(cache.known(&of_token("bob"), UNKNOWN_LIFETIME), None);
    assert_eq!(get(&cache, &issuer, "ada", 100 - EARLY, Some(200)).await, 3);
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
    // A later request obtains one again.
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
    assert!(bytes <= CacheSize::default().0 && (400..1_000).contains(&kept) && kept == places, "{kept} {bytes}");
    assert!(cache.known(&of_token("0"), 0).is_some() && cache.known(&of_token("998"), 0).is_none());
    assert!(cache.known(&of_token("999"), 0).is_some(), "the newest is used, though it expires first");
    put(&cache, "huge", CacheSize::default().0, 1_000_000, 0).await;
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

/// The place of one that is being obtained expires before all of them.
#[tokio::test]
async fn a_cache_full_of_long_lived_credentials_takes_a_new_one_which_is_obtained_once() {
    let (cache, issuer) = (CredentialCache::default(), Issuer::default());
    for number in 0..MOST {
        get(&cache, &issuer, &number.to_string(), 0, Some(3600)).await;
    }
    let (requests, gate) = (AtomicUsize::new(0), Semaphore::new(0));
    let one = async || {
        let obtain = async {
            requests.fetch_add(1, Ordering::Relaxed);
            let _passed = gate.acquire().await;
            Ok::<_, &str>(Issued { credential: 7, expires: Some(3600) })
        };
        cache.get(of_token("new"), 1, obtain, || "shared").await
    };
    let others = async {
        tokio::task::yield_now().await;
        // Others that come meanwhile do not take its place.
        get(&cache, &issuer, "other", 1, Some(3600)).await;
        gate.add_permits(10);
    };
    let (first, second, ()) = tokio::join!(one(), one(), others);
    assert_eq!((first, second, requests.load(Ordering::Relaxed)), (Ok(7), Ok(7), 1));
    assert_eq!(cache.known(&of_token("new"), 1), Some(7));
    assert!(cache.known(&of_token("other"), 1).is_some());
    assert_eq!((length(&cache).0, cache.known(&of_token("0"), 1)), (MOST, None), "the oldest made room");
}
