//! The guarantees of [`Sessions`], tested against an empty store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use skep_store::session::Kind;
use skep_store::{Created, Session, Sessions};
use skep_testkit::{Seen, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// An id that is a UUID made from a number.
pub(crate) fn id(number: u32) -> String {
    format!("0b0a5a0e-6a34-4a9c-8f4c-{number:012x}")
}

pub(crate) fn session(id: &str) -> Session {
    Session::new(id, Kind::Streamable, "2026-11-16T01:02:03.5Z".parse::<Timestamp>().unwrap(), Some("alice"))
}

/// All guarantees but those about time. The sessions live long.
pub(crate) async fn holds(sessions: Sessions) -> Result<()> {
    let sessions = Arc::new(sessions);
    a_session_exists_from_creation_to_deletion(&sessions).await?;
    a_change_replaces_and_never_revives(&sessions).await?;
    any_id_will_do(&sessions).await?;
    one_of_many_creates(&sessions).await
}

async fn a_session_exists_from_creation_to_deletion(sessions: &Sessions) -> Result<()> {
    assert!(sessions.touch(&id(1)).await?.is_none());
    assert!(!sessions.delete(&id(1)).await?);
    assert_eq!(sessions.count().await?, 0);

    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    assert_eq!(sessions.create(session(&id(2))).await?, Created::New);
    assert_eq!(sessions.count().await?, 2);
    let found = sessions.touch(&id(1)).await?.unwrap();
    assert_eq!(serde_json::to_string(&*found)?, serde_json::to_string(&session(&id(1)))?);
    assert_eq!(found.bound_to(), Some("alice"));

    // A second creation changes nothing.
    let mut other = session(&id(1));
    other.metadata.insert("other".to_owned(), String::new());
    assert_eq!(sessions.create(other).await?, Created::Existed);
    assert!(!sessions.touch(&id(1)).await?.unwrap().metadata.contains_key("other"));

    assert!(sessions.delete(&id(1)).await?);
    assert!(!sessions.delete(&id(1)).await?);
    assert!(sessions.touch(&id(1)).await?.is_none());
    assert!(sessions.touch(&id(2)).await?.is_some());
    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    assert!(sessions.delete(&id(1)).await? && sessions.delete(&id(2)).await?);
    assert_eq!(sessions.count().await?, 0);
    Ok(())
}

async fn a_change_replaces_and_never_revives(sessions: &Sessions) -> Result<()> {
    assert!(!sessions.update(session(&id(1))).await?);
    assert!(sessions.touch(&id(1)).await?.is_none());

    assert_eq!(sessions.create(session(&id(1))).await?, Created::New);
    let mut changed = Session::clone(&*sessions.touch(&id(1)).await?.unwrap());
    changed.metadata.insert("backend_sid".to_owned(), "seven \"7\" <&> \u{1f41d}".to_owned());
    changed.metadata.insert("init_body".to_owned(), "x".repeat(100_000));
    assert!(sessions.update(changed.clone()).await?);
    let found = sessions.touch(&id(1)).await?.unwrap();
    assert_eq!(found.metadata, changed.metadata);
    assert!(sessions.delete(&id(1)).await?);
    Ok(())
}

async fn any_id_will_do(sessions: &Sessions) -> Result<()> {
    for odd in ["", "abc", "with space\r\n and *?[x]: more", "\u{1f41d}", &"long".repeat(1000)] {
        assert_eq!(sessions.create(session(odd)).await?, Created::New);
        assert_eq!(sessions.create(session(odd)).await?, Created::Existed);
        assert_eq!(sessions.touch(odd).await?.unwrap().id.len(), 36);
        assert!(sessions.delete(odd).await?);
    }
    // Ids that are UUIDs are neither made equal nor changed.
    assert_eq!(sessions.create(session(&id(10))).await?, Created::New);
    assert!(sessions.touch(&id(10).to_uppercase()).await?.is_none());
    assert!(sessions.delete(&id(10)).await?);
    Ok(())
}

async fn one_of_many_creates(sessions: &Arc<Sessions>) -> Result<()> {
    for round in 0..10 {
        let racers: Vec<_> = (0..20)
            .map(|_| {
                let sessions = Arc::clone(sessions);
                tokio::spawn(async move { sessions.create(session(&id(100 + round))).await })
            })
            .collect();
        let mut winners = 0;
        for racer in racers {
            winners += usize::from(racer.await?? == Created::New);
        }
        assert_eq!(winners, 1);
        assert!(sessions.delete(&id(100 + round)).await?);
    }
    Ok(())
}

/// A session that is not used expires. The sessions live for an instant.
pub(crate) async fn forgets(sessions: Sessions) -> Result<()> {
    for number in 0..10 {
        assert_eq!(sessions.create(session(&id(number))).await?, Created::New);
    }
    let none_left = || async {
        Ok(match sessions.count().await? {
            0 => Seen::Yes(()),
            left => Seen::NotYet(format!("{left} sessions")),
        })
    };
    eventually("all sessions have expired", PATIENCE, none_left).await?;
    assert!(sessions.touch(&id(1)).await?.is_none());
    assert!(!sessions.update(session(&id(1))).await?);
    assert!(!sessions.delete(&id(1)).await?);
    Ok(())
}
