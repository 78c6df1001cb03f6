//! The authentication and authorization of the clients of a virtual server.

use serde::Deserialize;
use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::authz::AuthzConfig;
use skep_api::kinds::{IncomingAuth, IncomingAuthType, MCPOIDCConfigSpec, VirtualMCPServerSpec};
use skep_api::reference::{OidcConfigRef, Reference, Target};
use skep_api::resource::{KindName, Resource};
use skep_api::virtual_config::{IncomingAuthz, IncomingOidc, ResolvedIncomingAuth};
use skep_runconfig::run_config::OidcConfig;
use skep_runconfig::{EmbeddedAuthServerConfig, Json, RunConfig};

use super::base_url;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::resolve::{self, AUTHZ, Resolver};
use crate::validate::{embedded_auth_server, synthesizes_identity};
use crate::world::World;
use crate::{auth_server, authz, run_config};

/// The variable with the secret of the client that looks opaque tokens up.
pub(super) const CLIENT_SECRET: &str = "VMCP_OIDC_CLIENT_SECRET";
/// The only engine that a virtual server has.
const ENGINE: &str = "cedarv1";
const AUTH_SERVER: &str = "AuthServerConfigValidated";
const SECRETS: &str = "AuthConfigured";

/// Validates the embedded authorization server, and whose claims the policies see.
pub(super) fn auth_server(resolver: &mut Resolver<'_>, spec: &VirtualMCPServerSpec) {
    if let Some(server) = &spec.auth_server_config {
        if synthesizes_identity(server) {
            let message = "an upstream provider has no user info endpoint: identities are synthesized from its tokens";
            resolver.status.condition("IdentitySynthesized", true, "OAuth2UpstreamWithoutUserInfo", message);
        } else {
            let message = "every upstream provider has a user info endpoint";
            resolver.status.condition("IdentitySynthesized", false, "AllUpstreamsHaveUserInfo", message);
        }
        let needs_oidc =
            "spec.incomingAuth.type must be oidc: clients present the tokens that the authorization server issued";
        let checked = match (embedded_auth_server(server), spec.incoming_auth.method) {
            (Err(problem), _) => Err(PlanError::field("spec.authServerConfig", problem)),
            (Ok(()), IncomingAuthType::Anonymous) => Err(PlanError::InvalidSpec(needs_oidc.to_owned())),
            (Ok(()), IncomingAuthType::Oidc) => Ok(()),
        };
        match checked {
            Ok(()) => {
                let message = "the authorization server can run";
                resolver.status.condition(AUTH_SERVER, true, "AuthServerConfigValid", message);
            }
            Err(error) => resolver.reject_as(AUTH_SERVER, "AuthServerConfigInvalid", error),
        }
    }
    upstream_choice(resolver, spec);
}

/// Whether the provider whose claims the policies see is there.
fn upstream_choice(resolver: &mut Resolver<'_>, spec: &VirtualMCPServerSpec) {
    let incoming = &spec.incoming_auth;
    let server = spec.auth_server_config.as_ref();
    let chosen = chosen_upstream(incoming, server);
    let upstreams = server.map(|server| server.upstream_providers.as_slice()).unwrap_or_default();
    match (chosen, server) {
        (Some(name), None) => {
            let message = format!(
                "primaryUpstreamProvider `{name}` is a provider of an embedded authorization server; set \
                 spec.authServerConfig, or remove it"
            );
            resolver.reject(AUTH_SERVER, PlanError::invalid("AuthzPrimaryProviderRequiresAuthServer", message));
        }
        (Some(_), Some(_)) if upstreams.is_empty() => {
            let message =
                "spec.authServerConfig.upstreamProviders is empty: the policies see the claims of a provider; name one";
            resolver.reject(AUTH_SERVER, PlanError::invalid("AuthzRequiresUpstream", message));
        }
        (Some(name), Some(_)) if !upstreams.iter().any(|provider| provider.name == name) => {
            let known = upstreams.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>().join("`, `");
            let message =
                format!("primaryUpstreamProvider: there is no upstream provider `{name}`; name one of `{known}`");
            resolver.reject(AUTH_SERVER, PlanError::invalid("AuthzUpstreamUnknown", message));
        }
        (None, Some(_)) if upstreams.len() > 1 && has_authz(incoming) => {
            let first = upstreams.first().map(|provider| provider.name.as_str()).unwrap_or_default();
            let message = format!(
                "there are several upstream providers; the policies see the claims of the first, `{first}`: set \
                 spec.authServerConfig.primaryUpstreamProvider to choose"
            );
            resolver.status.condition("AuthzUpstreamSelectionWarning", true, "AuthzUpstreamAutoSelected", message);
        }
        _ => {}
    }
}

/// The provider that is named, at its place or at its older one.
fn chosen_upstream<'a>(incoming: &'a IncomingAuth, server: Option<&'a EmbeddedAuthServer>) -> Option<&'a str> {
    let here = server.and_then(|server| server.primary_upstream_provider.as_deref());
    let older = incoming.authz_config.as_ref().and_then(|authz| authz.inline.as_ref());
    here.or_else(|| older.and_then(|inline| inline.primary_upstream_provider.as_deref()))
}

const fn has_authz(incoming: &IncomingAuth) -> bool {
    incoming.authz_config.is_some() || incoming.authz_config_ref.is_some()
}

/// The configuration of the issuer whose tokens are valid, if the reference leads to one.
pub(super) fn oidc<'a>(resolver: &mut Resolver<'a>, incoming: &IncomingAuth) -> Option<&'a MCPOIDCConfigSpec> {
    let reference = incoming.oidc_config_ref.as_ref().map(|reference| reference.name.as_str());
    let oidc = resolver.oidc(reference, resolve::OIDC);
    if let Some(inline) = oidc.and_then(|oidc| oidc.inline.as_ref()) {
        resolver.ca_bundle(inline.ca_bundle_ref.as_ref());
    }
    oidc
}

/// The policies of a shared configuration. A virtual server has one engine only.
pub(super) fn shared_authz(resolver: &mut Resolver<'_>, incoming: &IncomingAuth) -> Option<Json> {
    let name = incoming.authz_config_ref.as_ref().map(|reference| reference.name.as_str());
    let shared = resolver.authz(name, AUTHZ)?;
    if shared.engine != ENGINE {
        let name = name.unwrap_or_default();
        let message = format!(
            "MCPAuthzConfig `{name}` is of type `{}`, and a virtual server decides by `{ENGINE}` only; name one of \
             that type",
            shared.engine
        );
        resolver.reject(AUTHZ.condition, PlanError::invalid(AUTHZ.invalid, message));
        return None;
    }
    Some(run_config::shared_authz(shared))
}

/// Validates what authentication needs and the references do not say: that Secrets are there, and that policies written in
/// place hold. Gives the policies, wherever they were written.
pub(super) fn authentication(
    resolver: &mut Resolver<'_>,
    me: &Resource,
    incoming: &IncomingAuth,
    shared: Option<Json>,
    world: &World<'_>,
) -> Option<Json> {
    let failed = [resolve::OIDC.condition, AUTHZ.condition, AUTH_SERVER]
        .iter()
        .find_map(|kind| resolver.status.find(kind).filter(|condition| !condition.is_true()));
    if let Some(message) = failed.map(|condition| condition.message.clone()) {
        resolver.status.condition(SECRETS, false, "AuthInvalid", message);
        return None;
    }
    let secrets = missing_secrets(me, incoming, world);
    if !secrets.is_empty() {
        let message = secrets.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        resolver.reject(SECRETS, PlanError::not_ready("AuthInvalid", message));
        return None;
    }
    let policies = match (&incoming.authz_config, shared) {
        (Some(authz), _) => match in_place(authz, me.namespace(), world) {
            Ok(document) => Some(document),
            Err(error) => {
                resolver.reject(SECRETS, error);
                return None;
            }
        },
        (None, shared) => shared,
    };
    resolver.status.condition(SECRETS, true, "AuthValid", "Authentication configuration is valid");
    policies
}

/// The Secrets of the identity provider and of the authorization server that are not there.
fn missing_secrets(me: &Resource, incoming: &IncomingAuth, world: &World<'_>) -> Vec<MissingKey> {
    let provider = incoming
        .oidc_config_ref
        .as_ref()
        .and_then(|reference| resolve::find(world, KindName::MCPOIDCConfig, me.namespace(), &reference.name).ok());
    let own = me.references().into_iter().filter(|reference| reference.field.starts_with("spec.authServerConfig"));
    let of_provider = provider.map(|config| config.references()).unwrap_or_default();
    let of_provider = of_provider.into_iter().map(|mut reference| {
        reference.field = format!("spec.incomingAuth.oidcConfigRef: {}", reference.field);
        reference
    });
    let missing = |reference: Reference| match &reference.to {
        Target::Secret { key } => {
            MissingKey::check(&reference.field, (ObjectKind::Secret, &reference.name, key), me.namespace(), world).err()
        }
        _ => None,
    };
    of_provider.chain(own).filter_map(missing).collect()
}

/// Policies that stand in the spec or in a ConfigMap that it names.
fn in_place(authz: &AuthzConfig, namespace: &str, world: &World<'_>) -> Result<Json, PlanError> {
    let here = |message: &str| message.replacen("spec.", "spec.incomingAuth.", 1);
    let document = authz::in_place(authz, namespace, world).map_err(|error| match error {
        PlanError::MissingPolicyMap(message) => PlanError::MissingPolicyMap(here(&message)),
        PlanError::InvalidPolicyMap(message) => PlanError::InvalidPolicyMap(here(&message)),
        other => PlanError::InvalidConfig { reason: "AuthInvalid", message: here(&other.to_string()) },
    })?;
    let engine = document.get("type").and_then(Json::as_str).unwrap_or_default();
    if engine != ENGINE {
        let name = authz.config_map.as_ref().map(|map| map.name.as_str()).unwrap_or_default();
        let message = format!(
            "spec.incomingAuth.authzConfig: ConfigMap `{name}` holds a document of type `{engine}`, and a virtual \
             server decides by `{ENGINE}` only"
        );
        return Err(PlanError::InvalidPolicyMap(message));
    }
    Ok(document)
}

/// The incoming authentication of the document, and the document of the embedded authorization server.
pub(super) fn document(
    resolver: &mut Resolver<'_>,
    me: &Resource,
    spec: &VirtualMCPServerSpec,
    oidc: Option<&MCPOIDCConfigSpec>,
    policies: Option<&Json>,
) -> (ResolvedIncomingAuth, Option<EmbeddedAuthServerConfig>) {
    let incoming = &spec.incoming_auth;
    let method = match incoming.method {
        IncomingAuthType::Anonymous => "anonymous",
        IncomingAuthType::Oidc => "oidc",
    };
    let mut authentication = ResolvedIncomingAuth { method: method.to_owned(), ..ResolvedIncomingAuth::default() };
    let mut own = None;
    if let (IncomingAuthType::Oidc, Some(reference), Some(config)) = (incoming.method, &incoming.oidc_config_ref, oidc)
    {
        let mut believed = provider(me, reference, config);
        if let Some(server) = &spec.auth_server_config {
            let fits = check_issuer(server, &believed);
            match fits.and_then(|()| auth_server::document(server, &mut believed, me.namespace(), me.name())) {
                Ok(document) => own = Some(document),
                Err(error) => resolver.reject_as(AUTH_SERVER, "AuthServerConfigInvalid", error),
            }
        }
        authentication.oidc = Some(incoming_oidc(config, believed));
    }
    match policies.map(|policies| cedar(policies, incoming, spec.auth_server_config.as_ref())).transpose() {
        Ok(authz) => authentication.authz = authz,
        Err(error) => resolver.reject_as(SECRETS, "AuthInvalid", error),
    }
    (authentication, own)
}

/// The same document that a proxy gets, from which ours is taken: one place says what a configuration comes to.
fn provider(me: &Resource, reference: &OidcConfigRef, config: &MCPOIDCConfigSpec) -> OidcConfig {
    let mut scratch = RunConfig::default();
    run_config::oidc(&mut scratch, reference, config, (me.namespace(), &base_url(me)));
    scratch.oidc_config.unwrap_or_default()
}

fn check_issuer(server: &EmbeddedAuthServer, believed: &OidcConfig) -> Result<(), PlanError> {
    if server.issuer.trim_end_matches('/') == believed.issuer.trim_end_matches('/') {
        return Ok(());
    }
    Err(PlanError::InvalidSpec(format!(
        "spec.authServerConfig.issuer `{}` must equal the issuer of the MCPOIDCConfig, `{}`: clients present the \
         tokens that it issued",
        server.issuer, believed.issuer
    )))
}

fn incoming_oidc(config: &MCPOIDCConfigSpec, believed: OidcConfig) -> IncomingOidc {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let inline = config.inline.as_ref();
    IncomingOidc {
        issuer: believed.issuer,
        client_id: believed.client_id,
        client_secret_env: inline
            .and_then(|inline| inline.client_secret_ref.as_ref())
            .map(|_| CLIENT_SECRET.to_owned()),
        audience: believed.audience,
        resource: some(believed.resource_url),
        scopes: believed.scopes.unwrap_or_default(),
        jwks_url: some(believed.jwks_url),
        introspection_url: some(believed.introspection_url),
        ca_bundle_path: some(believed.ca_cert_path),
        protected_resource_allow_private_ip: inline.is_some_and(|inline| inline.protected_resource_allow_private_ip),
        jwks_allow_private_ip: inline.map_or(believed.allow_private_ip, |inline| inline.jwks_allow_private_ip),
        insecure_allow_http: believed.insecure_allow_http,
    }
}

/// The Cedar part of an authorization document.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cedar {
    policies: Vec<String>,
    entities_json: Option<String>,
    primary_upstream_provider: Option<String>,
    group_claim_name: Option<String>,
    role_claim_name: Option<String>,
    group_entity_type: Option<String>,
}

fn cedar(
    document: &Json,
    incoming: &IncomingAuth,
    server: Option<&EmbeddedAuthServer>,
) -> Result<IncomingAuthz, PlanError> {
    let cedar = document.get("cedar").cloned().unwrap_or(Json::Null);
    let cedar: Cedar = cedar
        .decode()
        .map_err(|error| PlanError::InvalidSpec(format!("the authorization policies cannot be read: {error}")))?;
    let first = server.and_then(|server| server.upstream_providers.first()).map(|provider| provider.name.clone());
    let chosen = chosen_upstream(incoming, server).map(str::to_owned);
    Ok(IncomingAuthz {
        engine: "cedar".into(),
        policies: cedar.policies,
        entities_json: cedar.entities_json,
        primary_upstream_provider: chosen.or(cedar.primary_upstream_provider).or(first),
        group_claim_name: cedar.group_claim_name,
        role_claim_name: cedar.role_claim_name,
        group_entity_type: cedar.group_entity_type,
    })
}
