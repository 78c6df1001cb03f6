use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::aio::MultiplexedConnection;
use skep_store::redis::{Server, Tls, UnavailableError};
use skep_store::{Created, Owner, Prefix, Redis, SESSION_BYTES, SessionLimits, Sessions, StoreError};
use skep_testkit::pki::Authority;
use skep_testkit::{Seen, eventually};

use crate::contract::{self, id, session};
use crate::server::{PASSWORD, RedisServer, Service, say};

const LIFE: Duration = Duration::from_hours(2);

async fn sessions(server: &RedisServer, time_to_live: Duration) -> Result<Sessions> {
    Ok(Sessions::Redis(Redis::new(server.connect().await?, Prefix::default(), time_to_live)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract() -> Result<()> {
    let server = RedisServer::start().await?;
    contract::holds(sessions(&server, LIFE).await?).await?;
    contract::forgets(sessions(&server, Duration::from_millis(50)).await?).await?;
    contract::forgets(sessions(&server, Duration::from_secs(1)).await?).await
}

#[tokio::test]
async fn redis_keeps_the_contract_over_tls() -> Result<()> {
    let mut server = RedisServer::start_tls().await?;
    contract::holds(sessions(&server, LIFE).await?).await?;
    // A certificate of another CA is rejected.
    server.options.tls = Some(Tls { roots: Some(Authority::generate()?.certificate().into_bytes()) });
    let error = server.connect().await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(StoreError::Unavailable(_))), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn keys_and_values_are_those_of_the_original() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    assert_eq!(sessions.create(session("not a uuid")).await?, Created::New);
    let uuid = skep_store::session::normalised("not a uuid");
    let key = format!("thv:proxy:session:{uuid}");
    let expected = format!(
        r#"{{"id":"{uuid}","type":"streamable","created_at":"2026-11-16T01:02:03.5Z","updated_at":"2026-11-16T01:02:03.5Z","metadata":{{"skep_identity":"alice"}}}}"#
    );
    assert_eq!(server.ask(&["GET", &key]).await?, expected);

    // A member that another program added survives our change.
    let foreign = expected.replace(r#""type""#, r#""later":[1.0],"type""#);
    server.ask(&["SET", &key, &foreign]).await?;
    let found = sessions.touch("not a uuid").await?.unwrap();
    assert!(sessions.update((*found).clone()).await?);
    assert!(server.ask(&["GET", &key]).await?.ends_with(r#","later":[1.0]}"#));
    Ok(())
}

#[tokio::test]
async fn every_touch_and_change_renews_the_time_to_live() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    let key = format!("thv:proxy:session:{}", id(1));
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    assert!(sessions.touch(&id(1)).await?.is_some());
    let is_renewed = || async {
        let left: u64 = server.ask(&["TTL", &key]).await?.parse()?;
        server.ask(&["EXPIRE", &key, "1000"]).await?;
        Ok::<_, anyhow::Error>(left > 1000)
    };
    assert!(is_renewed().await?);
    assert!(!is_renewed().await?);
    assert!(sessions.touch(&id(1)).await?.is_some());
    assert!(is_renewed().await?);
    assert!(sessions.update(session(&id(1))).await?);
    assert!(is_renewed().await?);
    // A second creation does not change the time to live of the first session.
    assert_eq!(sessions.create(session(&id(1))).await?, Created::Existed);
    assert!(!is_renewed().await?);
    Ok(())
}

#[tokio::test]
async fn prefixes_and_databases_are_apart() -> Result<()> {
    let mut server = RedisServer::start().await?;
    let first = sessions(&server, LIFE).await?;
    let under = |prefix: &str, server: Server| Sessions::Redis(Redis::new(server, Prefix::new(prefix).unwrap(), LIFE));
    let second = under("thv:proxy:s*:", server.connect().await?);
    server.options.database = 3;
    let third = sessions(&server, LIFE).await?;
    assert_eq!(first.create(session(&id(1))).await?, Created::New);
    assert_eq!(second.count().await? + third.count().await?, 0);
    assert_eq!(second.create(session(&id(1))).await?, Created::New);
    assert_eq!(third.create(session(&id(1))).await?, Created::New);
    assert_eq!((first.count().await?, second.count().await?, third.count().await?), (1, 1, 1));
    Ok(())
}

#[tokio::test]
async fn a_large_number_of_sessions_is_counted_whole() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    for number in 0..3000 {
        assert_eq!(sessions.create(session(&id(number))).await?, Created::New);
    }
    assert_eq!(sessions.count().await?, 3000);
    Ok(())
}

#[tokio::test]
async fn an_invalid_value_is_an_error_and_not_an_absence() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    server.ask(&["SET", &format!("thv:proxy:session:{}", id(1)), "{}"]).await?;
    let error = sessions.touch(&id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
    server.ask(&["LPUSH", &format!("thv:proxy:session:{}", id(2)), "x"]).await?;
    let error = sessions.touch(&id(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn an_outage_is_an_error_and_ends_by_itself() -> Result<()> {
    let mut server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    for _ in 0..2 {
        server.kill()?;
        let unavailable = [
            sessions.touch(&id(1)).await.map(drop),
            sessions.create(session(&id(2))).await.map(drop),
            sessions.update(session(&id(1))).await.map(drop),
            sessions.delete(&id(1)).await.map(drop),
            sessions.count().await.map(drop),
        ];
        for answer in unavailable {
            let error = answer.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            assert_eq!(error.category(), "unavailable");
            assert!(!format!("{error:?} {error}").contains(PASSWORD));
        }
        server.restart().await?;
        // The first attempt after the outage works: no retry is needed.
        assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
        assert!(sessions.touch(&id(1)).await?.is_some());
    }
    Ok(())
}

#[tokio::test]
async fn a_restart_between_two_requests_goes_unnoticed() -> Result<()> {
    let mut server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    server.kill()?;
    server.restart().await?;
    assert!(sessions.touch(&id(1)).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_server_that_hangs_is_an_error_too() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    server.signal("STOP")?;
    let error = sessions.touch(&id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    server.signal("CONT")?;
    let answer = eventually("it responds again", Duration::from_secs(20), || async {
        Ok(match sessions.touch(&id(1)).await {
            Ok(found) => Seen::Yes(found.is_none()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    });
    assert!(answer.await?);
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() -> Result<()> {
    let mut server = RedisServer::start().await?;
    server.options.password = Some("wrong-and-must-not-show".to_owned());
    let error = server.connect().await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(StoreError::Unavailable(_))), "{error:?}");
    assert!(!format!("{error:?} {:?}", server.options).contains("must-not-show"));
    server.options.password = Some(PASSWORD.to_owned());
    let connected = server.connect().await?;
    assert!(!format!("{connected:?}").contains(PASSWORD));
    Ok(())
}

#[tokio::test]
async fn an_error_says_why_the_store_is_unavailable() -> Result<()> {
    let mut server = RedisServer::start().await?;
    let found = |server: &RedisServer| {
        let options = server.options.clone();
        async move { Server::connect(&options).await.unwrap_err().to_string() }
    };
    let said = "the store is unavailable: ";
    server.options.password = Some("wrong".to_owned());
    assert_eq!(found(&server).await, format!("{said}it rejects the user or the password"));
    server.options.tls = Some(Tls::default());
    let no_tls = found(&server).await;
    assert!(no_tls.starts_with(said) && !no_tls.contains("password"), "{no_tls}");
    server.options.tls = None;
    server.options.host = "nobody.invalid".to_owned();
    assert!(found(&server).await.starts_with(&format!("{said}it cannot be reached: ")));
    server.options.host = "127.0.0.1".to_owned();
    server.kill()?;
    assert_eq!(found(&server).await, format!("{said}connection refused"));
    Ok(())
}

/// The cause of a failed touch.
async fn cause(sessions: &Sessions) -> Result<UnavailableError> {
    match sessions.touch(&id(1)).await {
        Err(StoreError::Unavailable(cause)) => Ok(cause),
        other => bail!("{other:?}"),
    }
}

/// The handshake of a connection fails, and that of the next one would not.
#[tokio::test]
async fn a_server_that_does_not_let_us_in_for_a_while_is_not_lost_for_ever() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    let mut admin = server.admin().await?;
    for (setting, wrong, right, expected) in [
        ("requirepass", "other", PASSWORD, UnavailableError::Login),
        ("maxclients", "1", "100", UnavailableError::Crowded),
    ] {
        say(&mut admin, &["CONFIG", "SET", setting, wrong]).await?;
        say(&mut admin, &["CLIENT", "KILL", "TYPE", "normal"]).await?;
        // A connection may break before its error was read.
        eventually("the handshake fails", Duration::from_secs(20), || async {
            let cause = cause(&sessions).await?;
            Ok(if cause == expected { Seen::Yes(()) } else { Seen::NotYet(cause.to_string()) })
        })
        .await?;
        say(&mut admin, &["CONFIG", "SET", setting, right]).await?;
        eventually("it responds again", Duration::from_secs(20), || async {
            Ok(match sessions.touch(&id(1)).await {
                Ok(_) => Seen::Yes(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
        .await
        .context(setting)?;
    }
    Ok(())
}

/// The address leads to another server by now, and the connection still to the former master.
#[tokio::test]
async fn a_master_that_follows_another_one_by_now_is_left_for_it() -> Result<()> {
    let (old, new) = (RedisServer::start().await?, RedisServer::start().await?);
    let service = Service::start(&old).await?;
    let mut options = old.options.clone();
    options.port = service.port;
    let sessions = Sessions::Redis(Redis::new(Server::connect(&options).await?, Prefix::default(), LIFE));
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);

    old.ask(&["REPLICAOF", "127.0.0.1", &new.options.port.to_string()]).await?;
    assert_eq!(cause(&sessions).await?, UnavailableError::ReadOnly, "there is no other yet");
    service.lead_to(&new);
    let created = eventually("the new master is found", Duration::from_secs(20), || async {
        Ok(match sessions.create(session(&id(1))).await {
            Ok(created) => Seen::Yes(created),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await?;
    assert_eq!(created, Created::New);
    assert_eq!(new.ask(&["DBSIZE"]).await?, "1");
    assert!(sessions.touch(&id(1)).await?.is_some());
    Ok(())
}

/// The commands that a server has run, by name, without those of this query.
async fn commands(admin: &mut MultiplexedConnection) -> Result<BTreeMap<String, u64>> {
    let mut counted = BTreeMap::new();
    for line in say(admin, &["INFO", "commandstats"]).await?.lines() {
        if let Some((name, counts)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) {
            let (calls, _) = counts.split_once(',').context("more counts")?;
            counted.insert(name.to_owned(), calls.parse()?);
        }
    }
    counted.retain(|name, _| name != "info" && name != "config|resetstat");
    Ok(counted)
}

/// A request costs one round trip. A second one, or a check of the connection before each, would be seen here.
#[tokio::test]
async fn every_operation_on_a_session_is_one_command() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    let mut admin = server.admin().await?;
    say(&mut admin, &["CONFIG", "RESETSTAT"]).await?;
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    assert_eq!(commands(&mut admin).await?, [("set".to_owned(), 1)].into());
    for calls in 1..=5 {
        assert!(sessions.touch(&id(1)).await?.is_some());
        assert!(sessions.touch(&id(2)).await?.is_none());
        assert_eq!(commands(&mut admin).await?, [("getex".to_owned(), 2 * calls), ("set".to_owned(), 1)].into());
    }
    say(&mut admin, &["CONFIG", "RESETSTAT"]).await?;
    assert!(sessions.update(session(&id(1))).await?);
    assert!(sessions.delete(&id(1)).await?);
    assert_eq!(commands(&mut admin).await?, [("del".to_owned(), 1), ("set".to_owned(), 1)].into());
    Ok(())
}

#[tokio::test]
async fn a_session_without_a_second_message_lives_one_minute() -> Result<()> {
    let server = RedisServer::start().await?;
    let sessions = sessions(&server, LIFE).await?;
    let key = format!("thv:proxy:session:{}", id(1));
    let left = || async { Ok::<u64, anyhow::Error>(server.ask(&["TTL", &key]).await?.parse()?) };
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    assert!((1..=60).contains(&left().await?));
    assert!(sessions.touch(&id(1)).await?.is_some());
    assert!(left().await? > 7000);
    Ok(())
}

#[tokio::test]
async fn each_replica_bounds_the_sessions_of_a_peer_and_spares_those_that_another_one_uses() -> Result<()> {
    let server = RedisServer::start().await?;
    let limits = SessionLimits::of_total(8 * (SESSION_BYTES + 100));
    let replica = || async {
        let redis = Redis::within(server.connect().await?, Prefix::default(), LIFE, limits);
        Ok::<_, anyhow::Error>(Sessions::Redis(redis))
    };
    let (first, second) = (replica().await?, replica().await?);
    let peer = |number: u8| Owner { peer: Some([10, 0, 0, number].into()), ..Owner::default() };
    assert_eq!(first.create_for(session(&id(0)), &peer(2)).await?, Created::New);
    assert_eq!(first.create_for(session(&id(1)), &peer(1)).await?, Created::New);
    // To the first replica it seems unused.
    assert!(second.touch_for(&id(1), || peer(1)).await?.is_some());
    for number in 2..20 {
        assert_eq!(first.create_for(session(&id(number)), &peer(1)).await?, Created::New);
    }
    let mut there = Vec::new();
    for number in 0..20 {
        if first.touch(&id(number)).await?.is_some() {
            there.push(number);
        }
    }
    assert_eq!(there, [0, 1, 16, 17, 18, 19]);
    assert_eq!((first.evictions(), second.evictions()), (15, 0));
    assert_eq!(first.take_evicted().len(), 15);
    Ok(())
}

#[tokio::test]
async fn evicted_sessions_are_checked_and_deleted_by_one_command() -> Result<()> {
    let server = RedisServer::start().await?;
    let limits = SessionLimits::of_total(8 * (SESSION_BYTES + 100));
    let redis = Redis::within(server.connect().await?, Prefix::default(), LIFE, limits);
    let sessions = Sessions::Redis(redis);
    let peer = Owner { peer: Some([10, 0, 0, 1].into()), ..Owner::default() };
    for number in 0..4 {
        assert_eq!(sessions.create_for(session(&id(number)), &peer).await?, Created::New);
    }
    let mut admin = server.admin().await?;
    say(&mut admin, &["CONFIG", "RESETSTAT"]).await?;
    let mut large = session(&id(9));
    large.metadata.insert("text".to_owned(), "x".repeat(2 * SESSION_BYTES));
    assert_eq!(sessions.create_for(large, &peer).await?, Created::New);
    assert_eq!(sessions.evictions(), 3);
    // The commands of the script are counted as well; what matters is that there is one script, and nothing beside it.
    let expected = [("del", 3), ("eval", 1), ("pttl", 3), ("set", 1)].map(|(name, calls)| (name.to_owned(), calls));
    assert_eq!(commands(&mut admin).await?, expected.into());
    Ok(())
}
