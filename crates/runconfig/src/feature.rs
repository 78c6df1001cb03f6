//! What a document can request of the data plane beyond forwarding, so that a plan can report in advance what would not run.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Json, RunConfig};

/// Something that a data plane may or may not be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Clients present tokens of an identity provider.
    Authentication,
    /// A policy engine decides about every call.
    Authorization,
    /// Every call is written to an audit log.
    Audit,
    /// Calls to the MCP server carry AWS credentials.
    AwsSts,
    /// A virtual server runs scripts of its clients.
    CodeMode,
    /// Calls to the MCP server carry an identity that another domain asserts.
    CrossAppAccess,
    /// The proxy is an OAuth authorization server itself.
    EmbeddedAuthServer,
    /// Metrics are pushed to a collector.
    MetricsExport,
    /// Calls to the MCP server are made on behalf of the client.
    OnBehalfOf,
    /// A virtual server shows a search over its tools instead of the tools.
    Optimizer,
    /// Calls are limited by rate.
    RateLimiting,
    /// The client's token is exchanged for one of the MCP server.
    TokenExchange,
    /// Traces are sent to a collector.
    Tracing,
    /// Calls to the MCP server carry the upstream provider's token.
    UpstreamSwap,
    /// Several MCP servers are served as one.
    VirtualServer,
    /// Webhooks see or change every call.
    Webhooks,
}

impl Feature {
    /// Every feature.
    pub const ALL: &'static [Self] = &[
        Self::Authentication,
        Self::Authorization,
        Self::Audit,
        Self::AwsSts,
        Self::CodeMode,
        Self::CrossAppAccess,
        Self::EmbeddedAuthServer,
        Self::MetricsExport,
        Self::OnBehalfOf,
        Self::Optimizer,
        Self::RateLimiting,
        Self::TokenExchange,
        Self::Tracing,
        Self::UpstreamSwap,
        Self::VirtualServer,
        Self::Webhooks,
    ];

    /// What a type of middleware implements, if it is one of the features. A middleware `auth` without an identity provider
    /// needs none.
    pub fn of_middleware(kind: &str) -> Option<Self> {
        Some(match kind {
            "auth" => Self::Authentication,
            "authorization" => Self::Authorization,
            "audit" => Self::Audit,
            "awssts" => Self::AwsSts,
            "obo" => Self::OnBehalfOf,
            "ratelimit" => Self::RateLimiting,
            "tokenexchange" => Self::TokenExchange,
            "upstreamswap" => Self::UpstreamSwap,
            "mutating-webhook" | "validating-webhook" => Self::Webhooks,
            _ => return None,
        })
    }

    /// All features that a RunConfig requests.
    pub fn needed(config: &RunConfig) -> BTreeSet<Self> {
        let telemetry = config.telemetry_config.as_ref();
        let needed = [
            (Self::Authentication, config.oidc_config.is_some()),
            (Self::Authorization, config.authz_config != Json::Null),
            (Self::Audit, config.audit_config.is_some() || !config.audit_config_path.is_empty()),
            (Self::AwsSts, config.aws_sts_config.is_some()),
            (Self::EmbeddedAuthServer, config.embedded_auth_server_config.is_some()),
            (Self::MetricsExport, telemetry.is_some_and(|otel| otel.metrics_enabled && !otel.endpoint.is_empty())),
            (Self::RateLimiting, config.rate_limit_config.is_some()),
            (Self::TokenExchange, config.token_exchange_config.is_some()),
            (Self::Tracing, telemetry.is_some_and(|otel| otel.tracing_enabled)),
            (Self::UpstreamSwap, config.upstream_swap_config.is_some()),
            (Self::Webhooks, !config.mutating_webhooks.is_empty() || !config.validating_webhooks.is_empty()),
        ];
        needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(feature, _)| feature).collect()
    }

    /// Whether a proxy that lacks it serves all the same. What only observes calls is reported as not in force; what guards them is
    /// never left out, nor is the audit log: a call that must be on record is not served without one.
    pub const fn only_observes(self) -> bool {
        matches!(self, Self::Tracing | Self::MetricsExport)
    }

    /// The fields of a manifest that request it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Authentication => "spec.oidcConfigRef",
            Self::Authorization => "spec.authzConfig or spec.authzConfigRef",
            Self::Audit => "spec.audit",
            Self::AwsSts | Self::CrossAppAccess | Self::OnBehalfOf | Self::TokenExchange | Self::UpstreamSwap => {
                "spec.externalAuthConfigRef"
            }
            Self::CodeMode => "spec.config.codeMode",
            Self::EmbeddedAuthServer => "spec.authServerRef or spec.externalAuthConfigRef",
            Self::MetricsExport => "spec.telemetryConfigRef (openTelemetry.metrics)",
            Self::Optimizer => "spec.config.optimizer or spec.embeddingServerRef",
            Self::RateLimiting => "spec.rateLimiting",
            Self::Tracing => "spec.telemetryConfigRef (openTelemetry.tracing)",
            Self::VirtualServer => "kind VirtualMCPServer",
            Self::Webhooks => "spec.webhookConfigRef",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Authentication => "authentication of clients",
            Self::Authorization => "authorization policies",
            Self::Audit => "audit logging",
            Self::AwsSts => "AWS STS credentials",
            Self::CodeMode => "code mode",
            Self::CrossAppAccess => "cross-app access",
            Self::EmbeddedAuthServer => "the embedded authorization server",
            Self::MetricsExport => "export of metrics over OTLP",
            Self::OnBehalfOf => "on-behalf-of credentials",
            Self::Optimizer => "the optimizer",
            Self::RateLimiting => "rate limiting",
            Self::TokenExchange => "token exchange",
            Self::Tracing => "tracing",
            Self::UpstreamSwap => "upstream token injection",
            Self::VirtualServer => "serving several MCP servers as one",
            Self::Webhooks => "webhooks",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_document_needs_nothing_and_each_member_needs_its_feature() {
        assert_eq!(Feature::needed(&RunConfig::default()), BTreeSet::new());
        for (member, feature) in [
            (r#""oidc_config":{"issuer":"https://a"}"#, Feature::Authentication),
            (r#""authz_config":{"version":"1.0"}"#, Feature::Authorization),
            (r#""audit_config":{}"#, Feature::Audit),
            (r#""aws_sts_config":{}"#, Feature::AwsSts),
            (r#""embedded_auth_server_config":{}"#, Feature::EmbeddedAuthServer),
            (r#""rate_limit_config":{}"#, Feature::RateLimiting),
            (r#""token_exchange_config":{}"#, Feature::TokenExchange),
            (r#""upstream_swap_config":{}"#, Feature::UpstreamSwap),
            (r#""telemetry_config":{"tracingEnabled":true}"#, Feature::Tracing),
            (r#""telemetry_config":{"metricsEnabled":true,"endpoint":"o:1"}"#, Feature::MetricsExport),
            (r#""validating_webhooks":[{"name":"a"}]"#, Feature::Webhooks),
            (r#""mutating_webhooks":[{"name":"a"}]"#, Feature::Webhooks),
        ] {
            let config = RunConfig::from_slice(format!("{{{member}}}").as_bytes()).unwrap();
            assert_eq!(Feature::needed(&config), BTreeSet::from([feature]), "{member}");
        }
    }
}
