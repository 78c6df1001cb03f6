//! Conditions about a server that stop nothing: what is capped, what is missing for several replicas, what is ignored.

use skep_api::kinds::{MCPServer, Transport};
use skep_api::workload::StorageProvider;

pub(super) use crate::pod::RESTARTED_AT;
use crate::proxy::session_warning;
use crate::rate_limits;
use crate::status::Status;
use crate::text::is_timestamp;

/// How: `rolling` or `immediate`.
pub(super) const RESTART_STRATEGY: &str = "mcpserver.toolhive.stacklok.dev/restart-strategy";
/// The last restart that was seen.
pub(super) const LAST_RESTART: &str = "mcpserver.toolhive.stacklok.dev/last-processed-restart";

/// Adds the advice for a server.
pub(super) fn add(status: &mut Status, object: &MCPServer) {
    let spec = &object.spec;
    let replicas = spec.replicas.unwrap_or(1);
    if spec.transport == Transport::Stdio && replicas > 1 {
        let message = "a stdio server has one proxy: replicas is taken as 1; use an HTTP transport to scale";
        status.condition("StdioReplicaCapped", true, "StdioTransportCapAt1", message);
    } else {
        status.condition("StdioReplicaCapped", false, "StdioReplicaCapNotActive", "stdio replica cap is not active");
    }
    let redis = spec.session_storage.as_ref().is_some_and(|storage| storage.provider == StorageProvider::Redis);
    session_warning(status, replicas, redis);
    match &spec.rate_limiting {
        None => {
            let message = "rate limiting is not configured";
            status.condition("RateLimitConfigValid", true, "RateLimitNotApplicable", message);
        }
        Some(limits) => {
            if rate_limits::is_per_user(limits)
                && spec.oidc_config_ref.is_none()
                && spec.external_auth_config_ref.is_none()
            {
                let message =
                    "a limit per user needs to know who is calling: set oidcConfigRef or externalAuthConfigRef";
                status.condition("RateLimitConfigValid", false, "PerUserRequiresAuth", message);
            } else {
                let message = if replicas > 1 && !redis {
                    "rate limit configuration is valid; each proxy counts on its own: set sessionStorage.provider to redis to share the limits"
                } else {
                    "rate limit configuration is valid"
                };
                status.condition("RateLimitConfigValid", true, "RateLimitConfigValid", message);
            }
        }
    }
    let inline = spec.authz_config.as_ref().and_then(|authz| authz.inline.as_ref());
    if inline.is_some_and(|inline| inline.primary_upstream_provider.is_some()) {
        let message = "primaryUpstreamProvider is ignored here: a server has one upstream provider at most";
        status.condition("AuthzPrimaryUpstreamProviderIgnored", true, "PrimaryUpstreamProviderIgnored", message);
    }
    let asked = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RESTARTED_AT));
    if let Some(asked) = asked.filter(|asked| !is_timestamp(asked)) {
        let message = format!("annotation {RESTARTED_AT}: `{asked}` is not a time; write it like 2026-01-31T12:00:00Z");
        status.condition("RestartRequestValid", false, "InvalidTimestamp", message);
    }
}
