//! The variables of a proxy.

use skep_api::annotation::GENERATION_ENV;
use std::collections::BTreeMap;

use skep_api::kinds::{ExternalAuthMethod, HeaderInjection, MCPExternalAuthConfigSpec};
use skep_api::resource::Resource;
use skep_api::workload::HeaderForward;

use super::ProxyContext;
use crate::auth_server;
use crate::error::PlanError;
use crate::inputs::{redis_env, telemetry_env};
use crate::overrides::PROXY_ENV;
use crate::pod::{Env, GENERATION, check_env_count};
use crate::run_config;
use crate::text::{distinct_identifiers, sanitise, secret_identifier};

/// Variables of one origin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EnvGroup {
    /// The client secret with which opaque tokens are introspected.
    Oidc,
    /// The secrets with which the proxy authenticates to the MCP server.
    ExternalAuth,
    /// The secret values of forwarded headers.
    Headers,
    /// The telemetry exporter.
    Telemetry,
    /// The user's overrides.
    Overrides,
    /// The password of the Redis with the sessions.
    SessionRedis,
    /// The generation that the pod was made for.
    Generation,
    /// The secrets of the embedded authorization server.
    AuthServer,
}

// === impl ProxyContext ===

impl ProxyContext<'_> {
    /// All variables, in the order of the kind.
    pub(super) fn env(&self) -> Env {
        let mut env = Env::new();
        for group in self.kind.env {
            self.add(*group, &mut env);
        }
        env.required();
        env
    }

    /// Refuses more variables of a user than a container gets.
    pub(super) fn check_override_env(&self) -> Result<(), PlanError> {
        check_env_count(PROXY_ENV, self.spec.deployment_overrides().map_or(0, |deployment| deployment.env.len()))
    }

    fn add(&self, group: EnvGroup, env: &mut Env) {
        let Self { me, spec, inputs, world, .. } = self;
        match group {
            EnvGroup::Oidc => {
                let inline = inputs.oidc.and_then(|oidc| oidc.inline.as_ref());
                if let Some(secret) = inline.and_then(|inline| inline.client_secret_ref.as_ref()) {
                    env.secret("TOOLHIVE_OIDC_CLIENT_SECRET", &secret.name, &secret.key);
                }
            }
            EnvGroup::ExternalAuth => self.add_external_auth(env),
            EnvGroup::Headers => self.add_headers(env),
            EnvGroup::Telemetry => {
                if let (Some(reference), Some(telemetry)) = (spec.telemetry_config_ref, inputs.telemetry) {
                    let service = run_config::service_name(reference, me.name());
                    telemetry_env(env, service, me.namespace(), telemetry);
                }
            }
            EnvGroup::Overrides => {
                for variable in spec.deployment_overrides().iter().flat_map(|deployment| &deployment.env) {
                    env.user(PROXY_ENV, &variable.name, &variable.value);
                }
            }
            EnvGroup::SessionRedis => redis_env(env, spec.session_storage, world.settings),
            EnvGroup::Generation => {
                env.field(GENERATION_ENV, &format!("metadata.annotations['{GENERATION}']"));
            }
            EnvGroup::AuthServer => {
                if let Some(server) = inputs.auth_server {
                    auth_server::environment(env, server);
                }
            }
        }
    }

    fn add_external_auth(&self, env: &mut Env) {
        let Some(auth) = self.inputs.external_auth else { return };
        if let Some(secret) = auth.token_exchange.as_ref().and_then(|exchange| exchange.client_secret_ref.as_ref()) {
            env.secret("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", &secret.name, &secret.key);
        }
        if let Some(secret) = auth.bearer_token.as_ref().map(|bearer| &bearer.token_secret_ref) {
            env.secret(&format!("TOOLHIVE_SECRET_{}", secret_identifier(&secret.name)), &secret.name, &secret.key);
        }
    }

    fn add_headers(&self, env: &mut Env) {
        let identifiers = self.spec.header_forward.map(|headers| header_identifiers(self.me, headers));
        let identifiers = identifiers.unwrap_or_default();
        let headers = self.spec.header_forward.map(|headers| headers.add_headers_from_secret.as_slice());
        let forwarded = headers.unwrap_or_default().iter().filter_map(|header| {
            identifiers.get(header.header_name.as_str()).map(|name| (name.clone(), &header.value_secret_ref))
        });
        let injected = injected_header(self.inputs.external_auth)
            .map(|header| (injection_identifier(self.me, &header.header_name), &header.value_secret_ref));
        let headers: Vec<_> = forwarded.chain(injected).collect();
        if !headers.is_empty() {
            env.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
        }
        for (identifier, secret) in headers {
            env.secret(&format!("TOOLHIVE_SECRET_{identifier}"), &secret.name, &secret.key);
        }
    }
}

/// The header that the external authentication of a proxy injects.
pub(super) fn injected_header(auth: Option<&MCPExternalAuthConfigSpec>) -> Option<&HeaderInjection> {
    auth.filter(|auth| auth.method == ExternalAuthMethod::HeaderInjection)?.header_injection.as_ref()
}

/// The name under which the proxy finds the value of a header that is injected.
pub(super) fn injection_identifier(me: &Resource, header: &str) -> String {
    sanitise(&format!("HEADER_INJECTION_{header}_{}", me.name()))
}

/// The names under which the proxy finds the values of headers. No two headers have one, so that no value is sent in another header.
pub(super) fn header_identifiers<'a>(me: &Resource, headers: &'a HeaderForward) -> BTreeMap<&'a str, String> {
    let owner = sanitise(me.name());
    let own = distinct_identifiers(headers.add_headers_from_secret.iter().map(|header| header.header_name.as_str()));
    own.into_iter().map(|(header, own)| (header, format!("HEADER_FORWARD_{own}_{owner}"))).collect()
}
