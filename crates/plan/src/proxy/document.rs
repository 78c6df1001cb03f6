//! The members that the RunConfigs of all proxies have.

use skep_runconfig::run_config::{HeaderForward, ScalingConfig};
use skep_runconfig::{Json, RunConfig};

use super::ProxyContext;
use super::env::{header_identifiers, injected_header, injection_identifier};
use crate::error::PlanError;
use crate::{auth_server, authz, run_config};

/// Adds what the spec and the references of a proxy come to, whatever its kind.
pub(crate) fn add_shared(config: &mut RunConfig, context: &ProxyContext<'_>) -> Result<(), PlanError> {
    let ProxyContext { me, spec, inputs, world, .. } = context;
    config.trust_proxy_headers = spec.trust_proxy_headers;
    spec.endpoint_prefix.unwrap_or_default().clone_into(&mut config.endpoint_prefix);
    if let (Some(reference), Some(oidc)) = (spec.oidc_config_ref, inputs.oidc) {
        run_config::oidc(config, reference, oidc, (me.namespace(), &context.base_url()));
    }
    if let Some(tools) = inputs.tools {
        run_config::tools(config, tools);
    }
    if let (Some(reference), Some(telemetry)) = (spec.telemetry_config_ref, inputs.telemetry) {
        run_config::telemetry(config, reference, telemetry, me.name());
    }
    if let Some(external) = inputs.external_auth {
        run_config::external_auth(config, external);
    }
    config.authz_config = match (inputs.authz, spec.authz_config) {
        (Some(shared), _) => run_config::shared_authz(shared),
        (None, Some(own)) => authz::in_place(own, me.namespace(), world)?,
        (None, None) => Json::Null,
    };
    config.mutating_webhooks.clone_from(&inputs.webhooks.mutating);
    config.validating_webhooks.clone_from(&inputs.webhooks.validating);
    config.audit_config = spec.has_audit.then(run_config::audit);
    config.header_forward = header_forward(context);
    let session_redis = run_config::session_redis(spec.session_storage, world.settings);
    if session_redis.is_some() {
        config.scaling_config = Some(ScalingConfig { session_redis, ..ScalingConfig::default() });
    }
    add_auth_server(config, context)
}

/// The headers of every request to the server. One that the external authentication injects replaces one of the same name.
fn header_forward(context: &ProxyContext<'_>) -> Option<HeaderForward> {
    let injected = injected_header(context.inputs.external_auth);
    if context.spec.header_forward.is_none() && injected.is_none() {
        return None;
    }
    let mut forward = HeaderForward::default();
    if let Some(headers) = context.spec.header_forward {
        let identifiers = header_identifiers(context.me, headers).into_iter();
        forward.add_plaintext_headers.clone_from(&headers.add_plaintext_headers);
        forward.add_headers_from_secret = identifiers.map(|(name, own)| (name.to_owned(), own)).collect();
    }
    if let Some(injected) = injected {
        let name = &injected.header_name;
        forward.add_plaintext_headers.retain(|other, _| !other.eq_ignore_ascii_case(name));
        forward.add_headers_from_secret.retain(|other, _| !other.eq_ignore_ascii_case(name));
        forward.add_headers_from_secret.insert(name.clone(), injection_identifier(context.me, name));
    }
    Some(forward)
}

fn add_auth_server(config: &mut RunConfig, context: &ProxyContext<'_>) -> Result<(), PlanError> {
    let Some(server) = context.inputs.auth_server else { return Ok(()) };
    let oidc = config.oidc_config.as_mut().ok_or_else(|| {
        let problem =
            "an embedded authorization server needs oidcConfigRef: set it, with audience equal to resourceUrl";
        PlanError::InvalidSpec(problem.to_owned())
    })?;
    let document = auth_server::document(server, oidc, context.me.namespace(), context.me.name())?;
    config.embedded_auth_server_config = Some(document);
    Ok(())
}
