//! Calls of legacy clients at a modern server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::{self, RequestKind};
use skep_mcp::{Era, Id, Kind, Message, answer};
use skep_net::Budget;

use super::clients::LegacySession;
use super::relay::{Relay, Translation};
use super::{BridgedUpstream, done, no_such_method, refuse};
use crate::error::CallError;
use crate::replies::Replies;
use crate::stdio::log_level::is_level;
use crate::stdio::parameter;
use crate::stdio::subscriptions::{LONGEST, MOST};
use crate::upstream::{BoxFuture, Call, ClientContext, SessionId};

/// How long the server may take to grant a subscription.
const GRANTING: Duration = Duration::from_secs(30);

/// The messages of one call.
struct ForLegacy {
    session: Option<Arc<LegacySession>>,
    id: Id,
    kind: RequestKind,
}

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// Opens the session of a legacy client. A modern server knows nothing of it: it is asked what it can do.
    pub(super) async fn open_at_modern_server(
        &self,
        session: &SessionId,
        initialize: &Message,
        client: &ClientContext,
    ) -> Result<Message, CallError> {
        let asks = bridge::LegacyClient::of(initialize);
        let discover = asks.discover(&self.new_id()).map_err(|_invalid| CallError::NotSent)?;
        let call = Call { client: client.clone(), ..Call::new(discover, Era::Modern) };
        let mut discovered = self.inner.clone().call(call).await?;
        let discovered = discovered.response.response().await?;
        let response = bridge::initialize_result(initialize, &discovered);
        let response = response.map_err(|_malformed| CallError::Malformed)?;
        if response.kind() == Kind::Error {
            return asks.response(RequestKind::Other, &response).map_err(|_malformed| CallError::Malformed);
        }
        self.clients.register(session, initialize.body(), client);
        Ok(response)
    }

    /// A call of a legacy client. What concerns its session only is answered here.
    pub(super) async fn call_modern_server(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let session = call.session.as_ref().map(|session| self.clients.known(session));
        if let Some(session) = &session {
            session.touch(&call.client);
        }
        match (call.message.method().unwrap_or_default(), session) {
            ("ping", _) => done(&call.message),
            ("logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", None) => {
                let text = format!(
                    "{} needs a session: begin one with `initialize`",
                    call.message.method().unwrap_or_default()
                );
                refuse(&call.message, answer::INVALID_REQUEST, &text)
            }
            ("logging/setLevel", Some(session)) => set_level(&call.message, &session),
            ("resources/subscribe", Some(session)) => self.subscribe_to(&call.message, &session, &call.budget).await,
            ("resources/unsubscribe", Some(session)) => {
                session.unsubscribe(&parameter(&call.message, "uri").unwrap_or_default());
                done(&call.message)
            }
            (method, _) if bridge::is_of_other_era(method, Era::Legacy) => no_such_method(&call.message),
            (_, session) => self.translate_to_modern(call, session).await,
        }
    }

    async fn translate_to_modern(&self, call: Call, session: Option<Arc<LegacySession>>) -> Result<Replies, CallError> {
        let id = call.message.id().ok_or(CallError::NotSent)?;
        let (level, kind) = (session.as_ref().and_then(|session| session.level()), RequestKind::of(&call.message));
        let translated = match &session {
            Some(session) => session.client.request(&call.message, level.as_deref()),
            None => bridge::LegacyClient::default().request(&call.message, None),
        };
        let Ok(message) = translated else {
            return refuse(&call.message, answer::INVALID_PARAMS, "`params` and `params._meta` must be objects");
        };
        // It is dropped after the receiver below: a call that failed is forgotten.
        let translation = ForLegacy { session: session.clone(), id: id.clone(), kind };
        let cancelled = session.map(|session| session.begin(id));
        let relay = Relay { takes_interim: call.takes_interim, cancelled, beside: None };
        let called = self.inner.clone().call(Call { message, era: Era::Modern, session: None, ..call }).await?;
        Ok(relay.run(called, translation))
    }

    /// A subscription is granted once the server acknowledged it.
    async fn subscribe_to(
        &self,
        message: &Message,
        session: &Arc<LegacySession>,
        budget: &Budget,
    ) -> Result<Replies, CallError> {
        let Some(uri) = parameter(message, "uri").filter(|uri| !uri.is_empty()) else {
            return refuse(message, answer::INVALID_PARAMS, "`params.uri` must be a text");
        };
        let (subscribed, is_known) = session.subscriptions(&uri);
        if is_known {
            return done(message);
        }
        if uri.len() > LONGEST || subscribed >= MOST {
            let text = format!("a client can subscribe to {MOST} resources whose URIs have at most {LONGEST} bytes");
            return refuse(message, answer::INVALID_PARAMS, &text);
        }
        let counted = match self.clients.subscriptions.count(&uri, budget) {
            Ok(counted) => counted,
            Err(over) => {
                tracing::warn!(%over, "refusing a subscription: over the memory for subscriptions");
                let text = "no room for another subscription: unsubscribe from others first";
                return refuse(message, answer::INVALID_PARAMS, text);
            }
        };
        let mut granted = session.granted.subscribe();
        let generation = session.subscribe(&uri, counted);
        self.start_listening(session);
        let known = granted.wait_for(|granted| granted.generation >= generation);
        let known = tokio::time::timeout(GRANTING, known).await.map_err(|_elapsed| CallError::Timeout)?;
        if known.is_ok_and(|granted| granted.uris.contains(&uri)) {
            done(message)
        } else {
            session.unsubscribe(&uri);
            refuse(message, answer::INVALID_PARAMS, "the server grants no subscription to this resource")
        }
    }
}

// === impl ForLegacy ===

impl Translation for ForLegacy {
    fn before(&mut self, message: Message) -> BoxFuture<'_, Result<Option<Bytes>, CallError>> {
        // A modern server has no requests of its own.
        let is_notification = message.kind() == Kind::Notification;
        let notification = if is_notification { bridge::notification(&message).ok() } else { None };
        Box::pin(std::future::ready(Ok(notification)))
    }

    fn response(&mut self, response: &Message) -> Result<Message, CallError> {
        let none = bridge::LegacyClient::default();
        let client = self.session.as_ref().map_or(&none, |session| &session.client);
        client.response(self.kind, response).map_err(|_malformed| CallError::Malformed)
    }
}

impl Drop for ForLegacy {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.end_call(&self.id);
        }
    }
}

/// Each later call of the session asks for a log of this level.
fn set_level(message: &Message, session: &LegacySession) -> Result<Replies, CallError> {
    match parameter(message, "level").filter(|level| is_level(level)) {
        Some(level) => {
            session.set_level(&level);
            done(message)
        }
        None => {
            refuse(message, answer::INVALID_PARAMS, "`params.level` must be one of the levels of a log, such as `info`")
        }
    }
}
