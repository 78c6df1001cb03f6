//! Building the chain that a RunConfig asks for.
//!
//! A RunConfig lists its middleware, outermost first; if it lists none, its members say which there is, in the one order of
//! [`skep_runconfig::middleware`]. A type that this build does not have is an error: a chain that silently lacks a guard is worse than
//! none.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use skep_net::Addresses;
use skep_runconfig::feature::Feature;
use skep_runconfig::run_config::MiddlewareConfig;
use skep_runconfig::{RunConfig, middleware as order, parameters};
use skep_telemetry::audit::Output;
use skep_webhook::MemoryFiles;
use tokio::sync::Semaphore;

use super::tools::LISTINGS;
use super::{Chain, ChainError, Middleware, Placed};
use crate::capacity::Caches;
use crate::metrics::{OptimizerCounters, RateLimitCounters};
use crate::middleware::header_forward::HeaderForward;
use crate::middleware::observation::Observe;
use crate::middleware::origin::Origins;
use crate::middleware::strip_auth::StripAuth;
use crate::middleware::{self, invalid};
use crate::observe::Observer;
use crate::unsupported::UNSUPPORTED;

/// What a chain needs that is not in a RunConfig.
#[derive(Clone, Default)]
pub struct Context {
    /// Where the proxy listens; 0 if that is not known.
    pub port: u16,
    /// Headers for the server whose values are secrets. They are set last.
    pub headers: BTreeMap<String, String>,
    /// The name of the MCP server, which policies know it by.
    pub server: String,
    /// The variables of the process, some of which hold secrets of middleware.
    pub environment: BTreeMap<String, String>,
    /// Files of middleware that are on no disk.
    pub files: MemoryFiles,
    /// How much middleware may cache.
    pub caches: Caches,
    /// What the requests of middleware may lead to: identity providers, decision points.
    pub addresses: Addresses,
    /// What rate limits count.
    pub rate_limits: RateLimitCounters,
    /// What searches for tools count.
    pub optimizer: OptimizerCounters,
    /// Where the audit log goes, unless its configuration names a file.
    pub audit_output: Output,
    /// What counts and traces requests. Its place is that of the telemetry middleware; if there is none, it sees all requests.
    pub telemetry: Vec<Arc<dyn Observer>>,
}

/// Without values, which may be secrets.
impl std::fmt::Debug for Context {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Context")
            .field("port", &self.port)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

// === impl Chain ===

impl Chain {
    /// Builds the chain of a RunConfig.
    pub fn new(config: &RunConfig, context: &Context) -> Result<Self, ChainError> {
        let listed = if config.middleware_configs.is_empty() {
            check_auth_server(config)?;
            order::list_requested(config)
        } else {
            check_listed(config)?;
            config.middleware_configs.clone()
        };
        let mut chain = Self {
            middleware: Vec::new(),
            trusts_proxies: config.trust_proxy_headers,
            source: OnceLock::new(),
            listings: Semaphore::new(LISTINGS),
        };
        let origins = Origins::of(config, context.port).map(|origins| Arc::new(origins) as Arc<dyn Middleware>);
        chain.add("origin", false, origins);
        let mut telemetry = context.telemetry.clone();
        for one in &listed {
            if one.kind == "telemetry" {
                let observers: Vec<_> =
                    std::mem::take(&mut telemetry).into_iter().map(|one| chain.observer(one)).collect();
                chain.add(&one.kind, true, observers);
                continue;
            }
            chain.add(&one.kind, true, middleware::build(one, context)?);
        }
        for observer in telemetry.into_iter().rev() {
            chain.add("telemetry", false, [Arc::new(Observe::from_head(observer)) as Arc<dyn Middleware>]);
        }
        // Where clients are authenticated, their tokens end there. Elsewhere, they would reach the server beside the proxy's own.
        let is_authenticated = chain.middleware.iter().any(|one| one.protected_resource().is_some());
        if !context.headers.is_empty() && !is_authenticated {
            chain.add("strip-auth", false, [Arc::new(StripAuth::of_authorization()) as Arc<dyn Middleware>]);
        }
        let plain = config.header_forward.as_ref().filter(|_| !config.remote_url.is_empty());
        let plain = plain.map(|headers| &headers.add_plaintext_headers);
        let is_listed = listed.iter().any(|one| one.kind == "header-forward");
        for headers in plain.filter(|_| !is_listed).into_iter().chain([&context.headers]) {
            if !headers.is_empty() {
                let forward = HeaderForward::new(headers).map_err(|problem| invalid("header-forward", problem))?;
                chain.add("header-forward", false, [Arc::new(forward) as Arc<dyn Middleware>]);
            }
        }
        Ok(chain)
    }

    /// Adds middleware of a type at its place, behind what is there already.
    fn add(&mut self, kind: &str, is_listed: bool, middleware: impl IntoIterator<Item = Arc<dyn Middleware>>) {
        let place = order::place(kind, is_listed);
        for one in middleware {
            let behind = self.middleware.partition_point(|other| other.place <= place);
            self.middleware.insert(behind, Placed::new(kind, place, one));
        }
    }

    /// An observer at the end of the chain as it is. It sees what the middleware before it lets through: if all of that decides by the
    /// head, it begins with the head as well, and sees what later middleware denies by the head.
    fn observer(&self, observer: Arc<dyn Observer>) -> Arc<dyn Middleware> {
        let is_first = self.middleware.iter().all(|one| one.is_head_only());
        Arc::new(if is_first { Observe::from_head(observer) } else { Observe::from_message(observer) })
    }
}

/// Refuses a list that lacks what the other members of its RunConfig ask for: only the list is built, and a guard that is configured
/// must not be missing without a word.
fn check_listed(config: &RunConfig) -> Result<(), ChainError> {
    let has = |kind: &str| config.middleware_configs.iter().any(|one| one.kind == kind);
    for requested in order::list_requested(config) {
        let is_missing = match requested.kind.as_str() {
            // They guard nothing, or are there in any case.
            "mcp-parser" | "telemetry" => false,
            "auth" => config.oidc_config.is_some() && !config.middleware_configs.iter().any(authenticates),
            kind => !has(kind),
        };
        if is_missing {
            return Err(ChainError::UnlistedMiddleware { kind: requested.kind });
        }
    }
    Ok(())
}

/// Whether an entry lets in clients with a token only. Without a provider, it identifies every client as the local user.
fn authenticates(entry: &MiddlewareConfig) -> bool {
    let parameters = middleware::parameters::<parameters::Auth>(entry);
    entry.kind == "auth" && parameters.is_ok_and(|parameters| parameters.oidc_config.is_some())
}

/// Refuses an embedded authorization server whose tokens no middleware swaps: no row of the order stands for it, so that without this a
/// proxy would start without it.
fn check_auth_server(config: &RunConfig) -> Result<(), ChainError> {
    let feature = Feature::EmbeddedAuthServer;
    match &config.embedded_auth_server_config {
        Some(server) if server.disable_upstream_token_injection && UNSUPPORTED.contains(&feature) => {
            Err(ChainError::UnsupportedMiddleware { kind: "strip-auth".to_owned(), feature })
        }
        _ => Ok(()),
    }
}
