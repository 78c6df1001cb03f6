//! How a virtual server authenticates to its backends: every MCPExternalAuthConfig as a strategy of the
//! document.
//!
//! A backend whose strategy cannot be converted affects no other. It never gets foreign credentials: a strategy that
//! fails does not fall back to the default one, whose credentials are not meant for it.

use std::collections::BTreeMap;

use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::kinds::{
    AwsSts, BackendAuth, BackendAuthType, CrossAppAccess, ExternalAuthMethod, MCPExternalAuthConfigSpec,
    OutgoingAuthSource, TokenExchange, VirtualMCPServerSpec,
};
use skep_api::reference::{Reference, SecretKeyRef};
use skep_api::resource::{KindName, Resource};
use skep_api::virtual_config::{
    AwsStsStrategy, AwsStsStrategyRole, CrossAppAccessStrategy, HeaderInjectionStrategy, OutgoingStrategy,
    ResolvedOutgoingAuth, TokenExchangeStrategy, UpstreamInjectStrategy,
};
use skep_bounds::REFERENCED_MATCHER_TOKENS;

use super::budget::{ReferenceBudget, Size};
use super::members::Member;
use crate::error::{MissingKey, NOT_SUPPORTED, PlanError};
use crate::key::ObjectKind;
use crate::resolve::find;
use crate::run_config::token_type;
use crate::status::Status;
use crate::support;
use crate::text::{Name, sanitise};
use crate::validate::{clipped_to, matcher_tokens};
use crate::world::{Feature, Found, World};

/// The strategy of a backend that is called as its own resource says, whatever the default is. Only where backends are discovered.
pub const DISCOVERED: &str = "discovered";
/// The strategy of a backend whose credentials could not be resolved: it is left out, also where it is named in the configuration by hand.
pub const UNRESOLVED: &str = "unresolved";
const SUCCEEDED: &str = "ConversionSucceeded";
const FAILED: &str = "ConversionFailed";
const AMBIGUOUS: &str = "AmbiguousSubjectProvider";
/// The longest message of a condition about one server, in bytes. There is one for each, and a status has no more room than an object.
const LONGEST_MESSAGE: usize = 512;
/// How many upstream providers a message names.
const LISTED_PROVIDERS: usize = 10;

/// The credentials for backends, for the document and for the pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    /// The member of the document.
    pub(super) document: ResolvedOutgoingAuth,
    /// The variables that carry secrets, in the order of the contract.
    pub(super) secrets: Vec<(String, SecretKeyRef)>,
    /// Members whose credentials cannot be resolved, and why.
    pub(super) failed: BTreeMap<String, PlanError>,
    /// What the variables are read from.
    pub(super) inputs: Vec<Reference>,
}

/// One strategy of outgoing authentication, and the variables that it needs.
pub(super) struct Strategy {
    pub(super) document: OutgoingStrategy,
    pub(super) secrets: Vec<(String, SecretKeyRef)>,
    inputs: Vec<Reference>,
}

/// Where configurations are looked up, and the authorization server whose upstream providers they may name.
///
/// A configuration is found and validated once, however many servers refer to it; and what all of them cost is bounded: the matchers
/// that are parsed, and the bytes that the document takes over.
pub(super) struct Converter<'a, 'b> {
    world: &'a World<'a>,
    namespace: &'a str,
    auth_server: Option<&'a EmbeddedAuthServer>,
    known: BTreeMap<String, Result<Configuration<'a>, PlanError>>,
    matcher_tokens_left: usize,
    budget: &'b mut ReferenceBudget,
}

/// A configuration that is valid.
#[derive(Clone, Copy)]
struct Configuration<'a> {
    resource: &'a Resource,
    spec: &'a MCPExternalAuthConfigSpec,
    /// The size of its spec.
    size: Size,
}

/// What is said about a strategy.
struct AuthCondition {
    holds: bool,
    reason: &'static str,
    message: String,
}

/// Whether the servers stand in the document, and only what is said here counts.
pub(super) fn is_inline(spec: &VirtualMCPServerSpec) -> bool {
    spec.outgoing_auth.as_ref().is_some_and(|outgoing| outgoing.source == OutgoingAuthSource::Inline)
}

/// Converts all strategies, with a condition in the status about each.
pub(super) fn resolve<'a>(
    status: &mut Status,
    budget: &mut ReferenceBudget,
    spec: &'a VirtualMCPServerSpec,
    members: &[Member<'a>],
    namespace: &'a str,
    world: &'a World<'a>,
) -> Outgoing {
    let mut converter = Converter::new(world, namespace, spec.auth_server_config.as_ref(), budget);
    let mut discovered: BTreeMap<&str, AuthCondition> = BTreeMap::new();
    let inline = is_inline(spec);
    // An image that is not Skep's knows neither of the types that only ours reads.
    let reads_ours = world.settings.unsupported_by_vmcp.is_some();
    let unresolved = if reads_ours { of_type(UNRESOLVED) } else { unauthenticated() };
    let mut all = Outgoing::default();
    all.document.source.push_str(if inline { "inline" } else { "discovered" });
    let nothing = BTreeMap::new();
    let outgoing = spec.outgoing_auth.as_ref();
    let entries = outgoing.map_or(&nothing, |outgoing| &outgoing.backends);
    let default = outgoing.and_then(|outgoing| outgoing.default.as_ref());

    for member in members.iter().filter(|member| !entries.contains_key(member.name())) {
        let own = default.is_some_and(|auth| auth.method == BackendAuthType::Discovered);
        match member.external_auth() {
            // The process reads it by itself; here only its condition is written.
            Some(name) if !inline => {
                let condition = discovered.entry(name).or_insert_with(|| AuthCondition::of(&converter.strategy(name)));
                condition.say(status, &format!("DiscoveredAuthConfig-{}", member.name()));
            }
            Some(name) if own => {
                let strategy = all.distinct(converter.take_over(name));
                AuthCondition::of(&strategy).say(status, &format!("DiscoveredAuthConfig-{}", member.name()));
                all.backend(member.name(), strategy, inline, &unresolved);
            }
            _ => {}
        }
    }
    for (name, auth) in entries.iter().filter(|(name, _)| Name::subdomain(name).is_ok()) {
        if reads_ours && !inline && auth.method == BackendAuthType::Discovered {
            all.document.backends.insert(name.clone(), of_type(DISCOVERED));
            continue;
        }
        let own = members.iter().find(|member| member.name() == name && inline).and_then(Member::external_auth);
        let strategy = all.distinct(converter.entry(auth, own));
        AuthCondition::of(&strategy).say(status, &format!("BackendAuthConfig-{name}"));
        all.backend(name, strategy, inline, &unresolved);
    }
    if let Some(auth) = default {
        let strategy = all.distinct(converter.entry(auth, None));
        AuthCondition::of(&strategy).say(status, "DefaultAuthConfig");
        match strategy {
            Ok(strategy) => {
                all.secrets.extend(strategy.secrets);
                all.inputs.extend(strategy.inputs);
                all.document.default = Some(strategy.document);
            }
            Err(error) => {
                if inline {
                    let without = members.iter().map(Member::name).filter(|name| !entries.contains_key(*name));
                    let error = shortened(&error);
                    all.failed.extend(without.map(|name| (name.to_owned(), error.clone())));
                }
                all.document.default = Some(unresolved).filter(|_| reads_ours);
            }
        }
    }
    all
}

// === impl Outgoing ===

impl Outgoing {
    /// Refuses a strategy whose secret would arrive in a variable that carries another one: `a.b` and `a-b` are both
    /// `A_B` there.
    fn distinct(&self, strategy: Result<Strategy, PlanError>) -> Result<Strategy, PlanError> {
        let strategy = strategy?;
        for (variable, secret) in &strategy.secrets {
            if self.secrets.iter().any(|(known, other)| known == variable && other != secret) {
                let message = format!(
                    "variable `{variable}` carries the secret of another MCPExternalAuthConfig; rename one of them"
                );
                return Err(PlanError::InvalidConfig { reason: FAILED, message });
            }
        }
        Ok(strategy)
    }

    fn backend(
        &mut self,
        name: &str,
        strategy: Result<Strategy, PlanError>,
        inline: bool,
        unresolved: &OutgoingStrategy,
    ) {
        match strategy {
            Ok(strategy) => {
                self.secrets.extend(strategy.secrets);
                self.inputs.extend(strategy.inputs);
                self.document.backends.insert(name.to_owned(), strategy.document);
            }
            // The process may know this server otherwise: it finds it by itself, or it is named by hand. It leaves it out then, and calls it
            // neither without credentials nor with the default's.
            Err(error) => {
                if inline {
                    self.failed.insert(name.to_owned(), shortened(&error));
                }
                self.document.backends.insert(name.to_owned(), unresolved.clone());
            }
        }
    }
}

// === impl Converter ===

impl<'a, 'b> Converter<'a, 'b> {
    pub(super) fn new(
        world: &'a World<'a>,
        namespace: &'a str,
        auth_server: Option<&'a EmbeddedAuthServer>,
        budget: &'b mut ReferenceBudget,
    ) -> Self {
        let matcher_tokens_left = REFERENCED_MATCHER_TOKENS;
        Self { world, namespace, auth_server, known: BTreeMap::new(), matcher_tokens_left, budget }
    }

    /// What an entry of the spec comes to; `own` is what the server names itself, where that counts.
    fn entry(&mut self, auth: &BackendAuth, own: Option<&str>) -> Result<Strategy, PlanError> {
        let name = match auth.method {
            BackendAuthType::Discovered => own,
            BackendAuthType::ExternalAuthConfigRef => {
                auth.external_auth_config_ref.as_ref().map(|reference| reference.name.as_str())
            }
        };
        match name {
            Some(name) => self.take_over(name),
            None => Ok(Strategy { document: unauthenticated(), secrets: Vec::new(), inputs: Vec::new() }),
        }
    }

    /// A strategy for the document.
    fn take_over(&mut self, name: &str) -> Result<Strategy, PlanError> {
        let size = self.find(name)?.size;
        self.budget.charge(size).map_err(|error| failed(name, &error.to_string()))?;
        self.strategy(name)
    }

    /// The configuration of that name, if it is there and valid.
    fn find(&mut self, name: &str) -> Result<Configuration<'a>, PlanError> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let found = self.look_up(name);
        self.known.insert(name.to_owned(), found.clone());
        found
    }

    fn look_up(&mut self, name: &str) -> Result<Configuration<'a>, PlanError> {
        const KIND: KindName = KindName::MCPExternalAuthConfig;
        if let Some(Found::Resource(resource)) = self.world.resource(KIND, self.namespace, name)
            && let Resource::MCPExternalAuthConfig(object) = resource.as_ref()
        {
            let tokens = matcher_tokens(&object.spec);
            let Some(left) = self.matcher_tokens_left.checked_sub(tokens) else {
                let problem = format!(
                    "with it, the configurations of this virtual server have more than {REFERENCED_MATCHER_TOKENS} tokens in \
                     their matchers; refer to fewer, or write shorter ones"
                );
                return Err(failed(name, &problem));
            };
            self.matcher_tokens_left = left;
        }
        let resource = find(self.world, KIND, self.namespace, name)?.as_ref();
        let Resource::MCPExternalAuthConfig(object) = resource else {
            return Err(failed(name, "it is of another kind"));
        };
        Ok(Configuration { resource, spec: &object.spec, size: Size::of(&object.spec) })
    }

    /// The strategy of a configuration whose secrets are there.
    pub(super) fn strategy(&mut self, name: &str) -> Result<Strategy, PlanError> {
        let Configuration { resource, spec, .. } = self.find(name)?;
        self.check_support(name, spec)?;
        let (document, secrets) = self.convert(name, spec)?;
        for (_, secret) in &secrets {
            let field = format!("MCPExternalAuthConfig `{name}`");
            MissingKey::check(&field, (ObjectKind::Secret, &secret.name, &secret.key), self.namespace, self.world)
                .map_err(PlanError::MissingKey)?;
        }
        Ok(Strategy { document, secrets, inputs: resource.references() })
    }

    /// Refuses a strategy that the configured image does not have. Only the backends that use it are concerned.
    fn check_support(&self, name: &str, spec: &MCPExternalAuthConfigSpec) -> Result<(), PlanError> {
        let is_named = |provider: Option<&String>| provider.is_some_and(|provider| !provider.is_empty());
        let exchange = spec.token_exchange.as_ref().and_then(|exchange| exchange.subject_provider_name.as_ref());
        let sts = spec.aws_sts.as_ref().and_then(|sts| sts.subject_provider_name.as_ref());
        let feature = match spec.method {
            ExternalAuthMethod::Xaa => Feature::CrossAppAccess,
            ExternalAuthMethod::Obo => Feature::OnBehalfOf,
            ExternalAuthMethod::UpstreamInject => Feature::UpstreamSwap,
            ExternalAuthMethod::TokenExchange if is_named(exchange) => Feature::EmbeddedAuthServer,
            ExternalAuthMethod::AwsSts if is_named(sts) => Feature::EmbeddedAuthServer,
            _ => return Ok(()),
        };
        if !support::is_lacked_by_vmcp(feature, self.world.settings) {
            return Ok(());
        }
        let message = support::unsupported_at(&format!("MCPExternalAuthConfig `{name}`"), feature);
        Err(PlanError::InvalidConfig { reason: NOT_SUPPORTED, message })
    }

    fn convert(
        &self,
        name: &str,
        spec: &MCPExternalAuthConfigSpec,
    ) -> Result<(OutgoingStrategy, Vec<(String, SecretKeyRef)>), PlanError> {
        let mut secrets = Vec::new();
        let mut variable = |prefix: &str, secret: Option<&SecretKeyRef>| {
            secret.map(|secret| {
                let variable = format!("{prefix}_{}", sanitise(name));
                secrets.push((variable.clone(), secret.clone()));
                variable
            })
        };
        let mut document = OutgoingStrategy::default();
        match spec.method {
            ExternalAuthMethod::Unauthenticated => document = unauthenticated(),
            ExternalAuthMethod::HeaderInjection => {
                document.method = "header_injection".into();
                document.header_injection = spec.header_injection.as_ref().map(|header| HeaderInjectionStrategy {
                    header_name: header.header_name.clone(),
                    header_value: None,
                    header_value_env: variable("TOOLHIVE_HEADER_INJECTION_VALUE", Some(&header.value_secret_ref)),
                });
            }
            ExternalAuthMethod::TokenExchange => {
                document.method = "token_exchange".into();
                if let Some(exchange) = &spec.token_exchange {
                    let provider = self.subject(name, exchange.subject_provider_name.as_deref())?;
                    let secret = variable("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", exchange.client_secret_ref.as_ref());
                    document.token_exchange = Some(token_exchange(exchange, secret, provider));
                }
            }
            ExternalAuthMethod::AwsSts => {
                document.method = "aws_sts".into();
                if let Some(sts) = &spec.aws_sts {
                    let provider = self.subject(name, sts.subject_provider_name.as_deref())?;
                    document.aws_sts = Some(aws_sts(sts, provider));
                }
            }
            ExternalAuthMethod::Xaa => {
                document.method = "xaa".into();
                if let Some(xaa) = &spec.xaa {
                    let provider = self.subject(name, xaa.subject_provider_name.as_deref())?;
                    let idp = variable("TOOLHIVE_XAA_IDP_CLIENT_SECRET", xaa.idp_client_secret_ref.as_ref());
                    let target = variable("TOOLHIVE_XAA_TARGET_CLIENT_SECRET", xaa.target_client_secret_ref.as_ref());
                    document.xaa = Some(cross_app_access(xaa, idp, target, provider));
                }
            }
            ExternalAuthMethod::UpstreamInject => {
                document.method = "upstream_inject".into();
                let provider =
                    spec.upstream_inject.as_ref().map(|inject| inject.provider_name.as_str()).unwrap_or_default();
                if self.auth_server.is_none() {
                    return Err(failed(
                        name,
                        "only an embedded authorization server knows the tokens of upstream providers; set \
                         spec.authServerConfig",
                    ));
                }
                self.subject(name, Some(provider))?;
                document.upstream_inject = Some(UpstreamInjectStrategy { provider_name: provider.to_owned() });
            }
            ExternalAuthMethod::BearerToken => {
                let advice = "a virtual server cannot authenticate with type bearerToken; use headerInjection";
                return Err(failed(name, advice));
            }
            ExternalAuthMethod::EmbeddedAuthServer => {
                let advice = "an embedded authorization server does not authenticate to a backend; name a configuration \
                              of another type in spec.outgoingAuth";
                return Err(failed(name, advice));
            }
            ExternalAuthMethod::Obo => return Err(failed(name, "type obo is not supported")),
        }
        Ok((document, secrets))
    }

    /// The upstream provider whose token is exchanged: the one that is named, else the only one.
    fn subject(&self, name: &str, named: Option<&str>) -> Result<Option<String>, PlanError> {
        let named = named.filter(|named| !named.is_empty());
        let Some(server) = self.auth_server else { return Ok(named.map(str::to_owned)) };
        let known: Vec<&str> = server.upstream_providers.iter().map(|provider| provider.name.as_str()).collect();
        let listed = || known.iter().take(LISTED_PROVIDERS).copied().collect::<Vec<_>>().join("`, `");
        match (named, known.as_slice()) {
            (Some(named), _) if known.contains(&named) => Ok(Some(named.to_owned())),
            (Some(named), _) => {
                let known = listed();
                Err(failed(
                    name,
                    &format!("spec.authServerConfig has no upstream provider `{named}`; name one of `{known}`"),
                ))
            }
            (None, []) => Ok(None),
            (None, [only]) => Ok(Some((*only).to_owned())),
            (None, _) => {
                let known = listed();
                let message = format!(
                    "MCPExternalAuthConfig `{name}`: there are several upstream providers; set subjectProviderName to \
                     one of `{known}`"
                );
                Err(PlanError::InvalidConfig { reason: AMBIGUOUS, message })
            }
        }
    }
}

// === impl AuthCondition ===

impl AuthCondition {
    fn of(strategy: &Result<Strategy, PlanError>) -> Self {
        match strategy {
            Ok(strategy) => {
                let message = format!("authenticates by `{}`", strategy.document.method);
                Self { holds: true, reason: SUCCEEDED, message }
            }
            Err(error) => {
                let error = shortened(error);
                Self { holds: false, reason: error.reason(), message: error.to_string() }
            }
        }
    }

    fn say(&self, status: &mut Status, condition: &str) {
        status.condition(condition, self.holds, self.reason, &self.message);
    }
}

/// An error as a condition about one server gives it: with the reason for that, and a message that there is room for.
fn shortened(error: &PlanError) -> PlanError {
    let message = clipped_to(&error.to_string(), LONGEST_MESSAGE);
    PlanError::InvalidConfig { reason: error.reference_reason(FAILED, ""), message }
}

fn failed(name: &str, problem: &str) -> PlanError {
    PlanError::InvalidConfig { reason: FAILED, message: format!("MCPExternalAuthConfig `{name}`: {problem}") }
}

fn unauthenticated() -> OutgoingStrategy {
    of_type("unauthenticated")
}

fn of_type(method: &str) -> OutgoingStrategy {
    OutgoingStrategy { method: method.to_owned(), ..OutgoingStrategy::default() }
}

fn token_exchange(spec: &TokenExchange, secret: Option<String>, provider: Option<String>) -> TokenExchangeStrategy {
    TokenExchangeStrategy {
        token_url: spec.token_url.clone(),
        client_id: spec.client_id.clone(),
        client_secret: None,
        client_secret_env: secret,
        audience: Some(spec.audience.clone()).filter(|audience| !audience.is_empty()),
        scopes: spec.scopes.clone(),
        subject_token_type: token_type(spec.subject_token_type.as_deref()),
        subject_provider_name: provider,
    }
}

fn aws_sts(spec: &AwsSts, provider: Option<String>) -> AwsStsStrategy {
    let role = |mapping: &skep_api::kinds::AwsRoleMapping| AwsStsStrategyRole {
        claim: mapping.claim.clone(),
        matcher: mapping.matcher.clone(),
        role_arn: mapping.role_arn.clone(),
        priority: mapping.priority.map(i64::from),
    };
    AwsStsStrategy {
        region: spec.region.clone(),
        service: Some(spec.service.clone()),
        fallback_role_arn: spec.fallback_role_arn.clone(),
        role_mappings: spec.role_mappings.iter().map(role).collect(),
        role_claim: Some(spec.role_claim.clone()),
        session_duration: Some(spec.session_duration),
        session_name_claim: Some(spec.session_name_claim.clone()),
        subject_provider_name: provider,
    }
}

fn cross_app_access(
    spec: &CrossAppAccess,
    idp_secret: Option<String>,
    target_secret: Option<String>,
    provider: Option<String>,
) -> CrossAppAccessStrategy {
    CrossAppAccessStrategy {
        idp_token_url: spec.idp_token_url.clone(),
        idp_client_id: spec.idp_client_id.clone(),
        idp_client_secret: None,
        idp_client_secret_env: idp_secret,
        target_token_url: spec.target_token_url.clone(),
        target_audience: spec.target_audience.clone(),
        target_resource: spec.target_resource.clone(),
        target_client_id: spec.target_client_id.clone(),
        target_client_secret: None,
        target_client_secret_env: target_secret,
        insecure_target_token_url: spec.insecure_target_token_url,
        scopes: spec.scopes.clone(),
        subject_token_type: spec.subject_token_type.map(|_| "urn:ietf:params:oauth:token-type:id_token".to_owned()),
        subject_provider_name: provider,
    }
}
