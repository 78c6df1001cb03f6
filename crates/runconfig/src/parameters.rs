//! The settings of each middleware, as they stand under `parameters` in `middleware_configs`.
//!
//! A table of documents and nothing else: which middleware is in a chain, and in which order, says [`crate::middleware`].
//! `mcp-parser`, `usagemetrics` and `strip-auth` have [`NoParameters`]; those of `recovery` are `null`.

use std::collections::BTreeMap;

use crate::document::document;
use crate::json::Json;
use crate::run_config::{
    AuditConfig, AwsStsConfig, OidcConfig, RateLimitConfig, TelemetryConfig, TokenExchangeConfig, UpstreamSwapConfig,
    Webhook,
};

document! {
    /// Of a middleware that has none: `{}`.
    pub struct NoParameters {}
}

document! {
    /// Of `bodylimit`.
    pub struct BodyLimit {
        /// The largest body of a request.
        pub max_bytes: i64 = always "max_bytes",
    }
}

document! {
    /// Of `audit`.
    pub struct Audit {
        /// A file with the settings.
        pub config_path: String = if_set "config_path",
        /// The settings.
        pub config_data: Option<AuditConfig> = if_set "config_data",
        /// The component that events name.
        pub component: String = if_set "component",
        /// How the server speaks MCP.
        pub transport_type: String = if_set "transport_type",
    }
}

document! {
    /// Of `auth`. Without a provider, every client is accepted.
    pub struct Auth {
        /// The issuer whose tokens are trusted.
        pub oidc_config: Option<OidcConfig> = if_set "oidc_config",
    }
}

document! {
    /// Of `upstreamswap`.
    pub struct UpstreamSwap {
        /// The settings.
        pub config: Option<UpstreamSwapConfig> = if_set "config",
    }
}

document! {
    /// Of `tokenexchange`.
    pub struct TokenExchange {
        /// The settings.
        pub token_exchange_config: Option<TokenExchangeConfig> = if_set "token_exchange_config",
    }
}

document! {
    /// Of `tool-filter` and `tool-call-filter`.
    pub struct ToolFilter {
        /// The tools that callers see; `null` means all.
        pub filter_tools: Option<Vec<String>> = always "filter_tools",
        /// Names and descriptions that replace the server's, by the server's name of the tool.
        pub tools_override: BTreeMap<String, ToolFilterOverride> = always "tools_override",
    }
}

document! {
    /// Name and description of a tool that replace the server's.
    pub struct ToolFilterOverride {
        /// Its name.
        pub name: String = always "name",
        /// Its description.
        pub description: String = always "description",
    }
}

document! {
    /// Of `telemetry`.
    pub struct Telemetry {
        /// The settings.
        pub config: Option<TelemetryConfig> = always "config",
        /// Name of the server.
        pub server_name: String = always "server_name",
        /// How the server speaks MCP.
        pub transport: String = always "transport",
    }
}

document! {
    /// Of `ratelimit`.
    pub struct RateLimit {
        /// Namespace of the server.
        pub namespace: String = always "namespace",
        /// Name of the server.
        pub server_name: String = always "server_name",
        /// The limits.
        pub config: Option<RateLimitConfig> = always "config",
        /// Host and port of the Redis that calls are counted in.
        pub redis_addr: String = if_set "redis_addr",
        /// Number of its database.
        pub redis_db: i32 = if_set "redis_db",
    }
}

document! {
    /// Of `mutating-webhook` and `validating-webhook`.
    pub struct Webhooks {
        /// The services to call, in order.
        pub webhooks: Vec<Webhook> = always "webhooks",
        /// Name of the server.
        pub server_name: String = always "server_name",
        /// How the server speaks MCP.
        pub transport: String = always "transport",
    }
}

document! {
    /// Of `optimizer`, which only Skep has.
    pub struct Optimizer {
        /// Whether lists of tools are filtered behind it.
        pub is_filtered: bool = if_set "is_filtered",
    }
}

document! {
    /// Of `authorization`.
    pub struct Authorization {
        /// A file with the settings.
        pub config_path: String = if_set "config_path",
        /// The settings, kept as they came.
        pub config_data: Json = if_set "config_data",
    }
}

document! {
    /// Of `awssts`.
    pub struct AwsSts {
        /// The settings.
        pub aws_sts_config: Option<AwsStsConfig> = always "aws_sts_config",
        /// URL of the remote server.
        pub target_url: String = if_set "target_url",
    }
}

document! {
    /// Of `header-forward`.
    pub struct HeaderForward {
        /// Header names and their values.
        pub add_headers: BTreeMap<String, String> = always "add_headers",
    }
}

document! {
    /// Of `origin`.
    pub struct Origin {
        /// Origins that browsers may call from.
        pub allowed_origins: Vec<String> = always "allowed_origins",
    }
}
