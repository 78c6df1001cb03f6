//! What is let go of when sessions end without a request of their clients: because they were unused, or because they made room for
//! newer ones of the same client.

use std::sync::Arc;
use std::time::Duration;

use skep_store::Ended;
use skep_upstream::http::HttpUpstream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::downstream::streamable::Streamable;
use crate::sessions::{Kind, Sessions};

/// How many sessions wait to be closed at a server when many end at once, and how many are closed at the same time.
const CLOSED_AT_ONCE: usize = 256;
const CLOSING: usize = 8;

/// Lets go of what was kept for the sessions of a stdio server.
pub(super) async fn reap(sessions: Sessions, front: Option<(Arc<Streamable>, Duration)>) {
    let mut checks = Sessions::expiry_checks();
    loop {
        let (ended, is_check) = sessions.ended(&mut checks).await;
        log_evicted(&ended);
        let Some((front, time_to_live)) = &front else { continue };
        for session in ended {
            front.close(&session.id);
        }
        if is_check {
            front.close_idle(*time_to_live);
        }
    }
}

/// Ends at a server that speaks HTTP the sessions that ended here. What is too much at once is left to the server's own limits. Those of
/// the era bridge end at its endpoint.
pub(super) async fn close_ended(
    sessions: Sessions,
    upstream: Arc<HttpUpstream>,
    bridged: Option<(Arc<Streamable>, Duration)>,
) {
    let mut checks = Sessions::expiry_checks();
    let (permits, mut closing) = (Arc::new(Semaphore::new(CLOSING)), JoinSet::new());
    loop {
        let (mut ended, is_check) = sessions.ended(&mut checks).await;
        log_evicted(&ended);
        if let Some((front, time_to_live)) = &bridged {
            let is_bridged = |one: &Ended| one.session.as_ref().is_none_or(|session| session.kind == Kind::Streamable);
            for one in ended.iter().filter(|one| is_bridged(one)) {
                front.close(&one.id);
            }
            ended.retain(|one| !is_bridged(one));
            if is_check {
                front.close_idle(*time_to_live);
            }
        }
        while closing.try_join_next().is_some() {}
        // A slow server must not make sessions that ended pile up here: they are taken from the store at once, whatever it does.
        let room = CLOSED_AT_ONCE.saturating_sub(closing.len());
        for session in ended.into_iter().filter_map(|ended| ended.session).take(room) {
            let (upstream, permits) = (upstream.clone(), permits.clone());
            closing.spawn(async move {
                let _permit = permits.acquire().await;
                upstream.close_at_server(&session).await;
            });
        }
    }
}

fn log_evicted(ended: &[Ended]) {
    let evicted = ended.iter().filter(|ended| ended.is_evicted).count();
    if evicted > 0 {
        tracing::debug!(sessions = evicted, "sessions evicted for newer ones of the same client");
    }
}
