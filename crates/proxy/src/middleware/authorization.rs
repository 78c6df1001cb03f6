//! Authorizes what clients ask for, and filters lists down to what they may use. See [`skep_authz`] for the engines.
//!
//! A decision is made on the message that will be sent, so it is made again after a mutation. Whatever cannot be evaluated is denied or
//! withheld. Clients learn that they are denied and not why; the reason is logged.
//!
//! Where a decision may depend on what a tool says about itself, and no list has said that yet, the tools are listed before the call: a list
//! and a call must never disagree, whichever comes first and whichever replica gets it. A tool that is in no list is denied then.

mod backends;
mod denial_log;
mod known_tools;
mod lists;
mod subscriptions;

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value};
use skep_auth::Identity;
use skep_authz::cedar::Cedar;
use skep_authz::pdp::Pdp;
use skep_authz::query::{Annotations, Feature, Query, Treatment};
use skep_authz::{Decision, Engine};
use skep_mcp::{Kind, Message, answer, method};
use skep_net::body::{Limit, collect};
use skep_net::tls::Trust;
use skep_net::{Body, Client};
use skep_runconfig::run_config::MiddlewareConfig;
use skep_runconfig::{Json, parameters};

use self::denial_log::DenialLog;
use self::known_tools::KnownTools;
use self::lists::{ListFilter, Listed};
use super::parser::refuse_unreadable;
use crate::chain::{AuditNotes, ChainError, Context, Flow, Middleware, Pass, Step};
use crate::exchange::Exchange;
use crate::http::{JSON, is_of_type, json, text};

/// The largest configuration that is read from a file, in bytes.
const LARGEST: u64 = 1024 * 1024;
/// The longest arguments that a decision point is sent, and the longest answer that it may send, in bytes.
const PDP_BYTES: usize = 256 * 1024;
const NO_CALLER: &str = "the request has no caller";
/// The code of an error that says no more than that the request is denied.
const DENIED: i64 = 403;

/// Authorizes requests.
#[derive(Debug)]
pub(super) struct Authorization(Arc<Authorizer>);

/// The messages that were authorized in the first pass: the same message is not decided about again.
#[derive(Clone, Debug, Default)]
struct Authorized(Vec<(Arc<Authorizer>, Seen)>);

/// A message of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// How often the message was replaced before.
    revision: u32,
    treatment: Option<Treatment>,
}

/// What decides.
#[derive(Debug)]
struct Authorizer {
    engine: Decider,
    server: String,
    /// What tools said about themselves when each client last listed them.
    tools: KnownTools,
    denials: DenialLog,
}

#[derive(Debug)]
enum Decider {
    Cedar(Box<Cedar>),
    Http(Pdp, Client),
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let parameters = super::parameters::<parameters::Authorization>(config)?;
    let engine = settings(&parameters).and_then(|settings| Engine::new(&settings).map_err(|error| error.to_string()));
    let engine = match engine.map_err(|problem| super::invalid(&config.kind, problem))? {
        Engine::Cedar(cedar) => Decider::Cedar(cedar),
        Engine::Http(pdp) => {
            let client = client(&pdp, context);
            Decider::Http(pdp, client)
        }
    };
    let tools = KnownTools::within(context.caches.annotations);
    let (server, denials) = (context.server.clone(), DenialLog::default());
    super::some(Authorization(Arc::new(Authorizer { engine, server, tools, denials })))
}

/// The settings, in the RunConfig or in a file.
fn settings(parameters: &parameters::Authorization) -> Result<Value, String> {
    let path = &parameters.config_path;
    let text = if path.is_empty() {
        parameters.config_data.to_compact()
    } else if path.split('/').any(|part| part == "..") {
        return Err(format!("config_path: `{path}` may not contain `..`"));
    } else {
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
        let read = read.map_err(|error| format!("config_path: cannot read `{path}`: {error}"))?;
        if read as u64 > LARGEST {
            return Err(format!("config_path: `{path}` has more than {LARGEST} bytes"));
        }
        text
    };
    let settings = Json::from_yaml(&text).map_err(|error| format!("the authorization configuration: {error}"))?;
    serde_json::from_str(&settings.to_compact()).map_err(|error| format!("the authorization configuration: {error}"))
}

fn client(pdp: &Pdp, context: &Context) -> Client {
    let trust = if pdp.insecure_skip_verify { Trust::DangerouslyAnyone } else { Trust::System };
    Client::new(skep_net::client::Options { addresses: context.addresses, trust, ..Default::default() })
}

// === impl Authorizer ===

impl Authorizer {
    /// Asks a decision point. Whatever is not a clear yes is a no.
    async fn ask(
        &self,
        pdp: &Pdp,
        client: &Client,
        claims: &Map<String, Value>,
        query: &Query<'_>,
        arguments: Option<&str>,
    ) -> Decision {
        let mut request = Request::new(Body::full(pdp.question(claims, query, arguments, &self.server)));
        *request.method_mut() = Method::POST;
        request.headers_mut().extend([(CONTENT_TYPE, JSON), (ACCEPT, JSON)]);
        let Ok(uri) = pdp.url.parse() else { return Decision::failed("the URL of the decision point is not valid") };
        *request.uri_mut() = uri;
        let timeout = Duration::from_secs(pdp.timeout);
        let asked = async {
            let (parts, body) = client.send(request).await.map_err(|error| error.to_string())?.into_parts();
            let limit = Limit { bytes: PDP_BYTES, idle: timeout, pace: 1 };
            let body = collect(body, limit).await.map_err(|error| error.to_string())?;
            Ok::<_, String>((parts.status, body))
        };
        match tokio::time::timeout(timeout, asked).await {
            Ok(Ok((status, body))) if Pdp::is_allowed(status.as_u16(), &body) => by_decision_point(),
            Ok(Ok(_)) => Decision::default(),
            Ok(Err(error)) => Decision::failed(format!("the decision point fails: {error}")),
            Err(_elapsed) => Decision::failed("the decision point did not answer in time"),
        }
    }

    /// A decision for the audit log: the policies with where they stand.
    fn explained(&self, decision: &Decision) -> AuditNotes {
        let policies = match &self.engine {
            Decider::Cedar(cedar) => decision.policies.iter().map(|policy| cedar.explained(policy)).collect(),
            Decider::Http(..) => decision.policies.clone(),
        };
        AuditNotes { reason: decision.reason(), policies }
    }

    /// Whether a decision may depend on what a tool says about itself. Of a decision point, that is not known.
    fn needs_annotations(&self) -> bool {
        match &self.engine {
            Decider::Cedar(cedar) => cedar.needs_annotations(),
            Decider::Http(..) => true,
        }
    }

    /// Remembers what the tools of a list say about themselves to a client.
    fn remember(&self, client: &str, elements: &[Listed]) {
        let tools = elements.iter().filter(|element| element.is_tool());
        self.tools.remember(client, tools.map(|tool| (tool.name.as_str(), tool.annotations)));
    }

    /// What a tool says about itself to the client of an exchange, for a decision about a call of it.
    fn annotations(&self, exchange: &Exchange, feature: Feature, id: &str) -> Result<Annotations, Decision> {
        if feature != Feature::Tool || !self.needs_annotations() {
            return Ok(Annotations::default());
        }
        let known = exchange.head.identity().and_then(|identity| self.tools.annotations(&identity.key(), id));
        known.ok_or_else(|| Decision::failed("annotations of the tool are not known"))
    }
}

/// A decision point permits.
fn by_decision_point() -> Decision {
    Decision { is_allowed: true, policies: vec!["the decision point".to_owned()], errors: Vec::new() }
}

/// The arguments of a call as its client wrote them, for a decision point that is sent them.
fn raw_arguments<'a>(pdp: &Pdp, message: &'a Message) -> Result<Option<&'a str>, Decision> {
    match method::arguments(message).filter(|_| pdp.includes_arguments()) {
        None => Ok(None),
        Some(arguments) if arguments.len() > PDP_BYTES => {
            Err(Decision::failed(format!("the arguments have more than {PDP_BYTES} bytes")))
        }
        Some(arguments) => {
            std::str::from_utf8(arguments).map(Some).map_err(|_| Decision::failed("the arguments cannot be read"))
        }
    }
}

// === impl Authorization ===

impl Authorization {
    /// Decides about what a message names.
    fn decide<'a>(&'a self, exchange: &'a mut Exchange, feature: Feature) -> Step<'a> {
        match &self.0.engine {
            Decider::Cedar(cedar) => {
                let decision = self.by_cedar(cedar, exchange, feature).unwrap_or_else(|failed| failed);
                Step::Ready(self.settled(exchange, &decision))
            }
            Decider::Http(pdp, client) => Step::Pending(Box::pin(async move {
                let decision = self.by_asking(pdp, client, exchange, feature).await.unwrap_or_else(|failed| failed);
                self.settled(exchange, &decision)
            })),
        }
    }

    fn by_cedar(&self, cedar: &Cedar, exchange: &Exchange, feature: Feature) -> Result<Decision, Decision> {
        let (message, claims, id) = subject_matter(exchange)?;
        let annotations = self.0.annotations(exchange, feature, &id)?;
        let arguments = method::arguments(message).map(|arguments| cedar.arguments(arguments)).transpose()?;
        let (operation, arguments) = (feature.operation(), arguments.as_ref());
        let backend = self.0.backend(exchange)?;
        let query = Query { feature, operation, id: &id, arguments, annotations, backend: backend.as_deref() };
        Ok(cedar.decide(&cedar.principal(claims)?, &query, &self.0.server))
    }

    async fn by_asking(
        &self,
        pdp: &Pdp,
        client: &Client,
        exchange: &Exchange,
        feature: Feature,
    ) -> Result<Decision, Decision> {
        let (message, claims, id) = subject_matter(exchange)?;
        let annotations = self.0.annotations(exchange, feature, &id)?;
        let arguments = raw_arguments(pdp, message)?;
        Ok(self.0.ask(pdp, client, claims, &Query::of_element(feature, &id, annotations), arguments).await)
    }

    /// What becomes of a request that was decided about. The deciding policies are noted for the audit log either way.
    fn settled(&self, exchange: &mut Exchange, decision: &Decision) -> Flow {
        if !decision.is_allowed {
            return Flow::Answer(self.deny(exchange, decision));
        }
        exchange.notes.insert(self.0.explained(decision));
        Flow::Next
    }

    fn deny(&self, exchange: &Exchange, decision: &Decision) -> Response<Body> {
        self.0.denials.write(exchange, decision);
        deny(exchange, self.0.explained(decision))
    }

    fn fail<'a>(&self, exchange: &Exchange, reason: &str) -> Step<'a> {
        self.deny(exchange, &Decision::failed(reason)).into()
    }

    /// Filters the lists of replies: those to this request, or all of a stream that is opened for others.
    fn filter(&self, exchange: &mut Exchange, treatment: Option<Treatment>) {
        let Some(caller) = &exchange.head.caller else { return };
        let backends = exchange.backends.clone().filter(|_| self.0.needs_backends());
        let filter = Arc::new(ListFilter::new(&self.0, caller, backends));
        exchange.head.watch_other_replies(filter.clone());
        if exchange.head.method != Method::POST || matches!(treatment, None | Some(Treatment::Filter(_))) {
            exchange.head.watch_replies(filter);
        }
    }

    /// The last message of an exchange that it authorized.
    fn seen(&self, exchange: &Exchange) -> Option<Seen> {
        let authorized = exchange.notes.get::<Authorized>()?;
        authorized.0.iter().rev().find(|(by, _)| Arc::ptr_eq(by, &self.0)).map(|(_, seen)| *seen)
    }

    /// Decides about a message that it has not seen, or denies it.
    fn authorize<'a>(&'a self, exchange: &'a mut Exchange, treatment: Option<Treatment>) -> Step<'a> {
        if exchange.head.method != Method::POST {
            // A message in it would not be decided about.
            return match (refuse_unreadable(exchange), exchange.message()) {
                (Some(refusal), _) => refusal.into(),
                (None, Some(_)) => refuse_malformed().into(),
                (None, None) => Step::NEXT,
            };
        }
        let is_json = is_of_type(exchange.head.headers.get(CONTENT_TYPE), "application/json");
        let Some(message) = exchange.message().filter(|_| is_json && refuse_unreadable(exchange).is_none()) else {
            return refuse_malformed().into();
        };
        // What a client answers to a request of the server is bound to that request elsewhere.
        if matches!(message.kind(), Kind::Response | Kind::Error) {
            return Step::NEXT;
        }
        match treatment {
            Some(Treatment::Allow | Treatment::Filter(_)) => Step::NEXT,
            None | Some(Treatment::Deny) => self.fail(exchange, "the method is not one that can be authorized"),
            Some(Treatment::Decide(feature)) => self.decide(exchange, feature),
            Some(Treatment::DecideEach(feature)) => self.decide_each(exchange, feature),
        }
    }
}

impl Middleware for Authorization {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        if exchange.head.caller.is_none() {
            return self.fail(exchange, NO_CALLER);
        }
        let treatment = exchange.message().and_then(Message::method).map(Treatment::of);
        let (before, now) = (self.seen(exchange), Seen { revision: exchange.revision(), treatment });
        if before == Some(now) {
            return Step::NEXT;
        }
        // Again after a mutation, if the message is one for a list by now. Two filters would decide about each element twice.
        if before.is_none_or(|before| before.treatment != treatment) {
            self.filter(exchange, treatment);
        }
        // Before the decision: a denial ends the exchange.
        exchange.notes.get_or_insert_default::<Authorized>().0.push((self.0.clone(), now));
        self.authorize(exchange, treatment)
    }

    fn enforces(&self) -> bool {
        true
    }

    fn needs_backends(&self, exchange: &Exchange) -> bool {
        backends::are_named_in(exchange) && self.0.needs_backends()
    }

    fn needs_tools(&self, exchange: &Exchange) -> bool {
        let called = exchange.message().filter(|message| message.method() == Some("tools/call"));
        let Some(tool) = called.and_then(method::resource) else { return false };
        let is_known =
            |client: &str| self.0.tools.annotations(client, &tool).is_some() || self.0.tools.were_listed(client);
        self.0.needs_annotations() && exchange.head.identity().is_some_and(|identity| !is_known(&identity.key()))
    }

    fn learn_tools(&self, exchange: &Exchange, pages: &[Message]) {
        let Some(client) = exchange.head.identity().map(Identity::key) else { return };
        for page in pages {
            match lists::elements(page) {
                Ok(elements) => self.0.remember(&client, &elements),
                Err(withheld) => {
                    tracing::warn!(%withheld, "skipping malformed list of tools");
                    return;
                }
            }
        }
        self.0.tools.listed(&client);
    }

    fn needs_message(&self) -> bool {
        true
    }
}

/// What a decision is about: a message, the claims of its client, and what the message names.
type SubjectMatter<'a> = (&'a Message, &'a Map<String, Value>, Cow<'a, str>);

fn subject_matter(exchange: &Exchange) -> Result<SubjectMatter<'_>, Decision> {
    let caller = exchange.head.caller.as_ref().ok_or_else(|| Decision::failed(NO_CALLER))?;
    let named = exchange.message().and_then(|message| Some((message, method::resource(message)?)));
    let (message, id) = named.ok_or_else(|| Decision::failed("the message names nothing"))?;
    Ok((message, &caller.claims, id))
}

/// The response to a request that is denied. Its reason is for the log.
fn deny(exchange: &Exchange, notes: AuditNotes) -> Response<Body> {
    let id = exchange.message().filter(|message| message.kind() == Kind::Request).and_then(Message::id);
    let response = json(StatusCode::FORBIDDEN, answer::error(id.as_ref(), DENIED, "Unauthorized", None));
    with_notes(response, notes)
}

/// The response to a body that cannot be authorized, because it is not a message.
fn refuse_malformed() -> Response<Body> {
    let reason = "the body is not a message that can be authorized".to_owned();
    let response = text(StatusCode::BAD_REQUEST, "Invalid or malformed MCP request");
    with_notes(response, AuditNotes { reason, ..AuditNotes::default() })
}

fn with_notes(mut response: Response<Body>, notes: AuditNotes) -> Response<Body> {
    response.extensions_mut().insert(notes);
    response
}

#[cfg(test)]
mod tests;
