//! The guarantees of [`Buckets`], tested against both stores, and what becomes of them when Redis is not there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use skep_store::StoreError;
use skep_store::buckets::{Bucket, Buckets, Limit, MemoryBuckets, RateDecision, RedisBuckets};
use skep_testkit::{Seen, eventually};

use crate::server::RedisServer;

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any test.
const LONG: Duration = Duration::from_hours(24);

fn bucket(key: &str, tokens: u32, period: Duration) -> Bucket {
    Bucket { key: format!("thv:rl:{{ns:srv}}:{key}"), limit: Limit::new(tokens, period).unwrap() }
}

/// All guarantees. The store is empty.
async fn holds(buckets: Buckets) -> Result<()> {
    let buckets = Arc::new(buckets);
    a_bucket_starts_full_and_empties(&buckets).await?;
    all_buckets_give_or_none(&buckets).await?;
    a_bucket_fills_evenly(&buckets).await?;
    a_burst_is_not_larger_than_the_bucket(&buckets).await?;
    concurrent_calls_share_the_tokens(&buckets).await?;
    keys_are_any_text(&buckets).await
}

async fn a_bucket_starts_full_and_empties(buckets: &Buckets) -> Result<()> {
    let three = [bucket("shared", 3, LONG)];
    for _ in 0..3 {
        assert_eq!(buckets.take(&three).await?, RateDecision::Granted);
    }
    for _ in 0..3 {
        assert_eq!(buckets.take(&three).await?, RateDecision::Refused(0));
    }
    assert_eq!(buckets.take(&[bucket("other", 1, LONG)]).await?, RateDecision::Granted, "buckets do not share tokens");
    assert_eq!(buckets.take(&[]).await?, RateDecision::Granted);
    Ok(())
}

async fn all_buckets_give_or_none(buckets: &Buckets) -> Result<()> {
    let (wide, narrow, last) = (bucket("wide", 3, LONG), bucket("narrow", 1, LONG), bucket("last", 1, LONG));
    let both = [wide.clone(), narrow.clone()];
    assert_eq!(buckets.take(&both).await?, RateDecision::Granted);
    for _ in 0..5 {
        assert_eq!(buckets.take(&both).await?, RateDecision::Refused(1));
    }
    // The refusals took nothing of the wide one, nor of one behind the empty one.
    assert_eq!(buckets.take(&[wide.clone(), narrow.clone(), last.clone()]).await?, RateDecision::Refused(1));
    assert_eq!(buckets.take(std::slice::from_ref(&last)).await?, RateDecision::Granted);
    for _ in 0..2 {
        assert_eq!(buckets.take(std::slice::from_ref(&wide)).await?, RateDecision::Granted);
    }
    assert_eq!(buckets.take(&[wide, narrow]).await?, RateDecision::Refused(0), "the first empty one is named");
    Ok(())
}

async fn a_bucket_fills_evenly(buckets: &Buckets) -> Result<()> {
    let one = [bucket("quick", 2, Duration::from_millis(600))];
    let started = Instant::now();
    assert_eq!((buckets.take(&one).await?, buckets.take(&one).await?), (RateDecision::Granted, RateDecision::Granted));
    let granted = || async {
        Ok(match buckets.take(&one).await? {
            RateDecision::Granted => Seen::Yes(()),
            RateDecision::Refused(_) => Seen::NotYet("it is empty".to_owned()),
        })
    };
    eventually("a token", PATIENCE, granted).await?;
    assert!(
        started.elapsed() >= Duration::from_millis(290),
        "a token takes half of the period: {:?}",
        started.elapsed()
    );
    Ok(())
}

async fn a_burst_is_not_larger_than_the_bucket(buckets: &Buckets) -> Result<()> {
    // It fills at once, and still holds no more than two tokens.
    let quick = [bucket("burst", 2, Duration::from_micros(1))];
    assert_eq!(buckets.take(&quick).await?, RateDecision::Granted);
    let slow = [bucket("burst", 2, LONG)];
    let mut granted = 0;
    while buckets.take(&slow).await? == RateDecision::Granted {
        granted += 1;
    }
    assert!(granted <= 2, "{granted}");
    Ok(())
}

async fn concurrent_calls_share_the_tokens(buckets: &Arc<Buckets>) -> Result<()> {
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let buckets = buckets.clone();
            tokio::spawn(async move { buckets.take(&[bucket("crowd", 7, LONG)]).await })
        })
        .collect();
    let mut granted = 0;
    for call in calls {
        granted += usize::from(call.await?? == RateDecision::Granted);
    }
    assert_eq!(granted, 7);
    Ok(())
}

async fn keys_are_any_text(buckets: &Buckets) -> Result<()> {
    for key in ["user:ada:lovelace", "user:}{", "user: \u{1f41d}\n", "user:"] {
        let one = [bucket(key, 1, LONG)];
        assert_eq!(
            (buckets.take(&one).await?, buckets.take(&one).await?),
            (RateDecision::Granted, RateDecision::Refused(0)),
            "{key:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn memory_holds_the_contract() -> Result<()> {
    holds(Buckets::Memory(MemoryBuckets::default())).await
}

#[tokio::test]
async fn redis_holds_the_contract() -> Result<()> {
    let server = RedisServer::start().await?;
    holds(Buckets::Redis(RedisBuckets::new(&server.options)?)).await
}

#[tokio::test]
async fn redis_holds_the_contract_over_tls_with_a_user() -> Result<()> {
    let server = RedisServer::start_tls().await?;
    holds(Buckets::Redis(RedisBuckets::new(&server.options)?)).await
}

/// As after a failover to a server whose clock is behind: the time until it has caught up counts once.
#[tokio::test]
async fn a_clock_that_goes_back_fills_no_bucket_in_redis() -> Result<()> {
    let server = RedisServer::start().await?;
    let buckets = Buckets::Redis(RedisBuckets::new(&server.options)?);
    let mut raw = server.admin().await?;
    let one = bucket("shared", 5, Duration::from_hours(1));
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut raw).await?;
    let ahead = (seconds + 3_600) * 1_000_000;
    let mut set = redis::cmd("HSET");
    set.arg(&one.key).arg("tokens").arg("1.5").arg("last_refill").arg(ahead);
    let _fields: i64 = set.query_async(&mut raw).await?;
    assert_eq!(buckets.take(std::slice::from_ref(&one)).await?, RateDecision::Granted);
    assert_eq!(buckets.take(std::slice::from_ref(&one)).await?, RateDecision::Refused(0));
    let mut get = redis::cmd("HMGET");
    get.arg(&one.key).arg("tokens").arg("last_refill");
    let (tokens, last): (String, u64) = get.query_async(&mut raw).await?;
    assert_eq!((tokens.as_str(), last), ("0.5", ahead), "the time that it is ahead of is not counted again");
    Ok(())
}

/// A proxy of the original and one of ours may count in the same bucket.
#[tokio::test]
async fn the_layout_in_redis_is_that_of_the_original() -> Result<()> {
    let server = RedisServer::start().await?;
    let buckets = Buckets::Redis(RedisBuckets::new(&server.options)?);
    let mut raw = server.admin().await?;
    let one = bucket("shared", 5, Duration::from_millis(90_500));
    assert_eq!(buckets.take(std::slice::from_ref(&one)).await?, RateDecision::Granted);
    let mut fields: Vec<String> = redis::cmd("HKEYS").arg(&one.key).query_async(&mut raw).await?;
    fields.sort();
    assert_eq!(fields, ["last_refill", "tokens"]);
    let tokens: f64 = redis::cmd("HGET").arg(&one.key).arg("tokens").query_async(&mut raw).await?;
    assert!((4.0..4.1).contains(&tokens), "{tokens}");
    let last: u64 = redis::cmd("HGET").arg(&one.key).arg("last_refill").query_async(&mut raw).await?;
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut raw).await?;
    let ago = seconds * 1_000_000 + micros - last;
    assert!(ago < 10_000_000, "microseconds: {last}");
    let lives: i64 = redis::cmd("TTL").arg(&one.key).query_async(&mut raw).await?;
    assert!((180..=181).contains(&lives), "{lives}");
    // What the original left is taken over.
    let other = bucket("theirs", 5, LONG);
    let () = redis::cmd("HSET")
        .arg(&other.key)
        .arg("tokens")
        .arg("1.5")
        .arg("last_refill")
        .arg(last)
        .query_async(&mut raw)
        .await?;
    assert_eq!(buckets.take(std::slice::from_ref(&other)).await?, RateDecision::Granted);
    assert_eq!(buckets.take(std::slice::from_ref(&other)).await?, RateDecision::Refused(0));
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_there_fails_at_once_and_is_used_when_it_is_back() -> Result<()> {
    let mut server = RedisServer::start().await?;
    server.kill()?;
    let buckets = Buckets::Redis(RedisBuckets::new(&server.options)?);
    let one = [bucket("shared", 100, LONG)];
    let started = Instant::now();
    for _ in 0..20 {
        let failed = buckets.take(&one).await;
        assert!(
            matches!(&failed, Err(StoreError::Unavailable(cause)) if cause.category() == "connection"),
            "{failed:?}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    server.restart().await?;
    let granted = || async {
        Ok(match buckets.take(&one).await {
            Ok(RateDecision::Granted) => Seen::Yes(()),
            Ok(refused) => Seen::NotYet(format!("{refused:?}")),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    };
    eventually("it is used again", PATIENCE, granted).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_delays_one_call_only() -> Result<()> {
    let server = RedisServer::start().await?;
    let buckets = Buckets::Redis(RedisBuckets::new(&server.options)?);
    let one = [bucket("shared", 100, LONG)];
    assert_eq!(buckets.take(&one).await?, RateDecision::Granted);
    server.signal("STOP")?;
    let started = Instant::now();
    for _ in 0..3 {
        let failed = buckets.take(&one).await;
        assert!(matches!(&failed, Err(StoreError::Unavailable(cause)) if cause.category() == "timeout"), "{failed:?}");
    }
    assert!(started.elapsed() < Duration::from_millis(1_900), "{:?}", started.elapsed());
    server.signal("CONT")?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_an_error_of_its_own() -> Result<()> {
    let server = RedisServer::start().await?;
    let mut options = server.options.clone();
    options.password = Some("wrong".to_owned());
    let buckets = Buckets::Redis(RedisBuckets::new(&options)?);
    let failed = buckets.take(&[bucket("shared", 1, LONG)]).await;
    assert!(matches!(&failed, Err(StoreError::Unavailable(cause)) if cause.category() == "auth"), "{failed:?}");
    Ok(())
}
