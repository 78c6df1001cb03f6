//! One request, from its head to the end of its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Response};
use serde_json::Value;
use skep_auth::delegation::Delegation;
use skep_mcp::{Message, value};
use skep_net::Body;
use skep_telemetry::audit::{
    Data, Event, EventType, Extra, Framing, Outcome, ReplyScan, Source, Subjects, Target, TargetType,
};
use skep_upstream::ItemOwner;

use super::Recorder;
use crate::caller::Caller;
use crate::chain::{AnswerReason, AnsweredBy, AskedAs, AuditNotes, MutatedBy};
use crate::exchange::{Exchange, Head};
use crate::http::{accepts, is_of_type};
use crate::observe::Observation;

/// Where 2026-07-28 has the client in a message, and where `initialize` has it.
const CLIENT_INFO: [&[&str]; 2] = [&["_meta", "io.modelcontextprotocol/clientInfo"], &["clientInfo"]];

/// A request that is recorded when it is dropped, unless it was before.
#[derive(Debug)]
pub(super) struct Record {
    recorder: Arc<Recorder>,
    started: Instant,
    /// Whether it opens a stream of events, which is recorded when it opens.
    opens_stream: bool,
    /// The event, once it is known that it is written and until it is.
    event: Option<Box<Event>>,
    /// Whether the request was described as it went to the server.
    is_described: bool,
    scan: Option<ReplyScan>,
    size: u64,
    kept: Vec<u8>,
    is_complete: bool,
}

// === impl Record ===

impl Record {
    /// A request that begins. Its event says from the start what is known, so that one whose client leaves is recorded as well.
    pub(super) fn new(recorder: Arc<Recorder>, head: &Head) -> Self {
        let opens_stream = head.method == Method::GET && accepts(&head.headers, "text/event-stream");
        let kind = if opens_stream { EventType::SseConnection } else { EventType::HttpRequest };
        let event = Event {
            kind,
            outcome: Outcome::Error,
            component: recorder.component.clone(),
            source: Source {
                value: head.address.to_string(),
                is_local: false,
                user_agent: header(&head.headers, USER_AGENT.as_str()),
                request_id: header(&head.headers, "x-request-id"),
            },
            subjects: Subjects { user: skep_auth::ANONYMOUS.to_owned(), ..Subjects::default() },
            delegation: None,
            target: Some(Target {
                endpoint: head.uri.path().to_owned(),
                method: head.method.as_str().to_owned(),
                kind: if opens_stream { TargetType::SseEndpoint } else { TargetType::Endpoint },
                name: String::new(),
            }),
            extra: Extra { transport: recorder.transport, backend_name: recorder.server.clone(), ..Extra::default() },
            request: None,
            response: None,
        };
        Self {
            recorder,
            started: Instant::now(),
            opens_stream,
            event: Some(Box::new(event)),
            is_described: false,
            scan: None,
            size: 0,
            kept: Vec::new(),
            is_complete: false,
        }
    }

    /// Adds what is known of a request whose head was accepted.
    fn describe(&mut self, exchange: &Exchange) {
        let Some(event) = &mut self.event else { return };
        if let Some(caller) = &exchange.head.caller {
            event.subjects.user_id = caller.identity.subject.to_string();
            event.subjects.user = user(caller);
            event.delegation =
                Delegation::of(&caller.claims, self.recorder.delegation_depth).map(|chain| chain.to_json());
        }
        let claims = exchange.head.caller.as_ref().map(|caller| &*caller.claims);
        let claim = |name: &str| claims.and_then(|claims| claims.get(name)).and_then(Value::as_str).map(Cow::Borrowed);
        let info = |member: &str| client_info(exchange.message()?, member);
        let text = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).unwrap_or_default();
        event.subjects.client_name = text(claim("client_name").or_else(|| info("name")));
        event.subjects.client_version = text(claim("client_version").or_else(|| info("version")));
        if let (Some(method), Some(target), false) = (exchange.mcp_method(), &mut event.target, self.opens_stream) {
            event.kind = EventType::of_method(method);
            method.clone_into(&mut target.method);
            target.kind = TargetType::of_method(method);
            let named = target.kind != TargetType::Endpoint && !method.ends_with("/list");
            target.name = text(exchange.resource().filter(|_| named));
        }
        // What the client asked for, and not what a middleware made of it.
        if let (Some(AskedAs { method, name }), Some(target)) = (exchange.notes.get(), &mut event.target) {
            event.kind = EventType::of_method(method);
            let (method, name) = ((*method).to_owned(), (*name).to_owned());
            *target = Target { kind: TargetType::of_method(&method), method, name, endpoint: target.endpoint.clone() };
        }
        // Of several servers, the one that the request is for.
        match exchange.owner() {
            None => {}
            Some(ItemOwner::Backend(name)) => event.extra.backend_name = name.to_string(),
            Some(ItemOwner::Composed | ItemOwner::Unknown) => event.extra.backend_name.clear(),
        }
        // Policies of a denial come with its response.
        if let Some(notes) = exchange.notes.get::<AuditNotes>() {
            event.extra.policies.clone_from(&notes.policies);
        }
        if let Some(MutatedBy(webhooks)) = exchange.notes.get() {
            event.extra.mutated_by.clone_from(webhooks);
        }
        let limit = self.recorder.request_data;
        event.request = limit.and_then(|limit| Data::of_request(exchange.content.bytes(), limit));
    }

    /// Writes the event, as far as the response came.
    fn write(&mut self) {
        let Some(mut event) = self.event.take().filter(|event| self.recorder.filter.writes(event.kind)) else { return };
        if let Some(error) = self.scan.as_mut().and_then(ReplyScan::finish) {
            event.outcome = event.outcome.with_error_reply();
            event.extra.error = Some(error);
        }
        event.extra.duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        event.extra.response_size_bytes = self.size;
        event.extra.incomplete = !self.is_complete;
        event.response = Data::of_response(&self.kept, self.size > self.kept.len() as u64);
        self.recorder.log.write(&event);
    }

    fn see(&mut self, bytes: &[u8]) {
        self.size = self.size.saturating_add(bytes.len() as u64);
        if let Some(limit) = self.recorder.response_data {
            let room = limit.saturating_sub(self.kept.len());
            self.kept.extend(bytes.iter().take(room));
        }
        if let Some(scan) = &mut self.scan {
            scan.feed(bytes);
        }
    }
}

impl Observation for Record {
    fn forwarded(&mut self, exchange: &mut Exchange) {
        self.describe(exchange);
        self.is_described = true;
    }

    fn answered(&mut self, exchange: &Exchange, response: &Response<Body>) {
        // What went to the server was described then: by now its body may be released.
        if !self.is_described {
            self.describe(exchange);
        }
        let Some(event) = &mut self.event else { return };
        let found = response.extensions();
        event.outcome = Outcome::of_status(response.status().as_u16());
        if let Some(AnsweredBy(kind)) = found.get() {
            event.extra.denied_by = kind.to_string();
        }
        if let Some(AnswerReason(reason)) = found.get() {
            event.extra.denial_reason.clone_from(reason);
        }
        if let Some(notes) = found.get::<AuditNotes>() {
            event.outcome = Outcome::Denied;
            event.extra.denial_reason.clone_from(&notes.reason);
            event.extra.policies.clone_from(&notes.policies);
        }
        if self.opens_stream {
            self.is_complete = true;
            self.write();
        } else if self.recorder.detects_errors && event.outcome == Outcome::Success {
            self.scan = framing(response).map(ReplyScan::new);
        }
    }

    fn sees_response(&self) -> bool {
        self.event.is_some()
    }

    fn part(&mut self, bytes: &[u8]) {
        self.see(bytes);
    }

    fn late_reply(&mut self, event: &[u8]) {
        self.scan = self.recorder.detects_errors.then(|| ReplyScan::new(Framing::Events));
        self.see(event);
    }

    fn ended(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.write();
    }
}

/// How a response frames its messages. Nothing if it has none, or is compressed.
fn framing(response: &Response<Body>) -> Option<Framing> {
    let headers = response.headers();
    if headers.contains_key(http::header::CONTENT_ENCODING) {
        return None;
    }
    let kind = headers.get(CONTENT_TYPE);
    if is_of_type(kind, "text/event-stream") {
        return Some(Framing::Events);
    }
    (kind.is_none() || is_of_type(kind, "application/json")).then_some(Framing::Json)
}

/// The name of a user, as its issuer has it.
fn user(caller: &Caller) -> String {
    match &*caller.identity.name {
        "" => skep_auth::ANONYMOUS.to_owned(),
        name => name.to_owned(),
    }
}

/// What a message says about the program of its client.
fn client_info<'a>(message: &'a Message, member: &str) -> Option<Cow<'a, str>> {
    let params = message.params()?;
    CLIENT_INFO.iter().find_map(|path| value::find_text(params, &[path, &[member][..]].concat()))
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}
