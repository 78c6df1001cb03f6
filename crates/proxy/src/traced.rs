//! Traces: a span for each request that comes as far as telemetry's place in the chain. See [`skep_telemetry::trace`].
//!
//! A request that is not sampled costs two ids. The response of one that is sampled is seen as it is sent, and not parsed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Response, Version};
use skep_mcp::{Message, method, value};
use skep_net::Body;
use skep_telemetry::audit::{Framing, ReplyScan};
use skep_telemetry::otlp::Traces;
use skep_telemetry::trace::{Carrier, McpFacts, RateLimitFacts, RequestSpan, ResponseFacts, SpanFacts, redacted};

use crate::chain::RateLimitDecision;
use crate::exchange::{Exchange, Head};
use crate::http::{SESSION, VERSION, is_of_type};
use crate::observe::{Observation, Observer};

/// The longest arguments that are shown in a span, in bytes.
const ARGUMENTS: usize = 64 * 1024;
/// Where a message names the program of its client.
const CLIENT_NAMES: [&[&str]; 2] = [&["_meta", "io.modelcontextprotocol/clientInfo", "name"], &["clientInfo", "name"]];

/// Traces requests.
#[derive(Debug)]
pub(crate) struct RequestTracer {
    pub(crate) traces: Traces,
    pub(crate) server: String,
    pub(crate) transport: String,
    /// Whether spans have the attributes of before as well.
    pub(crate) with_legacy: bool,
    /// Variables of the process that spans name.
    pub(crate) environment: Vec<(String, String)>,
}

/// A request that is traced.
#[derive(Debug)]
struct TracedRequest {
    tracer: Arc<RequestTracer>,
    started: (SystemTime, Instant),
    span: Option<RequestSpan>,
    /// Once there is a response.
    response: Option<ResponseFacts>,
    scan: Option<ReplyScan>,
    /// Whether it opens a stream, whose span ends when it is open.
    opens_stream: bool,
}

// === impl RequestTracer ===

impl Observer for RequestTracer {
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation> {
        Box::new(TracedRequest {
            tracer: self,
            started: (SystemTime::now(), Instant::now()),
            span: None,
            response: None,
            scan: None,
            opens_stream: head.method == Method::GET,
        })
    }
}

impl RequestTracer {
    fn facts(&self, exchange: &Exchange) -> SpanFacts {
        let Head { method, uri, headers, peer, address, .. } = &exchange.head;
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let host = uri.authority().map(ToString::to_string).or_else(|| text(HOST.as_str()));
        SpanFacts {
            method: method.as_str().to_owned(),
            scheme: if peer.tls { "https" } else { "http" },
            host: host.unwrap_or_default(),
            path: uri.path().to_owned(),
            query: uri.query().map(str::to_owned),
            user_agent: text(USER_AGENT.as_str()).unwrap_or_default(),
            body_size: exchange.content.bytes().len(),
            http_version: if exchange.head.version == Version::HTTP_2 { "2" } else { "1.1" },
            client_address: address.to_string(),
            client_port: peer.address.port(),
            session: text(SESSION.as_str()).unwrap_or_default(),
            protocol_version: text(VERSION.as_str()).unwrap_or_default(),
            server: self.server.clone(),
            transport: self.transport.clone(),
            mcp: exchange.message().and_then(mcp_facts),
            rate_limit: exchange.notes.get().map(rate_limit_facts),
            environment: self.environment.clone(),
        }
    }
}

// === impl TracedRequest ===

impl TracedRequest {
    fn start(&mut self, exchange: &Exchange) -> &mut RequestSpan {
        let (tracer, started) = (&self.tracer, self.started.0);
        self.span.get_or_insert_with(|| {
            let mut carrier = Carrier::of_headers(&exchange.head.headers);
            if let Some(params) = exchange.message().and_then(Message::params) {
                carrier.override_by(|name| value::find_text(params, &["_meta", name]));
            }
            RequestSpan::start(&tracer.traces, started, &carrier, tracer.with_legacy, || tracer.facts(exchange))
        })
    }

    fn finish(&mut self) {
        let Some(span) = self.span.take() else { return };
        let Some(mut response) = self.response.take() else { return span.abandon() };
        response.error = self.scan.as_mut().and_then(ReplyScan::finish);
        response.milliseconds = self.started.1.elapsed().as_secs_f64() * 1000.0;
        span.finish(&response);
    }
}

impl Observation for TracedRequest {
    fn forwarded(&mut self, exchange: &mut Exchange) {
        // It has no borrow of the headers that it is written to.
        let span = self.start(exchange);
        span.inject(&mut exchange.head.headers);
    }

    fn answered(&mut self, exchange: &Exchange, response: &Response<Body>) {
        let is_recorded = self.start(exchange).is_recorded();
        self.response = Some(ResponseFacts { status: response.status().as_u16(), ..ResponseFacts::default() });
        if self.opens_stream {
            self.finish();
        } else if is_recorded && response.status().is_success() {
            let kind = response.headers().get(CONTENT_TYPE);
            let framing = if is_of_type(kind, "text/event-stream") { Framing::Events } else { Framing::Json };
            self.scan = Some(ReplyScan::new(framing));
        }
    }

    fn sees_response(&self) -> bool {
        self.span.as_ref().is_some_and(RequestSpan::is_recorded)
    }

    fn part(&mut self, bytes: &[u8]) {
        if let Some(response) = &mut self.response {
            response.body_size = response.body_size.saturating_add(bytes.len() as u64);
        }
        if let Some(scan) = &mut self.scan {
            scan.feed(bytes);
        }
    }

    fn late_reply(&mut self, event: &[u8]) {
        self.scan = Some(ReplyScan::new(Framing::Events));
        self.part(event);
    }
}

impl Drop for TracedRequest {
    fn drop(&mut self) {
        self.finish();
    }
}

fn rate_limit_facts(decision: &RateLimitDecision) -> RateLimitFacts {
    let RateLimitDecision { is_allowed, rejected_by, fail_open } = *decision;
    RateLimitFacts { is_allowed, rejected_by, fail_open }
}

/// What a span says of a message. Nothing of one that is a client's reply.
fn mcp_facts(message: &Message) -> Option<McpFacts> {
    let name = message.method()?;
    let params = message.params();
    let client = params.and_then(|params| CLIENT_NAMES.iter().find_map(|path| value::find_text(params, path)));
    Some(McpFacts {
        method: name.to_owned(),
        id: message.id().map(|id| id.raw().trim_matches('"').to_owned()).unwrap_or_default(),
        resource: method::resource(message).map(Cow::into_owned).unwrap_or_default(),
        arguments: if name == "tools/call" { arguments(message) } else { String::new() },
        client_name: client.map(Cow::into_owned).unwrap_or_default(),
    })
}

fn arguments(message: &Message) -> String {
    match method::arguments(message) {
        Some(arguments) if arguments.len() <= ARGUMENTS => redacted(&value::scalars(arguments)),
        Some(_) => "[TOO LONG]".to_owned(),
        None => String::new(),
    }
}
