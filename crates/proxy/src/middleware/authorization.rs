//! Authorizes what clients ask for, and filters lists down to what they may use. See [`skep_authz`] for the engines.
//!
//! A decision is made on the message that will be sent, so it is made again after a mutation. Whatever cannot be evaluated is denied or
//! withheld. Clients learn that they are denied and not why; the reason is logged.

mod lists;

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value};
use skep_authz::cedar::Cedar;
use skep_authz::pdp::Pdp;
use skep_authz::query::{Annotations, Feature, Query, Treatment};
use skep_authz::{Decision, Engine};
use skep_mcp::{Kind, Message, answer, method, value};
use skep_net::body::{Limit, collect};
use skep_net::tls::Trust;
use skep_net::{Body, Client};
use skep_runconfig::run_config::MiddlewareConfig;
use skep_runconfig::{Json, parameters};

use self::lists::ListFilter;
use super::parser::refuse_unreadable;
use crate::chain::{AuditNotes, ChainError, Context, Flow, Middleware, Pass, Step};
use crate::exchange::Exchange;
use crate::http::{JSON, is_of_type, json, text};

/// The largest configuration that is read from a file, in bytes.
const LARGEST: u64 = 1024 * 1024;
/// The longest arguments that a decision point is sent, and the longest answer that it may send, in bytes.
const PDP_BYTES: usize = 256 * 1024;
/// How many tools are remembered with their annotations.
const TOOLS: usize = 10_000;
/// The code of an error that says no more than that the request is denied.
const DENIED: i64 = 403;

/// Authorizes requests.
#[derive(Debug)]
pub(super) struct Authorization(Arc<Authorizer>);

/// What decides.
#[derive(Debug)]
struct Authorizer {
    engine: Decider,
    server: String,
    /// What tools said about themselves when they were last listed.
    annotations: Mutex<HashMap<String, Annotations>>,
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
    let annotations = Mutex::default();
    super::some(Authorization(Arc::new(Authorizer { engine, server: context.server.clone(), annotations })))
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
    /// Decides about one thing.
    async fn decide(&self, claims: &Map<String, Value>, query: &Query<'_>) -> Decision {
        match &self.engine {
            Decider::Cedar(cedar) => decide_by_cedar(cedar, claims, query, &self.server),
            Decider::Http(pdp, client) => self.ask(pdp, client, claims, query).await,
        }
    }

    /// Asks a decision point. Whatever is not a clear yes is a no.
    async fn ask(&self, pdp: &Pdp, client: &Client, claims: &Map<String, Value>, query: &Query<'_>) -> Decision {
        let mut request = Request::new(Body::full(pdp.question(claims, query, &self.server)));
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
            Ok(Ok((status, body))) if Pdp::is_allowed(status.as_u16(), &body) => {
                Decision { is_allowed: true, policies: vec!["the decision point".to_owned()], errors: Vec::new() }
            }
            Ok(Ok(_)) => Decision::default(),
            Ok(Err(error)) => Decision::failed(format!("the decision point fails: {error}")),
            Err(_elapsed) => Decision::failed("the decision point did not answer in time"),
        }
    }

    fn annotations_of(&self, tool: &str) -> Annotations {
        let known = self.annotations.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(tool).copied().unwrap_or_default()
    }

    /// Remembers what tools say about themselves. Pages of a list add to each other.
    fn remember(&self, tools: impl Iterator<Item = (String, Annotations)>) {
        let mut known = self.annotations.lock().unwrap_or_else(PoisonError::into_inner);
        for (tool, annotations) in tools {
            if known.len() < TOOLS || known.contains_key(&tool) {
                known.insert(tool, annotations);
            }
        }
    }

    /// The arguments of a call, as far as they matter to the engine.
    fn arguments(&self, message: &Message) -> Result<Map<String, Value>, Decision> {
        let Some(arguments) = method::arguments(message) else { return Ok(Map::new()) };
        match &self.engine {
            Decider::Cedar(_) => Ok(value::scalars(arguments)),
            Decider::Http(..) if arguments.len() > PDP_BYTES => {
                Err(Decision::failed(format!("the arguments have more than {PDP_BYTES} bytes")))
            }
            Decider::Http(..) => {
                serde_json::from_slice(arguments).map_err(|_| Decision::failed("the arguments cannot be read"))
            }
        }
    }
}

// === impl Authorization ===

impl Authorization {
    /// Decides about what a message names.
    fn decide<'a>(&'a self, exchange: &'a Exchange, feature: Feature) -> Step<'a> {
        let Some((message, claims)) =
            exchange.message().zip(exchange.head.caller.as_ref().map(|caller| caller.claims.clone()))
        else {
            return deny(exchange, &Decision::failed("the request has no caller")).into();
        };
        let Some(id) = method::resource(message) else {
            return deny(exchange, &Decision::failed("the message names nothing")).into();
        };
        let arguments = match self.0.arguments(message) {
            Ok(arguments) => arguments,
            Err(failed) => return deny(exchange, &failed).into(),
        };
        let annotations = if feature == Feature::Tool { self.0.annotations_of(&id) } else { Annotations::default() };
        let operation = feature.operation();
        match &self.0.engine {
            Decider::Cedar(cedar) => {
                let query = Query { feature, operation, id: &id, arguments: Some(&arguments), annotations };
                settled(exchange, &decide_by_cedar(cedar, &claims, &query, &self.0.server))
            }
            Decider::Http(pdp, client) => Step::Pending(Box::pin(async move {
                let query = Query { feature, operation, id: &id, arguments: Some(&arguments), annotations };
                let decision = self.0.ask(pdp, client, &claims, &query).await;
                if decision.is_allowed { Flow::Next } else { Flow::Answer(deny(exchange, &decision)) }
            })),
        }
    }

    /// Filters the lists of replies: those to this request, or all of a stream that is opened for others.
    fn filter(&self, exchange: &mut Exchange) {
        let Some(caller) = &exchange.head.caller else { return };
        let filter = Arc::new(ListFilter { authorizer: self.0.clone(), claims: caller.claims.clone() });
        exchange.head.watch_other_replies(filter.clone());
        let lists = exchange.message().and_then(Message::method).map(Treatment::of);
        if exchange.head.method != Method::POST || matches!(lists, None | Some(Treatment::Filter(_))) {
            exchange.head.watch_replies(filter);
        }
    }
}

impl Middleware for Authorization {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        if exchange.head.caller.is_none() {
            return deny(exchange, &Decision::failed("the request has no caller")).into();
        }
        // Again after a mutation: the message may be one for a list by now.
        self.filter(exchange);
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
        match Treatment::of(message.method().unwrap_or_default()) {
            Treatment::Allow | Treatment::Filter(_) => Step::NEXT,
            Treatment::Deny => deny(exchange, &Decision::failed("the method is not one that can be authorized")).into(),
            Treatment::Decide(feature) => self.decide(exchange, feature),
        }
    }

    fn enforces(&self) -> bool {
        true
    }

    fn needs_message(&self) -> bool {
        true
    }
}

fn decide_by_cedar(cedar: &Cedar, claims: &Map<String, Value>, query: &Query<'_>, server: &str) -> Decision {
    match cedar.principal(claims) {
        Ok(principal) => cedar.decide(&principal, query, server),
        Err(denied) => denied,
    }
}

fn settled<'a>(exchange: &Exchange, decision: &Decision) -> Step<'a> {
    if decision.is_allowed { Step::NEXT } else { deny(exchange, decision).into() }
}

/// The response to a request that is denied. Its reason is for the log.
fn deny(exchange: &Exchange, decision: &Decision) -> Response<Body> {
    let subject = exchange.head.identity().map(|identity| identity.subject.clone()).unwrap_or_default();
    let (method, name) = (exchange.mcp_method().unwrap_or_default(), exchange.resource().unwrap_or_default());
    let (subject, method, name) = (value::clipped(&subject), value::clipped(method), value::clipped(&name));
    tracing::warn!(?subject, ?method, ?name, reason = decision.reason(), "request denied");
    let id = exchange.message().filter(|message| message.kind() == Kind::Request).and_then(Message::id);
    let response = json(StatusCode::FORBIDDEN, answer::error(id.as_ref(), DENIED, "Unauthorized", None));
    with_notes(response, AuditNotes { reason: decision.reason(), policies: decision.policies.clone() })
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
