//! The promises of [`Buckets`], in memory and in Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use skep_store::{Bucket, Buckets, MemoryBuckets, RedisBuckets, Taken};
use skep_testkit::{Seen, eventually};

use crate::server::RedisServer;

fn bucket(key: &str, capacity: u32, period: Duration) -> Bucket {
    Bucket { key: format!("thv:rl:{{tools:srv}}:{key}"), capacity, period }
}

const HOUR: Duration = Duration::from_hours(1);

async fn holds(buckets: Buckets) -> Result<()> {
    let buckets = Arc::new(buckets);
    // A full bucket lets its capacity in, and no more.
    let three = [bucket("burst", 3, HOUR)];
    for _ in 0..3 {
        assert_eq!(buckets.take(&three).await?, Taken::All);
    }
    assert_eq!(buckets.take(&three).await?, Taken::None { empty: 0 });
    // Others have their own.
    assert_eq!(buckets.take(&[bucket("user:ada", 1, HOUR)]).await?, Taken::All);
    assert_eq!(buckets.take(&[bucket("user:ada", 1, HOUR)]).await?, Taken::None { empty: 0 });
    assert_eq!(buckets.take(&[bucket("user:bob", 1, HOUR)]).await?, Taken::All);
    // All or none: a request that finds one bucket empty takes nothing from the others.
    let both = [bucket("shared", 2, HOUR), bucket("tool", 1, HOUR)];
    assert_eq!(buckets.take(&both).await?, Taken::All);
    for _ in 0..5 {
        assert_eq!(buckets.take(&both).await?, Taken::None { empty: 1 });
    }
    assert_eq!(buckets.take(&[bucket("shared", 2, HOUR)]).await?, Taken::All);
    assert_eq!(buckets.take(&both).await?, Taken::None { empty: 0 });
    // Many at once take no more than there is.
    let calls = (0..40).map(|_| {
        let buckets = buckets.clone();
        tokio::spawn(async move { buckets.take(&[bucket("crowd", 10, HOUR)]).await })
    });
    let mut taken = 0;
    for call in calls.collect::<Vec<_>>() {
        taken += usize::from(call.await?? == Taken::All);
    }
    assert_eq!(taken, 10);
    // Time refills.
    let quick = [bucket("quick", 1, Duration::from_millis(50))];
    assert_eq!(buckets.take(&quick).await?, Taken::All);
    eventually("a refilled bucket", Duration::from_secs(20), || async {
        Ok(if buckets.take(&quick).await? == Taken::All { Seen::Yes(()) } else { Seen::NotYet("empty".to_owned()) })
    })
    .await
}

#[tokio::test]
async fn memory_keeps_the_contract_of_buckets() -> Result<()> {
    holds(Buckets::Memory(MemoryBuckets::default())).await
}

#[tokio::test]
async fn redis_keeps_the_contract_of_buckets() -> Result<()> {
    let server = RedisServer::start().await?;
    holds(Buckets::Redis(RedisBuckets::new(server.connect().await?))).await?;
    // The layout of the original, with an expiry of two periods.
    let key = "thv:rl:{tools:srv}:burst";
    let tokens: f64 = server.ask(&["HGET", key, "tokens"]).await?.parse()?;
    assert!((0.0..1.0).contains(&tokens), "{tokens}");
    assert!(server.ask(&["HGET", key, "last_refill"]).await?.len() == 16);
    let expiry: u64 = server.ask(&["PTTL", key]).await?.parse()?;
    assert!((7_100_000..=7_200_000).contains(&expiry), "{expiry}");
    Ok(())
}

#[tokio::test]
async fn a_redis_that_is_away_is_an_error_and_not_a_decision() -> Result<()> {
    let server = RedisServer::start().await?;
    let buckets = Buckets::Redis(RedisBuckets::new(server.connect().await?));
    drop(server);
    assert!(buckets.take(&[bucket("a", 1, HOUR)]).await.is_err());
    Ok(())
}
