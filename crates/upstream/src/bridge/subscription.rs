//! `subscriptions/listen` of a modern client at a legacy server: a session of its own, which subscribes to each resource and ends with
//! the request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::{self, Filter, ModernClient};
use skep_mcp::{Kind, Message, Raw, answer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::servers::Lease;
use super::to_legacy::{OWN, not_opened};
use super::{BridgedUpstream, interim, refuse};
use crate::error::CallError;
use crate::replies::{InFlight, PendingResponse, Replies};
use crate::upstream::{Call, ClientContext};

/// A subscription of a client. The server is unsubscribed from what it granted when it ends.
struct Subscription {
    bridge: Arc<BridgedUpstream>,
    client: ClientContext,
    /// `None` once it has ended.
    lease: Option<Lease>,
    granted: Filter,
}

/// A subscription in flight.
#[derive(Debug)]
struct Subscribed(AbortHandle);

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// Opens the stream of a subscription. It is acknowledged first.
    pub(super) async fn subscribe(self: Arc<Self>, call: Call, client: ModernClient) -> Result<Replies, CallError> {
        let wanted = match Filter::of(&call.message) {
            Ok(wanted) => wanted,
            Err(error) => return refuse(&call.message, answer::INVALID_PARAMS, &error.to_string()),
        };
        let (sender, interim) = interim(call.takes_interim);
        let Some(sender) = sender else {
            let text = "subscriptions/listen is answered by a stream: accept `text/event-stream`";
            return refuse(&call.message, answer::INVALID_REQUEST, text);
        };
        let lease = match self.lease(&client, &call.client, &call.budget, true).await {
            Ok(lease) => lease,
            Err(error) => return not_opened(error, &client),
        };
        // Before the first subscription: nothing is missed.
        let events = self.inner.events(&lease.session.id, call.budget.clone());
        let wanted = wanted.granted_by(&lease.session.initialized);
        let granted = Filter { uris: std::collections::BTreeSet::new(), ..wanted.clone() };
        let subscription = Subscription { bridge: self, client: call.client.clone(), lease: Some(lease), granted };
        let (outcome, response) = oneshot::channel();
        let task = tokio::spawn(
            async move {
                let ended = subscription.run(&call, wanted, &client, events, &sender).await;
                // The client may have left.
                let _left = outcome.send(ended.map(Box::new));
            }
            .in_current_span(),
        );
        let call = Subscribed(task.abort_handle());
        Ok(Replies { interim, response: PendingResponse::new(response, Box::new(call)) })
    }
}

// === impl Subscription ===

impl Subscription {
    /// Subscribes, acknowledges, and delivers until the server has no more to say.
    async fn run(
        mut self,
        call: &Call,
        wanted: Filter,
        client: &ModernClient,
        mut events: mpsc::Receiver<Bytes>,
        interim: &mpsc::Sender<Bytes>,
    ) -> Result<Message, CallError> {
        for uri in wanted.uris {
            if self.ask("resources/subscribe", &uri, call).await {
                self.granted.uris.insert(uri);
            }
        }
        let acknowledged = bridge::acknowledged(client.id(), &self.granted);
        let mut is_heard = interim.send(acknowledged).await.is_ok();
        while let Some(message) = events.recv().await {
            let Ok(message) = Message::parse(message) else { continue };
            if message.kind() == Kind::Request {
                self.refuse(&message).await;
            } else if is_heard
                && self.granted.wants(&message)
                && let Ok(notification) = bridge::of_subscription(&message, client.id())
            {
                is_heard = interim.send(notification).await.is_ok();
            }
        }
        Message::parse(bridge::ended(client.id())).map_err(|_malformed| CallError::NotSent)
    }

    /// Whether the server grants what it is asked for a resource.
    async fn ask(&self, method: &str, uri: &str, call: &Call) -> bool {
        let Some(lease) = &self.lease else { return false };
        let params = format!(r#"{{"uri":{}}}"#, Raw::string(uri).as_str());
        let response = self.bridge.call_within(method, &params, lease, &self.client, call.budget.clone()).await;
        response.is_some_and(|response| response.kind() == Kind::Response)
    }

    /// No client can be asked where none has made a call.
    async fn refuse(&self, request: &Message) {
        let Some(lease) = &self.lease else { return };
        let text = format!("{}: no client takes requests of the server", request.method().unwrap_or_default());
        let refusal = answer::error(request.id().as_ref(), answer::METHOD_NOT_FOUND, &text, None);
        if let Ok(refusal) = Message::parse(refusal) {
            let sent = self.bridge.inner.send(Some(&lease.session.id), &refusal);
            let _not_sent = tokio::time::timeout(OWN, sent).await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (bridge, client) = (self.bridge.clone(), self.client.clone());
        let uris = std::mem::take(&mut self.granted.uris);
        let unsubscribe = async move {
            for uri in uris {
                let params = format!(r#"{{"uri":{}}}"#, Raw::string(&uri).as_str());
                if bridge.call_own("resources/unsubscribe", &params, &lease, &client).await.is_none() {
                    // The session is closed in any case.
                    return;
                }
            }
        };
        runtime.spawn(unsubscribe.in_current_span());
    }
}

// === impl Subscribed ===

impl InFlight for Subscribed {
    fn cancel(&self) {
        self.0.abort();
    }

    fn is_sent(&self) -> bool {
        true
    }

    fn extended_deadline(&self, _timeout: Duration) -> Option<Instant> {
        None
    }
}
