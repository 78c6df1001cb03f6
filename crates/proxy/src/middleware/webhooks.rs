//! Calls webhooks with the messages of clients: those that may change a message first, then those that allow or deny it. See
//! [`skep_webhook`] for the protocol and the table of outcomes.
//!
//! Webhooks judge every request and notification, whatever HTTP method and media type it came with; a body that cannot be parsed is
//! refused, because the server might read it. After a mutation the message is parsed again, and every enforcing middleware runs again on
//! it. Clients learn that they are denied and not why; the reason is logged.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use skep_mcp::{Kind as MessageKind, Malformed, Message, answer, value};
use skep_net::budget::{OverBudgetError, Purpose};
use skep_net::{Body, Peer};
use skep_runconfig::parameters;
use skep_runconfig::run_config::MiddlewareConfig;
use skep_webhook::outcome::{Outcome, check, decide};
use skep_webhook::payload::{self, Payload};
use skep_webhook::response::Answer;
use skep_webhook::service::Call;
use skep_webhook::{CallError, Cause, Kind, MOST_BYTES, Service, WebhookConfig};
use uuid::Uuid;

use super::parser::refuse_unreadable;
use crate::chain::{AnswerReason, AuditNotes, ChainError, Context, Flow, Middleware, MutatedBy, Pass, Step};
use crate::exchange::{Exchange, Head};
use crate::http::{json, over_budget};

/// Lets webhooks change messages.
#[derive(Debug)]
struct Mutating(Arc<Webhooks>);

/// Lets webhooks allow or deny messages.
#[derive(Debug)]
struct Validating(Arc<Webhooks>);

/// Webhooks of one kind, in the order in which they are called.
#[derive(Debug)]
struct Webhooks {
    services: Vec<Arc<Service>>,
    server: String,
    transport: String,
}

/// The messages that validating webhooks allowed, so that none is asked twice about the same one.
#[derive(Clone, Default)]
struct Allowed(Vec<(Arc<Webhooks>, u32)>);

/// The part of a call that all webhooks of one request share.
struct Sender {
    principal: Value,
    context: payload::Context,
}

pub(super) fn build_mutating(
    config: &MiddlewareConfig,
    context: &Context,
) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(Mutating(Webhooks::new(config, context)?))
}

pub(super) fn build_validating(
    config: &MiddlewareConfig,
    context: &Context,
) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(Validating(Webhooks::new(config, context)?))
}

// === impl Webhooks ===

impl Webhooks {
    fn new(config: &MiddlewareConfig, context: &Context) -> Result<Arc<Self>, ChainError> {
        let parameters = super::parameters::<parameters::Webhooks>(config)?;
        let service = |webhook| {
            let webhook = WebhookConfig::new(webhook, &context.environment)?;
            Service::new(webhook, context.addresses, context.files.clone()).map(Arc::new)
        };
        let services = parameters.webhooks.iter().map(service).collect::<Result<Vec<_>, _>>();
        let services = services.map_err(|error| super::invalid(&config.kind, error.to_string()))?;
        if services.is_empty() {
            return Err(super::invalid(
                &config.kind,
                "there is no webhook; name at least one in `webhooks`".to_owned(),
            ));
        }
        Ok(Arc::new(Self { services, server: parameters.server_name, transport: parameters.transport }))
    }

    fn sender(&self, head: &Head) -> Sender {
        let context = payload::Context {
            server_name: self.server.clone(),
            source_ip: source(head),
            transport: self.transport.clone(),
        };
        Sender { principal: payload::principal(head.caller.as_ref()), context }
    }

    /// Calls one webhook with a message.
    async fn call(
        service: &Arc<Service>,
        kind: Kind,
        uid: &str,
        sender: &Sender,
        message: &Message,
        head: &Head,
    ) -> Result<Option<Bytes>, Response<Body>> {
        let (now, Sender { principal, context }) = (Timestamp::now(), sender);
        let payload = Payload { uid, timestamp: &now.to_string(), principal, message, context }.to_bytes();
        let budget = &head.budget;
        let no_room = |error: OverBudgetError| over_budget(&error, message.id().as_ref());
        let mut reserved = budget.reserve(payload.len(), Purpose::Request).map_err(no_room)?;
        let call = Call { uid, now: now.as_second(), body: payload.into(), budget, held: &mut reserved };
        let answer = match service.call(call).await {
            // No fault of the webhook, so no failure policy lets the message pass.
            Err(CallError::OverBudget(error)) => return Err(no_room(error)),
            answer => answer,
        };
        if let (Kind::Mutating, Ok(Answer::Allowed(Ok(Some(patch))))) = (kind, &answer) {
            reserved.grow(patch.memory(message)).map_err(no_room)?;
        }
        match decide(kind, service.config().failure_policy, answer, message) {
            Outcome::Next(patched) => {
                patched.map(|patched| budget.hold(patched, Purpose::Request)).transpose().map_err(no_room)
            }
            Outcome::Skipped(cause) => {
                log(service, kind, head, &cause, "webhook failed, and is ignored");
                Ok(None)
            }
            Outcome::Refused(cause) => {
                log(service, kind, head, &cause, "request denied by a webhook");
                Err(refuse(kind, Some(service), &cause, message))
            }
        }
    }

    /// What mutating webhooks make of a message, and which of them; each sees what the one before it made.
    async fn mutate(&self, message: &Message, head: &Head) -> Result<Option<(Message, MutatedBy)>, Response<Body>> {
        let (sender, mut current, mut by) = (self.sender(head), None, MutatedBy::default());
        for service in &self.services {
            let uid = Uuid::new_v4().to_string();
            let seen = current.as_ref().unwrap_or(message);
            let Some(patched) = Self::call(service, Kind::Mutating, &uid, &sender, seen, head).await? else { continue };
            let patched = check(message, patched).map_err(|cause| {
                log(service, Kind::Mutating, head, &cause, "request denied: a webhook made it invalid");
                refuse(Kind::Mutating, Some(service), &cause, message)
            })?;
            current = Some(patched);
            by.0.push(service.config().name.clone());
        }
        Ok(current.map(|mutated| (mutated, by)))
    }

    /// Asks validating webhooks; the first denial counts.
    async fn validate(&self, message: &Message, head: &Head) -> Result<(), Response<Body>> {
        let (sender, uid) = (self.sender(head), Uuid::new_v4().to_string());
        for service in &self.services {
            Self::call(service, Kind::Validating, &uid, &sender, message, head).await?;
        }
        Ok(())
    }
}

// === impl Mutating ===

impl Middleware for Mutating {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        let message = match judged(exchange, Kind::Mutating) {
            Ok(Some(message)) => message,
            Ok(None) => return Step::NEXT,
            Err(refusal) => return (*refusal).into(),
        };
        Step::Pending(Box::pin(async move {
            match self.0.mutate(&message, &exchange.head).await {
                Ok(None) => Flow::Next,
                Ok(Some((mutated, by))) => {
                    exchange.replace(mutated);
                    exchange.notes.get_or_insert_default::<MutatedBy>().0.extend(by.0);
                    Flow::Next
                }
                Err(refusal) => Flow::Answer(refusal),
            }
        }))
    }

    fn needs_message(&self) -> bool {
        true
    }
}

// === impl Validating ===

impl Middleware for Validating {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        let message = match judged(exchange, Kind::Validating) {
            Ok(Some(message)) => message,
            Ok(None) => return Step::NEXT,
            Err(refusal) => return (*refusal).into(),
        };
        let (allowed, revision) = (exchange.notes.get::<Allowed>(), exchange.revision());
        if allowed.is_some_and(|allowed| allowed.has(&self.0, revision)) {
            return Step::NEXT;
        }
        Step::Pending(Box::pin(async move {
            match self.0.validate(&message, &exchange.head).await {
                Ok(()) => {
                    let allowed = exchange.notes.get_or_insert_default::<Allowed>();
                    allowed.0.push((self.0.clone(), revision));
                    Flow::Next
                }
                Err(refusal) => Flow::Answer(refusal),
            }
        }))
    }

    fn enforces(&self) -> bool {
        true
    }

    fn needs_message(&self) -> bool {
        true
    }
}

// === impl Allowed ===

impl Allowed {
    fn has(&self, webhooks: &Arc<Webhooks>, revision: u32) -> bool {
        self.0.iter().any(|(by, allowed)| Arc::ptr_eq(by, webhooks) && *allowed == revision)
    }
}

/// The message that webhooks judge; nothing if the request carries none, or a client's answer to the server.
fn judged(exchange: &Exchange, kind: Kind) -> Result<Option<Message>, Box<Response<Body>>> {
    if let Some(refusal) = refuse_unreadable(exchange) {
        return Err(Box::new(refusal));
    }
    let is_judged = |message: &&Message| matches!(message.kind(), MessageKind::Request | MessageKind::Notification);
    match exchange.message().filter(is_judged) {
        Some(message) if message.body().len() > MOST_BYTES => {
            Err(Box::new(refuse(kind, None, &Cause::TooLarge, message)))
        }
        message => Ok(message.cloned()),
    }
}

/// The address that a request came from, with its port unless a trusted proxy named the client.
fn source(head: &Head) -> String {
    let peer = head.peer.address;
    if head.client == Peer::network(peer.ip()) { peer.to_string() } else { head.client.to_string() }
}

/// The response to a request that does not go on. It says nothing that the webhook said, nor does the audit log: that one names the webhook
/// and the kind of cause.
fn refuse(kind: Kind, service: Option<&Service>, cause: &Cause, message: &Message) -> Response<Body> {
    let webhook = service.map(|service| format!(" `{}`", service.config().name)).unwrap_or_default();
    let reason = format!("{} webhook{webhook}: {}", kind.name(), cause.category());
    let mut response = refused(kind, cause, message);
    if matches!(cause, Cause::Denied { .. } | Cause::Unprocessable) {
        response.extensions_mut().insert(AuditNotes { reason, ..AuditNotes::default() });
    } else {
        response.extensions_mut().insert(AnswerReason(reason));
    }
    response
}

fn refused(kind: Kind, cause: &Cause, message: &Message) -> Response<Body> {
    if matches!(cause, Cause::InvalidMessage(Malformed::Batch)) {
        return json(StatusCode::BAD_REQUEST, answer::batch_refused());
    }
    let refusal = cause.refusal(kind);
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let id = Some(message).filter(|message| message.kind() == MessageKind::Request).and_then(Message::id);
    json(status, answer::error(id.as_ref(), refusal.code, refusal.message, None))
}

/// What happened, for operators. Texts of a webhook are cut.
fn log(service: &Service, kind: Kind, head: &Head, cause: &Cause, text: &'static str) {
    let webhook = service.config().name.as_str();
    let subject = head.identity().map(|identity| identity.subject.clone()).unwrap_or_default();
    let subject = value::clipped(&subject);
    match cause {
        Cause::Denied { message, reason } => {
            // A field of the name `message` would take the place of the text.
            let (said, reason) = (value::clipped(message), value::clipped(reason));
            tracing::warn!(webhook, ?kind, ?subject, ?said, ?reason, "{text}");
        }
        Cause::Failed(error) => tracing::warn!(webhook, ?kind, ?subject, %error, "{text}"),
        Cause::Patch(error) => tracing::warn!(webhook, ?kind, ?subject, %error, "{text}"),
        cause => tracing::warn!(webhook, ?kind, ?subject, ?cause, "{text}"),
    }
}
