//! Calls of modern clients at a legacy server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::{self, ModernClient, RequiredCapability};
use skep_mcp::{Era, Id, Kind, Message, Raw, answer};
use skep_net::Budget;

use super::relay::{Relay, Translation};
use super::servers::{Lease, OpenError};
use super::{BridgedUpstream, no_such_method, refuse};
use crate::error::CallError;
use crate::replies::Replies;
use crate::stdio::log_level::{is_level, level_of};
use crate::stdio::parameter;
use crate::upstream::{BoxFuture, Call, ClientContext, Upstream};

/// How long the server may take for what the bridge sends itself during a call.
pub(super) const OWN: Duration = Duration::from_secs(30);

/// The messages of one call.
struct ForModern {
    inner: Arc<dyn Upstream>,
    client: ModernClient,
    /// The id of the call at the server, by which progress is reported.
    wire: Id,
    /// How much of the log it asks for.
    level: Option<u8>,
    lease: Lease,
}

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// A call of a modern client. It goes through a session that the bridge opens.
    pub(super) async fn call_legacy_server(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let client = ModernClient::of(&call.message).ok_or(CallError::NotSent)?;
        match call.message.method().unwrap_or_default() {
            "server/discover" => self.discover(call, &client).await,
            "subscriptions/listen" => self.subscribe(call, client).await,
            method if bridge::is_of_other_era(method, Era::Modern) => no_such_method(&call.message),
            _ => self.translate_to_legacy(call, client).await,
        }
    }

    /// What the server said in `initialize` is what it is asked for.
    async fn discover(self: Arc<Self>, call: Call, client: &ModernClient) -> Result<Replies, CallError> {
        match self.lease(client, &call.client, &call.budget, false).await {
            Ok(lease) => {
                let response = bridge::discover_result(&call.message, &lease.session.initialized);
                response.map(Replies::ready).map_err(|_malformed| CallError::Malformed)
            }
            Err(error) => not_opened(error, client),
        }
    }

    async fn translate_to_legacy(self: Arc<Self>, call: Call, client: ModernClient) -> Result<Replies, CallError> {
        let level = bridge::log_level(&call.message);
        if level.as_deref().is_some_and(|level| !is_level(level)) {
            return refuse(
                &call.message,
                answer::INVALID_PARAMS,
                "`io.modelcontextprotocol/logLevel` is no level of a log",
            );
        }
        let lease = match self.lease(&client, &call.client, &call.budget, level.is_some()).await {
            Ok(lease) => lease,
            Err(error) => return not_opened(error, &client),
        };
        let session = lease.session.clone();
        let mut beside = None;
        if let Some(level) = level.as_deref().filter(|_| session.has_log()) {
            // Some servers write the log of a call where the session listens.
            beside = Some(self.inner.events(&session.id, call.budget.clone()));
            self.ask_for_log(&lease, level, &call.client).await;
        }
        let wire = self.new_id();
        let Ok(message) = client.request(&call.message, &wire) else {
            return refuse(&call.message, answer::INVALID_PARAMS, "`params` and `params._meta` must be objects");
        };
        let level = level.as_deref().map(level_of);
        let translation = ForModern { inner: self.inner.clone(), client, wire, level, lease };
        let takes_interim = call.takes_interim;
        // Also for a client that takes a response only: the server may ask something.
        let legacy = Call { message, era: Era::Legacy, session: Some(session.id.clone()), takes_interim: true, ..call };
        let called = self.inner.clone().call(legacy).await?;
        Ok(Relay { takes_interim, beside, cancelled: None }.run(called, translation))
    }

    /// Sets the level of the log for a session of the bridge. Without a response, the log is what the server makes of it.
    async fn ask_for_log(&self, lease: &Lease, level: &str, client: &ClientContext) {
        let params = format!(r#"{{"level":{}}}"#, Raw::string(level).as_str());
        let set = self.call_own("logging/setLevel", &params, lease, client);
        if set.await.is_none_or(|response| response.kind() == Kind::Error) {
            tracing::debug!("log level not set at the server");
        }
    }

    /// The response to a request of the bridge's own. Nothing if there is none in time.
    pub(super) async fn call_own(
        &self,
        method: &str,
        params: &str,
        lease: &Lease,
        client: &ClientContext,
    ) -> Option<Message> {
        self.call_within(method, params, lease, client, Budget::default()).await
    }

    /// The same in the share of a client.
    pub(super) async fn call_within(
        &self,
        method: &str,
        params: &str,
        lease: &Lease,
        client: &ClientContext,
        budget: Budget,
    ) -> Option<Message> {
        let id = self.new_id();
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let message = Message::parse(request.into()).ok()?;
        let (session, client) = (Some(lease.session.id.clone()), client.clone());
        let call = Call { session, client, budget, ..Call::new(message, Era::Legacy) };
        let responded = async { self.inner.clone().call(call).await?.response.response().await };
        tokio::time::timeout(OWN, responded).await.ok()?.ok()
    }
}

// === impl ForModern ===

impl ForModern {
    /// A notification as the client gets it, if it is one that may come during a call.
    fn notification(&self, message: &Message) -> Option<Bytes> {
        match message.method()? {
            "notifications/progress" => {
                let is_own = message.progress_token().as_ref() == Some(&self.wire);
                is_own.then(|| self.client.progress(message))?.map(Message::into_body)
            }
            "notifications/message" => {
                let level = parameter(message, "level").map_or(7, |level| level_of(&level));
                self.level.is_some_and(|wanted| level <= wanted).then(|| message.body().clone())
            }
            // These are for subscriptions.
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/cancelled" => None,
            method if bridge::is_of_other_era(method, Era::Modern) => None,
            _ => Some(message.body().clone()),
        }
    }

    /// Refuses a request of the server, which ends the call if the client would have to answer it.
    async fn refuse(&self, request: &Message) -> Result<Option<Bytes>, CallError> {
        let required = RequiredCapability::of(request);
        let method = request.method().unwrap_or_default();
        tracing::debug!(method, "refusing a request of a server: its client speaks 2026-07-28");
        let text =
            format!("{method}: the client speaks another protocol version, in which it cannot be asked during a call");
        let refusal = answer::error(request.id().as_ref(), answer::METHOD_NOT_FOUND, &text, None);
        if let Ok(refusal) = Message::parse(refusal) {
            let sent = self.inner.send(Some(&self.lease.session.id), &refusal);
            let _not_sent = tokio::time::timeout(OWN, sent).await;
        }
        match required {
            Some(required) => Err(CallError::NeedsClient(Box::new(self.client.refusal(&required)))),
            None => Ok(None),
        }
    }
}

impl Translation for ForModern {
    fn before(&mut self, message: Message) -> BoxFuture<'_, Result<Option<Bytes>, CallError>> {
        Box::pin(async move {
            match message.kind() {
                Kind::Request => self.refuse(&message).await,
                Kind::Notification => Ok(self.notification(&message)),
                Kind::Response | Kind::Error => Ok(None),
            }
        })
    }

    fn response(&mut self, response: &Message) -> Result<Message, CallError> {
        let server = self.lease.session.server.as_ref();
        self.client.response(response, server).map_err(|_malformed| CallError::Malformed)
    }
}

/// The response to a call for which there is no session.
pub(super) fn not_opened(error: OpenError, client: &ModernClient) -> Result<Replies, CallError> {
    match error {
        OpenError::Call(error) => Err(error),
        OpenError::Refused(refused) => {
            let response = client.response(&refused, None);
            response.map(Replies::ready).map_err(|_malformed| CallError::Malformed)
        }
    }
}
