//! What the session of a legacy client hears of a modern server: one `subscriptions/listen`, opened by the first subscription or the
//! first listener, and opened again when it ends or when the client subscribes to something else.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::{self, Filter};
use skep_mcp::{Era, Message};
use skep_net::Budget;
use skep_workload::backoff::Backoff;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::BridgedUpstream;
use super::clients::{LegacySession, Task};
use crate::error::CallError;
use crate::listener::Listener;
use crate::replies::Replies;
use crate::upstream::{Call, SessionId};

/// How long is waited before one that ended is opened again, at first.
const RECONNECT: Duration = Duration::from_millis(500);
/// How long the server may take to acknowledge.
const ACKNOWLEDGING: Duration = Duration::from_secs(20);

/// Which resources a session subscribes to. Each change is a new generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) generation: u64,
    pub(super) uris: BTreeSet<String>,
}

/// Which of them the server granted, as of which generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    pub(super) generation: u64,
    pub(super) uris: BTreeSet<String>,
}

/// Why there is no stream.
enum Refused {
    /// The server has no such method, or refuses this client: it is not asked again for the same.
    Final,
    /// It may grant it later.
    Later,
}

/// How reading a stream ended.
enum Ended {
    /// The session wants something else.
    Changed,
    /// The server ended it.
    Over,
}

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// Begins to listen for a session. An earlier receiver of the session gets nothing more.
    pub(super) fn listen(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        let (listener, receiver) = Listener::new(budget);
        let session = self.clients.known(session);
        session.set_listener(listener);
        self.start_listening(&session);
        receiver
    }

    /// Has the server send notifications for a session, unless it does.
    pub(super) fn start_listening(&self, session: &Arc<LegacySession>) {
        session.listen_by(|| {
            let task = listening(self.me.clone(), Arc::downgrade(session), session.wanted.subscribe());
            Task(tokio::spawn(task.in_current_span()).abort_handle())
        });
    }

    /// Opens a stream. It is acknowledged when this returns.
    async fn open_stream(&self, session: &LegacySession, uris: BTreeSet<String>) -> Result<(Filter, Replies), Refused> {
        let later = |_error| Refused::Later;
        let message = session.client.listen(&self.new_id(), &Filter::all(uris)).map_err(|_invalid| Refused::Final)?;
        let call = Call { takes_interim: true, client: session.context(), ..Call::new(message, Era::Modern) };
        let mut replies = self.inner.clone().call(call).await.map_err(later)?;
        let first = async {
            tokio::select! {
                biased;
                Some(first) = next(&mut replies.interim) => Ok(Message::parse(first).ok()),
                response = replies.response.response() => match response {
                    // Its first message would be an acknowledgement.
                    Ok(_) => Err(Refused::Final),
                    Err(CallError::Rejected(status)) if status.is_client_error() => Err(Refused::Final),
                    Err(_) => Err(Refused::Later),
                },
            }
        };
        let first = tokio::time::timeout(ACKNOWLEDGING, first).await.map_err(|_elapsed| Refused::Later)??;
        let granted = first.filter(|first| first.method() == Some("notifications/subscriptions/acknowledged"));
        let granted = granted.and_then(|granted| Filter::of(&granted).ok()).ok_or(Refused::Final)?;
        Ok((granted, replies))
    }
}

/// Keeps a stream open for a session until the session ends.
async fn listening(bridge: Weak<BridgedUpstream>, session: Weak<LegacySession>, mut wanted: watch::Receiver<Wanted>) {
    let mut backoff = Backoff::new(RECONNECT);
    // One that is replaced is kept until there is another one: nothing is missed between.
    let mut before: Option<Replies> = None;
    loop {
        let since = Instant::now();
        let opened = {
            let (Some(bridge), Some(session)) = (bridge.upgrade(), session.upgrade()) else { return };
            let Wanted { generation, uris } = wanted.borrow_and_update().clone();
            let opened = bridge.open_stream(&session, uris).await;
            if let Some(mut before) = before.take() {
                while let Some(message) = before.interim.as_mut().and_then(|queue| queue.try_recv().ok()) {
                    deliver(&session, message);
                }
            }
            let granted = opened.as_ref().map(|(granted, _)| granted.uris.clone()).unwrap_or_default();
            session.granted.send_replace(Granted { generation, uris: granted });
            opened
        };
        let is_final = match opened {
            Ok((_, mut replies)) => match read(&session, &mut replies, &mut wanted).await {
                Ended::Changed => {
                    before = Some(replies);
                    continue;
                }
                Ended::Over => false,
            },
            Err(refused) => matches!(refused, Refused::Final),
        };
        let again = async {
            if is_final {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(backoff.after(since.elapsed())).await;
        };
        tokio::select! {
            () = again => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads a stream until it ends, or until the session wants something else.
async fn read(session: &Weak<LegacySession>, replies: &mut Replies, wanted: &mut watch::Receiver<Wanted>) -> Ended {
    loop {
        tokio::select! {
            biased;
            Some(message) = next(&mut replies.interim) => {
                let Some(session) = session.upgrade() else { return Ended::Over };
                deliver(&session, message);
            }
            _response = replies.response.response() => return Ended::Over,
            changed = wanted.changed() => return if changed.is_ok() { Ended::Changed } else { Ended::Over },
        }
    }
}

/// Hands a notification to the client of a session.
fn deliver(session: &LegacySession, message: Bytes) {
    let Ok(message) = Message::parse(message) else { return };
    if let Ok(notification) = bridge::notification(&message) {
        session.deliver(&notification);
    }
}

async fn next(queue: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    queue.as_mut()?.recv().await
}
