//! The chain of middleware, as ordered data.
//!
//! A RunConfig lists it, outermost first; each entry becomes a `Layer`. A call runs through the layers in their order until one
//! of them answers it. A type that this build does not have is refused at the start: a chain that silently lacks a guard is worse
//! than none.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use skep_mcp::Malformed;
use skep_net::Body;
use skep_runconfig::Field;
use skep_runconfig::feature::Feature;
use skep_runconfig::run_config::{MiddlewareConfig, RunConfig};
use skep_runconfig::{middleware, parameters};

use crate::exchange::{Content, Exchange, Flow, Identity, LOCAL_ISSUER};
use crate::http::{json, text};
use crate::layer::header_forward::HeaderForward;
use crate::layer::origin::Origins;
use crate::layer::tools::Tools;
use crate::observe::Observer;
use crate::unsupported::UNSUPPORTED;

/// The longest body of a request when nothing else is said.
pub const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// The layers of a proxy.
#[derive(Debug)]
pub struct Chain {
    layers: Vec<Layer>,
    /// Before which layer calls are counted. If nothing is said, all of them are.
    telemetry: usize,
    /// The least that is said, if anything is.
    body_limit: Option<usize>,
    /// Whether the proxy in front of this one is believed about the address of the client.
    trusts_proxies: bool,
}

/// One layer.
#[derive(Debug)]
enum Layer {
    /// Browsers may call from some pages only.
    Origin(Origins),
    /// Everybody is who runs this process.
    Local(Identity),
    /// Messages that two readers could read differently are refused.
    Parser,
    /// Which tools are seen, and under which names.
    Tools(Tools),
    /// Which tools may be called.
    ToolCalls(Tools),
    /// Headers for the server.
    HeaderForward(HeaderForward),
    /// The caller's credentials stay here.
    StripAuth,
    /// Somebody sees whatever comes this far.
    Observer(Arc<dyn Observer>),
}

/// Why a chain cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// The type.
    #[error("unsupported middleware type: {0}")]
    Unsupported(String),
    /// The type is known and not there yet.
    #[error("middleware `{kind}` is not in this version of skep: {feature} is not supported; remove {}", .feature.field())]
    NotYet {
        /// Which one.
        kind: String,
        /// What it implements.
        feature: Feature,
    },
    /// Its parameters.
    #[error("middleware `{kind}`: {problem}")]
    Parameters {
        /// Which one.
        kind: String,
        /// What is wrong.
        problem: String,
    },
}

// === impl Chain ===

impl Chain {
    /// Builds the chain of a RunConfig. `port` is where the proxy listens, once that is known.
    pub fn new(config: &RunConfig, port: u16) -> Result<Self, Wrong> {
        let listed = if config.middleware_configs.is_empty() {
            check_auth_server(config)?;
            built(config)
        } else {
            config.middleware_configs.clone()
        };
        let trusts_proxies = config.trust_proxy_headers;
        let mut chain = Self { layers: Vec::new(), telemetry: 0, body_limit: None, trusts_proxies };
        if let Some(origins) = Origins::of(config, port) {
            chain.layers.push(Layer::Origin(origins));
        }
        for one in &listed {
            chain.add(one)?;
        }
        if let Some(headers) = config.header_forward.as_ref().filter(|_| !config.remote_url.is_empty()) {
            let plain = headers.add_plaintext_headers.clone();
            if !plain.is_empty() && !listed.iter().any(|one| one.kind == "header-forward") {
                let layer = HeaderForward::new(&plain);
                chain.layers.push(Layer::HeaderForward(layer.map_err(|problem| wrong("header-forward", problem))?));
            }
        }
        Ok(chain)
    }

    fn add(&mut self, one: &MiddlewareConfig) -> Result<(), Wrong> {
        let kind = one.kind.as_str();
        let layer = match kind {
            "bodylimit" => {
                let limit = read::<parameters::BodyLimit>(one)?.max_bytes;
                let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(BODY_LIMIT);
                self.body_limit = Some(self.body_limit.map_or(limit, |least| least.min(limit)));
                return Ok(());
            }
            "auth" => {
                if read::<parameters::Auth>(one)?.oidc_config.is_some() {
                    return Err(lacking(kind));
                }
                tracing::warn!("nobody signs on here: every caller is taken for whoever runs this process");
                Layer::Local(Identity::local())
            }
            "mcp-parser" => Layer::Parser,
            "tool-filter" => Layer::Tools(tools(one)?),
            "tool-call-filter" => Layer::ToolCalls(tools(one)?),
            "header-forward" => {
                let headers = read::<parameters::HeaderForward>(one)?.add_headers;
                Layer::HeaderForward(HeaderForward::new(&headers).map_err(|problem| wrong(kind, problem))?)
            }
            "strip-auth" => Layer::StripAuth,
            "origin" => {
                let origins = read::<parameters::Origin>(one)?.allowed_origins;
                Layer::Origin(Origins::new(&origins))
            }
            // Who counts is added when it is known. Traces and pushed metrics are not there yet.
            "telemetry" => {
                self.telemetry = self.layers.len();
                return Ok(());
            }
            // Every handler is under a guard against panics already, and nothing is ever reported to anybody.
            "recovery" | "usagemetrics" => return Ok(()),
            "audit" => {
                tracing::warn!("audit is not in this version of skep: nothing is recorded");
                return Ok(());
            }
            other => return Err(lacking(other)),
        };
        self.layers.push(layer);
        Ok(())
    }

    /// Adds headers for the server that are not in a RunConfig, because they are secrets. They come last.
    pub(crate) fn add_headers(&mut self, headers: &std::collections::BTreeMap<String, String>) -> Result<(), Wrong> {
        if !headers.is_empty() {
            let layer = HeaderForward::new(headers).map_err(|problem| wrong("header-forward", problem))?;
            self.layers.push(Layer::HeaderForward(layer));
        }
        Ok(())
    }

    /// Adds who counts the calls, at the place that the RunConfig gives to it.
    pub fn add_telemetry(&mut self, observer: Arc<dyn Observer>) {
        self.layers.insert(self.telemetry, Layer::Observer(observer));
    }

    /// The longest body that is read.
    pub fn body_limit(&self) -> usize {
        self.body_limit.unwrap_or(BODY_LIMIT)
    }

    /// Whether the proxy in front of this one is believed about the address of the client.
    pub(crate) fn trusts_proxies(&self) -> bool {
        self.trusts_proxies
    }

    /// The origin of the page that calls, if there is one and it may.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut given = headers.get_all(http::header::ORIGIN).iter();
        let (Some(origin), None) = (given.next(), given.next()) else { return None };
        let mut guards = self.layers.iter().filter_map(|layer| match layer {
            Layer::Origin(origins) => Some(origins),
            _ => None,
        });
        let is_allowed = guards.next()?.allows(origin) && guards.all(|origins| origins.allows(origin));
        is_allowed.then(|| origin.clone())
    }

    /// Whether a layer judges messages by what is in them. Then every body is read as one, whatever it is called.
    pub(crate) fn judges_content(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Layer::Tools(_) | Layer::ToolCalls(_)))
    }

    /// Puts a call through the layers.
    pub fn request(&self, exchange: &mut Exchange) -> Flow {
        for layer in &self.layers {
            if let Flow::Answer(answer) = layer.request(exchange) {
                return Flow::Answer(answer);
            }
        }
        // What was replaced on the way is judged as it goes out, not as it came in.
        if exchange.is_mutated() {
            for layer in &self.layers {
                if let Layer::ToolCalls(tools) = layer
                    && let Flow::Answer(answer) = tools.judge_outgoing(exchange)
                {
                    return Flow::Answer(answer);
                }
            }
        }
        Flow::Next
    }
}

// === impl Layer ===

impl Layer {
    fn request(&self, exchange: &mut Exchange) -> Flow {
        match self {
            Self::Origin(origins) => origins.request(exchange),
            Self::Local(identity) => {
                exchange.identity = Some(identity.clone());
                Flow::Next
            }
            Self::Parser => parse(exchange),
            Self::Tools(_) | Self::ToolCalls(_) if let Some(refusal) = unreadable(exchange) => Flow::Answer(refusal),
            Self::Tools(tools) => {
                tools.watch(exchange);
                Flow::Next
            }
            Self::ToolCalls(tools) => tools.call(exchange),
            Self::HeaderForward(headers) => {
                headers.request(exchange);
                Flow::Next
            }
            Self::Observer(observer) => {
                exchange.observe(observer.clone());
                Flow::Next
            }
            Self::StripAuth => {
                for name in [http::header::AUTHORIZATION, http::header::COOKIE, http::header::PROXY_AUTHORIZATION] {
                    exchange.headers.remove(name);
                }
                Flow::Next
            }
        }
    }
}

// === impl Identity ===

impl Identity {
    /// Whoever runs this process.
    fn local() -> Self {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "local".to_owned());
        Self { issuer: LOCAL_ISSUER.into(), name: format!("Local User: {user}").into(), subject: user.into() }
    }
}

/// Refuses what two readers could read as two messages. What is no JSON at all is the server's to refuse.
fn parse(exchange: &Exchange) -> Flow {
    match &exchange.content {
        Content::Malformed(_, why @ Malformed::Batch) => {
            Flow::Answer(json(StatusCode::BAD_REQUEST, skep_mcp::answer::malformed(*why)))
        }
        Content::Malformed(_, why) if is_ambiguous(*why) => {
            Flow::Answer(json(StatusCode::BAD_REQUEST, skep_mcp::answer::malformed(*why)))
        }
        _ => Flow::Next,
    }
}

/// Refuses a body that a guard cannot judge. The server may well read what we could not, or read it as something else.
fn unreadable(exchange: &Exchange) -> Option<Response<Body>> {
    match &exchange.content {
        Content::Opaque(bytes) if bytes.is_empty() => None,
        Content::Message(_) if is_plain(&exchange.headers) => None,
        Content::Message(_) => Some(text(StatusCode::BAD_REQUEST, "send the body in UTF-8, and not packed")),
        Content::Malformed(_, why) => Some(json(StatusCode::BAD_REQUEST, skep_mcp::answer::malformed(*why))),
        Content::Opaque(_) => Some(text(StatusCode::BAD_REQUEST, "the body must be a message")),
    }
}

/// Whether the bytes of a body are its text, as far as its headers say.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            ["utf-8", "utf8", "us-ascii"].iter().any(|one| value.eq_ignore_ascii_case(one))
        }
        _ => true,
    };
    let mut types = headers.get_all(CONTENT_TYPE).into_iter();
    !headers.contains_key(CONTENT_ENCODING)
        && types.all(|value| value.to_str().is_ok_and(|text| text.split(';').all(is_utf8)))
}

/// Whether a body could be one message to us and another one to the server.
pub(crate) fn is_ambiguous(why: Malformed) -> bool {
    matches!(
        why,
        Malformed::Duplicate { .. }
            | Malformed::OtherCase { .. }
            | Malformed::TooManyMembers { .. }
            | Malformed::NoKind
    )
}

/// The chain that the members of a RunConfig ask for, when it lists none.
fn built(config: &RunConfig) -> Vec<MiddlewareConfig> {
    middleware::list_requested(config)
}

/// Refuses an embedded authorization server: no row of a chain stands for it, so that without this a proxy would start without it.
fn check_auth_server(config: &RunConfig) -> Result<(), Wrong> {
    let feature = Feature::EmbeddedAuthServer;
    match &config.embedded_auth_server_config {
        Some(server) if server.disable_upstream_token_injection && UNSUPPORTED.contains(&feature) => {
            Err(Wrong::NotYet { kind: "strip-auth".to_owned(), feature })
        }
        _ => Ok(()),
    }
}

fn tools(one: &MiddlewareConfig) -> Result<Tools, Wrong> {
    Tools::new(&read::<parameters::ToolFilter>(one)?).map_err(|problem| wrong(&one.kind, problem))
}

/// Why a type of middleware cannot be had: it is known and not implemented, or not known at all.
fn lacking(kind: &str) -> Wrong {
    match Feature::of_middleware(kind).filter(|feature| UNSUPPORTED.contains(feature)) {
        Some(feature) => Wrong::NotYet { kind: kind.to_owned(), feature },
        None => Wrong::Unsupported(kind.to_owned()),
    }
}

fn wrong(kind: &str, problem: String) -> Wrong {
    Wrong::Parameters { kind: kind.to_owned(), problem }
}

fn read<D: Field>(one: &MiddlewareConfig) -> Result<D, Wrong> {
    D::read(one.parameters.clone()).map_err(|error| wrong(&one.kind, error.to_string()))
}

/// The answer to a body that is longer than allowed.
pub(crate) fn too_large() -> Response<Body> {
    let mut answer = text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    // The rest of the body is still on its way; it is not read.
    answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests;
