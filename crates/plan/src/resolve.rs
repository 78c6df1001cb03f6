//! Resolves references, with a condition in the status about each.
//!
//! A configuration is validated here by the same function that its own status comes from, so a workload never acts on a verdict that
//! is older than the spec it reads. Every reference is resolved, also after one that fails; the first failure decides.

use std::sync::Arc;

use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::kinds::{
    ExternalAuthMethod, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPOIDCConfigSpec, MCPTelemetryConfigSpec,
    MCPToolConfigSpec, MCPWebhookConfigSpec,
};
use skep_api::reference::{AuthServerRef, CaBundleRef, RequiredNameRef};
use skep_api::resource::{KindName, Resource};

use crate::error::PlanError;
use crate::run_config;
use crate::status::{Condition, Status};
use crate::validate::{config_hash, validate};
use crate::world::{Found, World};

/// Looks references up, and remembers what to say about them and what failed first.
#[derive(Debug)]
pub(crate) struct Resolver<'a> {
    world: &'a World<'a>,
    namespace: &'a str,
    /// The status so far.
    pub(crate) status: Status,
    /// The first failure.
    pub(crate) failure: Option<PlanError>,
}

/// How a proxy reaches its MCP server, which decides which credentials it can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// A process that reads messages from its standard input.
    Stdio,
    /// A server in the cluster that is reached over HTTP.
    Http,
    /// A server at a URL of the user's.
    Remote,
}

/// The condition and the hash field of a kind of reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferenceCondition {
    /// Type of the condition; empty for none.
    pub(crate) condition: &'static str,
    /// Reason when all is well.
    pub(crate) good: &'static str,
    /// Reason when the object does not exist.
    pub(crate) missing: &'static str,
    /// Reason when the object is there and cannot be used; empty for the reason of the object's own verdict.
    pub(crate) invalid: &'static str,
    /// The status field with the object's hash; empty for none.
    pub(crate) hash: &'static str,
}

/// A reference to an MCPOIDCConfig.
pub(crate) const OIDC: ReferenceCondition = ReferenceCondition {
    condition: "OIDCConfigRefValidated",
    good: "OIDCConfigRefValid",
    missing: "OIDCConfigRefNotFound",
    invalid: "OIDCConfigRefNotValid",
    hash: "oidcConfigHash",
};
/// A reference to an MCPAuthzConfig.
pub(crate) const AUTHZ: ReferenceCondition = ReferenceCondition {
    condition: "AuthzConfigRefValidated",
    good: "AuthzConfigRefValid",
    missing: "AuthzConfigRefNotFound",
    invalid: "AuthzConfigRefNotValid",
    hash: "authzConfigHash",
};
/// A reference to an MCPTelemetryConfig.
pub(crate) const TELEMETRY: ReferenceCondition = ReferenceCondition {
    condition: "TelemetryConfigRefValidated",
    good: "TelemetryConfigRefValid",
    missing: "TelemetryConfigRefNotFound",
    invalid: "TelemetryConfigRefInvalid",
    hash: "telemetryConfigHash",
};
/// A reference to an MCPToolConfig.
pub(crate) const TOOLS: ReferenceCondition = ReferenceCondition {
    condition: "ToolConfigValidated",
    good: "ToolConfigValid",
    missing: "ToolConfigNotFound",
    invalid: "ToolConfigInvalid",
    hash: "toolConfigHash",
};
/// A reference to an MCPWebhookConfig.
pub(crate) const WEBHOOKS: ReferenceCondition = ReferenceCondition {
    condition: "WebhookConfigValidated",
    good: "WebhookConfigValid",
    missing: "WebhookConfigNotFound",
    invalid: "WebhookConfigInvalid",
    hash: "webhookConfigHash",
};
/// A reference to an MCPExternalAuthConfig.
pub(crate) const EXTERNAL_AUTH: ReferenceCondition = ReferenceCondition {
    condition: "ExternalAuthConfigValidated",
    good: "ExternalAuthConfigValid",
    missing: "ExternalAuthConfigNotFound",
    invalid: "",
    hash: "externalAuthConfigHash",
};
/// A reference to an MCPExternalAuthConfig that holds an authorization server.
pub(crate) const AUTH_SERVER: ReferenceCondition = ReferenceCondition {
    condition: "AuthServerRefValidated",
    good: "AuthServerRefValid",
    missing: "AuthServerRefNotFound",
    invalid: "AuthServerRefInvalidConfig",
    hash: "authServerConfigHash",
};

/// Every status field that holds the hash of a configuration.
pub(crate) const HASHES: &[&str] =
    &[OIDC.hash, AUTHZ.hash, TELEMETRY.hash, TOOLS.hash, WEBHOOKS.hash, EXTERNAL_AUTH.hash, AUTH_SERVER.hash];

/// The object of that name, if it is there and valid.
pub(crate) fn find<'a>(
    world: &'a World<'_>,
    kind: KindName,
    namespace: &str,
    name: &str,
) -> Result<&'a Arc<Resource>, PlanError> {
    match world.resource(kind, namespace, name) {
        Some(Found::Resource(object)) => match validate(object, world) {
            Ok(()) => Ok(object),
            Err(invalid) => {
                let message = format!("{kind} `{name}` is not valid: {invalid}");
                Err(PlanError::InvalidConfig { reason: invalid.reason(), message })
            }
        },
        Some(Found::Unlisted(why)) => Err(PlanError::Unlisted { kind, name: name.to_owned(), why: why.clone() }),
        Some(found) => {
            let why = if let Found::Unreadable(why) = found { why.as_str() } else { "it is of another kind" };
            let message = format!("{kind} `{name}` cannot be read: {why}");
            Err(PlanError::InvalidConfig { reason: "InvalidConfig", message })
        }
        None => Err(PlanError::MissingResource { kind, name: name.to_owned(), namespace: namespace.to_owned() }),
    }
}

macro_rules! lookups {
    ($($method:ident: $kind:ident => $spec:ty),+ $(,)?) => {
        impl<'a> Resolver<'a> {
            $(
                /// The configuration of that name, if it is there and valid.
                pub(crate) fn $method(&mut self, name: Option<&str>, reported: ReferenceCondition) -> Option<&'a $spec> {
                    match self.config(KindName::$kind, name, reported)?.as_ref() {
                        Resource::$kind(object) => Some(&object.spec),
                        _ => None,
                    }
                }
            )+
        }
    };
}

lookups! {
    oidc: MCPOIDCConfig => MCPOIDCConfigSpec,
    telemetry: MCPTelemetryConfig => MCPTelemetryConfigSpec,
    tools: MCPToolConfig => MCPToolConfigSpec,
    webhooks: MCPWebhookConfig => MCPWebhookConfigSpec,
    external_auth: MCPExternalAuthConfig => MCPExternalAuthConfigSpec,
    authz: MCPAuthzConfig => MCPAuthzConfigSpec,
}

// === impl Resolver ===

impl<'a> Resolver<'a> {
    /// A resolver for the references of a resource in `namespace`.
    pub(crate) fn new(world: &'a World<'a>, namespace: &'a str, status: Status) -> Self {
        Self { world, namespace, status, failure: None }
    }

    /// Records a failure, unless there was one before.
    pub(crate) fn fail(&mut self, error: PlanError) {
        self.failure.get_or_insert(error);
    }

    /// As [`Self::fail`], with a condition of the error's own reason and message.
    pub(crate) fn reject(&mut self, condition: &str, error: PlanError) {
        self.reject_as(condition, error.reason(), error);
    }

    /// As [`Self::reject`], with another reason. A condition about the same failure that is false already stays.
    pub(crate) fn reject_as(&mut self, condition: &str, reason: &str, error: PlanError) {
        if self.status.find(condition).is_none_or(Condition::is_true) {
            self.status.condition(condition, false, reason, error.to_string());
        }
        self.fail(error);
    }

    /// The credentials that a proxy calls its MCP server with. What the proxy cannot put on its calls it does without, as in the original: the credentials
    /// that only a virtual server has, and any for a server on stdio. A virtual server in front may use them, so that the server runs; the
    /// status says that they are not in force, and shows no hash of them. What would keep the proxy from starting is refused.
    pub(crate) fn proxy_external_auth(
        &mut self,
        name: Option<&str>,
        server: ServerKind,
    ) -> Option<&'a MCPExternalAuthConfigSpec> {
        let config = self.external_auth(name, EXTERNAL_AUTH)?;
        let method = serde_json::to_value(config.method).unwrap_or_default();
        let subject = format!(
            "MCPExternalAuthConfig `{}` has type {}",
            name.unwrap_or_default(),
            method.as_str().unwrap_or_default()
        );
        if config.method == ExternalAuthMethod::AwsSts && server != ServerKind::Remote {
            let message = format!(
                "{subject}, and only requests to a remote server can be signed; use an MCPRemoteProxy, or another type"
            );
            self.reject(EXTERNAL_AUTH.condition, PlanError::invalid("RemoteServerRequired", message));
            self.set_hash(EXTERNAL_AUTH, None);
            return None;
        }
        let (reason, problem) = if !run_config::is_used_by_proxies(config.method) {
            let problem =
                "of which the proxy sends no credentials, only a VirtualMCPServer in front does; use another type";
            ("UsedByVirtualServersOnly", problem)
        } else if server == ServerKind::Stdio && run_config::needs_requests(config.method) {
            let problem = "and a server on stdio gets no request that could carry credentials; use transport streamable-http or sse";
            ("StdioServer", problem)
        } else {
            return Some(config);
        };
        let message =
            format!("{subject}, {problem}, or remove externalAuthConfigRef, unless a VirtualMCPServer uses it");
        self.status.condition("ExternalAuthInForce", false, reason, message);
        self.set_hash(EXTERNAL_AUTH, None);
        None
    }

    /// The embedded authorization server that an `authServerRef` names.
    pub(crate) fn auth_server(&mut self, reference: Option<&AuthServerRef>) -> Option<&'a EmbeddedAuthServer> {
        let name = reference.map(|reference| reference.name.as_str());
        let config = self.external_auth(name, AUTH_SERVER)?;
        let name = name.unwrap_or_default();
        if config.method != ExternalAuthMethod::EmbeddedAuthServer {
            let method = serde_json::to_value(config.method).unwrap_or_default();
            let method = method.as_str().unwrap_or_default();
            let message =
                format!("authServerRef '{name}' has type \"{method}\", but only embeddedAuthServer is supported");
            self.reject(AUTH_SERVER.condition, PlanError::invalid("AuthServerRefInvalidType", message));
            return None;
        }
        let server = config.embedded_auth_server.as_ref()?;
        self.one_upstream(server, AUTH_SERVER.condition, name)?;
        Some(server)
    }

    /// The authorization server inside the configuration of an `externalAuthConfigRef`, if it is of that type.
    pub(crate) fn embedded(
        &mut self,
        name: &str,
        config: &'a MCPExternalAuthConfigSpec,
    ) -> Option<&'a EmbeddedAuthServer> {
        let server = config.embedded_auth_server.as_ref()?;
        self.one_upstream(server, EXTERNAL_AUTH.condition, name)?;
        Some(server)
    }

    /// One of two authorization servers, of which a workload can have only one.
    pub(crate) fn one_auth_server(
        &mut self,
        named: Option<&'a EmbeddedAuthServer>,
        embedded: Option<&'a EmbeddedAuthServer>,
    ) -> Option<&'a EmbeddedAuthServer> {
        if named.is_some() && embedded.is_some() {
            let message = "conflict: authServerRef and externalAuthConfigRef both name an embedded authorization server; keep one of them";
            self.reject(AUTH_SERVER.condition, PlanError::invalid("AuthServerRefInvalidConfig", message));
        }
        named.or(embedded)
    }

    /// The group that a resource belongs to. Advice only: nothing waits for it.
    pub(crate) fn group(&mut self, reference: Option<&RequiredNameRef>) {
        let Some(name) = reference.map(|reference| reference.name.as_str()) else { return };
        match self.world.resource(KindName::MCPGroup, self.namespace, name) {
            Some(Found::Resource(group)) if !group.is_deleting() => {
                let message = format!("MCPGroup '{name}' is valid and ready");
                self.status.condition("GroupRefValidated", true, "GroupRefIsValid", message);
            }
            Some(_) => {
                let message = format!("MCPGroup '{name}' is being deleted or cannot be read");
                self.status.condition("GroupRefValidated", false, "GroupRefNotReady", message);
            }
            None => {
                let message = format!("MCPGroup '{name}' not found in namespace '{}'", self.namespace);
                self.status.condition("GroupRefValidated", false, "GroupRefNotFound", message);
            }
        }
    }

    /// The bundle of certificate authorities of an identity provider. Advice only: the pod waits for its ConfigMap by itself.
    pub(crate) fn ca_bundle(&mut self, bundle: Option<&CaBundleRef>) {
        let Some(reference) = bundle.and_then(|bundle| bundle.config_map_ref.as_ref()) else { return };
        let (name, key) = (&reference.name, if reference.key.is_empty() { "ca.crt" } else { &reference.key });
        match self.world.config_map(self.namespace, name) {
            None => {
                let message = format!("CA bundle ConfigMap '{name}' not found; create it with the key '{key}'");
                self.status.condition("CABundleRefValidated", false, "CABundleRefNotFound", message);
            }
            Some(data) if !data.contains_key(key) => {
                let message = format!("Key '{key}' not found in ConfigMap '{name}'");
                self.status.condition("CABundleRefValidated", false, "CABundleRefInvalid", message);
            }
            Some(_) => {
                let message = format!("CA bundle ConfigMap '{name}' is valid (key: {key})");
                self.status.condition("CABundleRefValidated", true, "CABundleRefValid", message);
            }
        }
    }

    fn config(
        &mut self,
        kind: KindName,
        name: Option<&str>,
        reported: ReferenceCondition,
    ) -> Option<&'a Arc<Resource>> {
        let Some(name) = name else {
            self.set_hash(reported, None);
            return None;
        };
        match find(self.world, kind, self.namespace, name) {
            Ok(config) => {
                self.set_hash(reported, Some(config_hash(config)));
                self.report(reported, true, reported.good, format!("{kind} {name} is valid and ready"));
                Some(config)
            }
            Err(error) => {
                let reason = error.reference_reason(reported.missing, reported.invalid);
                self.report(reported, false, reason, error.to_string());
                self.fail(error);
                None
            }
        }
    }

    fn one_upstream(&mut self, server: &EmbeddedAuthServer, condition: &'static str, name: &str) -> Option<()> {
        if server.upstream_providers.len() <= 1 {
            return Some(());
        }
        let message = format!(
            "`{name}` has {} upstream providers; only a VirtualMCPServer can have several, keep one here",
            server.upstream_providers.len()
        );
        self.reject(condition, PlanError::invalid("MultiUpstreamNotSupported", message));
        None
    }

    fn report(&mut self, reported: ReferenceCondition, holds: bool, reason: &str, message: String) {
        if !reported.condition.is_empty() {
            self.status.condition(reported.condition, holds, reason, message);
        }
    }

    fn set_hash(&mut self, reported: ReferenceCondition, hash: Option<String>) {
        if !reported.hash.is_empty() {
            self.status.set(reported.hash, hash);
        }
    }
}
