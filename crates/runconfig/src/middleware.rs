//! The one order of the middleware chain, outermost first, and what each member of a RunConfig adds to it.
//!
//! [`ORDER`] is a table: the planner writes a RunConfig's `middleware_configs` from it ([`list`]), and a proxy builds the chain of a
//! RunConfig that lists none from it ([`list_requested`]). The order is part of the compatibility contract. [`place`] says where in its
//! chain a proxy puts what it lists, and what it adds by itself. No other place knows the order.

use crate::document::Field as _;
use crate::json::Json;
use crate::parameters as of;
use crate::run_config::{MiddlewareConfig, RunConfig, ToolOverride, Webhook};

/// The body limit of a proxy in bytes, unless its RunConfig lists another one.
pub const BODY_LIMIT: u32 = 8 * 1024 * 1024;

/// One row of [`ORDER`]: a type of middleware, and when it is part of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Middleware {
    /// The type, as `middleware_configs` names it.
    pub kind: &'static str,
    /// Whether a proxy applies it without a row in its list, so that only the planner writes one.
    pub is_implicit: bool,
    /// The parameters that a RunConfig requests; none where it does not request the middleware.
    pub parameters: fn(&RunConfig) -> Option<Json>,
}

/// Every type of middleware that a chain is built from, outermost first. `additional_middleware_configs` come before the last one.
pub const ORDER: &[Middleware] = &[
    implicit("bodylimit", |_| Some(of::BodyLimit { max_bytes: BODY_LIMIT.into(), ..Default::default() }.write())),
    requested("audit", audit),
    requested("auth", |config| Some(auth(config))),
    requested("upstreamswap", upstream_swap),
    requested("strip-auth", strip_auth),
    requested("tokenexchange", token_exchange),
    requested("tool-filter", tool_filter),
    requested("tool-call-filter", tool_filter),
    requested("mcp-parser", |_| Some(of::NoParameters::default().write())),
    requested("optimizer", optimizer),
    requested("telemetry", telemetry),
    requested("ratelimit", rate_limit),
    requested("mutating-webhook", |config| webhooks(config, &config.mutating_webhooks)),
    requested("validating-webhook", |config| webhooks(config, &config.validating_webhooks)),
    requested("authorization", authorization),
    requested("awssts", aws_sts),
    implicit("header-forward", header_forward),
    INNERMOST,
];

/// Where a middleware stands in the chain of a proxy. Outer places are less than inner ones; within the list, its order decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before everything that is listed, by its row in [`OUTER`].
    Outer(usize),
    /// Where the RunConfig lists it.
    Listed,
    /// Behind everything that is listed, by its row in [`INNER`].
    Inner(usize),
}

/// What proxies put before everything that is listed, outermost first, and whether that holds also for what a RunConfig lists. What observes
/// requests sees those as well that a guard denies.
const OUTER: &[(&str, bool)] = &[("telemetry", false), ("audit", true), ("origin", false)];

/// What proxies add by themselves behind everything that is listed: what they know of the server, and no client may change.
const INNER: &[&str] = &["strip-auth", "header-forward"];

/// The place of a middleware in the chain of a proxy. `is_listed` says that the RunConfig lists it; else the proxy adds it by itself.
pub fn place(kind: &str, is_listed: bool) -> Place {
    let outer = OUTER.iter().position(|(outer, also_listed)| *outer == kind && (*also_listed || !is_listed));
    let inner = INNER.iter().position(|inner| *inner == kind && !is_listed);
    outer.map(Place::Outer).or(inner.map(Place::Inner)).unwrap_or(Place::Listed)
}

/// The innermost middleware: it recovers from a panic of the handler.
const INNERMOST: Middleware = implicit("recovery", |_| Some(Json::Null));

/// The complete list for a RunConfig, as the planner writes it.
pub fn list(config: &RunConfig) -> Vec<MiddlewareConfig> {
    let (last, others) = ORDER.split_last().unwrap_or((&INNERMOST, &[]));
    let outer = others.iter().filter_map(|row| row.of(config));
    outer.chain(config.additional_middleware_configs.iter().cloned()).chain(last.of(config)).collect()
}

/// The list without the rows that every proxy applies by itself.
pub fn list_requested(config: &RunConfig) -> Vec<MiddlewareConfig> {
    let outer = ORDER.iter().filter(|row| !row.is_implicit).filter_map(|row| row.of(config));
    outer.chain(config.additional_middleware_configs.iter().cloned()).collect()
}

// === impl Middleware ===

impl Middleware {
    fn of(&self, config: &RunConfig) -> Option<MiddlewareConfig> {
        let parameters = (self.parameters)(config)?;
        Some(MiddlewareConfig { kind: self.kind.to_owned(), parameters, ..MiddlewareConfig::default() })
    }
}

const fn requested(kind: &'static str, parameters: fn(&RunConfig) -> Option<Json>) -> Middleware {
    Middleware { kind, is_implicit: false, parameters }
}

const fn implicit(kind: &'static str, parameters: fn(&RunConfig) -> Option<Json>) -> Middleware {
    Middleware { kind, is_implicit: true, parameters }
}

fn audit(config: &RunConfig) -> Option<Json> {
    let (config_path, config_data) = (config.audit_config_path.clone(), config.audit_config.clone());
    let is_configured = !config_path.is_empty() || config_data.is_some();
    let parameters =
        of::Audit { config_path, config_data, transport_type: config.transport.clone(), ..Default::default() };
    is_configured.then(|| parameters.write())
}

/// Always requested: without a provider it identifies every client as the local user.
fn auth(config: &RunConfig) -> Json {
    of::Auth { oidc_config: config.oidc_config.clone(), ..Default::default() }.write()
}

/// The embedded authorization server knows the token of the upstream provider, which replaces the client's.
fn upstream_swap(config: &RunConfig) -> Option<Json> {
    let server = config.embedded_auth_server_config.as_ref()?;
    if server.disable_upstream_token_injection {
        return None;
    }
    let mut swap = config.upstream_swap_config.clone().unwrap_or_default();
    if let (true, Some(provider)) = (swap.provider_name.is_empty(), server.upstreams.first()) {
        swap.provider_name.clone_from(&provider.name);
    }
    Some(of::UpstreamSwap { config: Some(swap), ..Default::default() }.write())
}

fn strip_auth(config: &RunConfig) -> Option<Json> {
    let server = config.embedded_auth_server_config.as_ref()?;
    server.disable_upstream_token_injection.then(|| of::NoParameters::default().write())
}

fn token_exchange(config: &RunConfig) -> Option<Json> {
    let token_exchange_config = Some(config.token_exchange_config.clone()?);
    Some(of::TokenExchange { token_exchange_config, ..Default::default() }.write())
}

fn tool_filter(config: &RunConfig) -> Option<Json> {
    let shown = |(tool, shown): (&String, &ToolOverride)| {
        let (name, description) = (shown.name.clone(), shown.description.clone());
        (tool.clone(), of::ToolFilterOverride { name, description, ..Default::default() })
    };
    if config.tools_filter.is_empty() && config.tools_override.is_empty() {
        return None;
    }
    let parameters = of::ToolFilter {
        filter_tools: (!config.tools_filter.is_empty()).then(|| config.tools_filter.clone()),
        tools_override: config.tools_override.iter().map(shown).collect(),
        ..Default::default()
    };
    Some(parameters.write())
}

/// Before everything that decides: it sees the tool that is called.
fn optimizer(config: &RunConfig) -> Option<Json> {
    let is_filtered = authorization(config).is_some();
    config.optimizer.then(|| of::Optimizer { is_filtered, ..Default::default() }.write())
}

fn telemetry(config: &RunConfig) -> Option<Json> {
    let parameters = of::Telemetry {
        config: Some(config.telemetry_config.clone()?),
        server_name: config.name.clone(),
        transport: config.transport.clone(),
        ..Default::default()
    };
    Some(parameters.write())
}

fn rate_limit(config: &RunConfig) -> Option<Json> {
    let limits = config.rate_limit_config.clone()?;
    let redis = config.scaling_config.as_ref().and_then(|scaling| scaling.session_redis.clone()).unwrap_or_default();
    let parameters = of::RateLimit {
        namespace: config.rate_limit_namespace.clone(),
        server_name: config.name.clone(),
        config: Some(limits),
        redis_addr: redis.address,
        redis_db: redis.db,
        ..Default::default()
    };
    Some(parameters.write())
}

fn webhooks(config: &RunConfig, webhooks: &[Webhook]) -> Option<Json> {
    let parameters = of::Webhooks {
        webhooks: webhooks.to_vec(),
        server_name: config.name.clone(),
        transport: config.transport.clone(),
        ..Default::default()
    };
    (!webhooks.is_empty()).then(|| parameters.write())
}

fn authorization(config: &RunConfig) -> Option<Json> {
    let (config_path, config_data) = (config.authz_config_path.clone(), config.authz_config.clone());
    let is_configured = !config_path.is_empty() || config_data != Json::Null;
    is_configured.then(|| of::Authorization { config_path, config_data, ..Default::default() }.write())
}

fn aws_sts(config: &RunConfig) -> Option<Json> {
    let aws_sts_config = Some(config.aws_sts_config.clone()?);
    Some(of::AwsSts { aws_sts_config, target_url: config.remote_url.clone(), ..Default::default() }.write())
}

/// Of a remote server only. The values of secret headers are not in a RunConfig: a proxy adds those itself.
fn header_forward(config: &RunConfig) -> Option<Json> {
    let headers = config.header_forward.as_ref().filter(|_| !config.remote_url.is_empty())?;
    let add_headers = headers.add_plaintext_headers.clone();
    (!add_headers.is_empty()).then(|| of::HeaderForward { add_headers, ..Default::default() }.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> RunConfig {
        RunConfig::from_slice(json.as_bytes()).unwrap()
    }

    fn kinds(list: Vec<MiddlewareConfig>) -> Vec<String> {
        list.into_iter().map(|one| one.kind).collect()
    }

    const ALL: &str = r#"{"audit_config":{},"embedded_auth_server_config":{"upstreams":[{"name":"up"}]},"token_exchange_config":{},
        "tools_filter":["a"],"telemetry_config":{},"rate_limit_config":{},"mutating_webhooks":[{"name":"a"}],
        "validating_webhooks":[{"name":"b"}],"authz_config":{"type":"cedarv1"},"aws_sts_config":{},"remote_url":"http://a",
        "header_forward":{"add_plaintext_headers":{"x-a":"1"}},"additional_middleware_configs":[{"type":"obo","parameters":{}}]}"#;

    #[test]
    fn a_list_is_in_the_order_of_the_specification() {
        assert_eq!(kinds(list(&config("{}"))), ["bodylimit", "auth", "mcp-parser", "recovery"]);
        let order = "bodylimit audit auth upstreamswap tokenexchange tool-filter tool-call-filter mcp-parser telemetry ratelimit \
             mutating-webhook validating-webhook authorization awssts header-forward obo recovery";
        assert_eq!(kinds(list(&config(ALL))).join(" "), order);
    }

    #[test]
    fn requested_middleware_is_the_list_without_the_rows_that_proxies_apply_by_themselves() {
        let implicit = ["bodylimit", "header-forward", "recovery"];
        let rest = kinds(list(&config(ALL))).into_iter().filter(|kind| !implicit.contains(&kind.as_str()));
        assert_eq!(kinds(list_requested(&config(ALL))), rest.collect::<Vec<_>>());
    }

    #[test]
    fn credentials_are_stripped_instead_of_swapped_where_the_authorization_server_says_so() {
        let off = r#"{"embedded_auth_server_config":{"disable_upstream_token_injection":true}}"#;
        assert_eq!(kinds(list_requested(&config(off))), ["auth", "strip-auth", "mcp-parser"]);
        let swap = list_requested(&config(ALL)).into_iter().find(|one| one.kind == "upstreamswap").unwrap();
        assert_eq!(swap.parameters.to_compact(), r#"{"config":{"provider_name":"up"}}"#);
        assert_eq!(kinds(list(&config(r#"{"upstream_swap_config":{}}"#))).len(), 4, "there is no token to swap in");
    }

    #[test]
    fn middleware_that_a_proxy_adds_by_itself_stands_around_the_list() {
        let chain = [("telemetry", false), ("audit", true), ("origin", false), ("origin", true), ("telemetry", true)];
        let places = chain.into_iter().chain([("strip-auth", false), ("header-forward", false)]);
        let places: Vec<_> = places.map(|(kind, is_listed)| place(kind, is_listed)).collect();
        assert!(places.is_sorted(), "{places:?}");
        for kind in ["strip-auth", "header-forward", "auth", "recovery"] {
            assert_eq!(place(kind, true), Place::Listed, "{kind}");
        }
        // A row of a type that no table has would never match.
        for kind in OUTER.iter().map(|(kind, _)| kind).chain(INNER) {
            assert!(*kind == "origin" || ORDER.iter().any(|row| row.kind == *kind), "{kind}");
        }
    }

    #[test]
    fn a_search_over_the_tools_comes_before_what_decides_about_them() {
        let all = ALL.replacen('{', r#"{"optimizer":true,"#, 1);
        let listed = list_requested(&config(&all));
        let place = |kind: &str| listed.iter().position(|one| one.kind == kind).unwrap();
        for later in ["ratelimit", "mutating-webhook", "validating-webhook", "authorization"] {
            assert!(place("mcp-parser") < place("optimizer") && place("optimizer") < place(later), "{later}");
        }
        assert_eq!(listed[place("optimizer")].parameters.to_compact(), r#"{"is_filtered":true}"#);
        let open = list_requested(&config(r#"{"optimizer":true}"#));
        assert_eq!(open.iter().find(|one| one.kind == "optimizer").unwrap().parameters.to_compact(), "{}");
    }

    #[test]
    fn only_a_remote_server_gets_headers() {
        let local = r#"{"header_forward":{"add_plaintext_headers":{"x-a":"1"}}}"#;
        assert!(!kinds(list(&config(local))).contains(&"header-forward".to_owned()));
    }
}
