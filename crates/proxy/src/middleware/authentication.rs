//! Authenticates clients by bearer tokens. Where no identity provider is configured, every client is the user who runs this process.
//!
//! It sees no more than the head, so a request without a valid token costs no body. The client's token ends here: no server receives it.
//!
//! Without an identity provider, the `Authorization` header of a client is not read. It reaches the server like any other header, unless
//! the proxy has credentials of its own for the server: then it is removed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use skep_auth::challenge::{Challenge, ErrorCode};
use skep_auth::metadata::ProtectedResource;
use skep_auth::{AuthError, CacheSize, Caller, Expectations, Options, Secret, Validator, bearer, unix_now};
use skep_net::{Addresses, Body};
use skep_runconfig::parameters;
use skep_runconfig::run_config::{MiddlewareConfig, OidcConfig};

use crate::chain::{ChainError, Context, Flow, Middleware, Step};
use crate::exchange::Head;
use crate::http::{json, text};

/// The variable with the secret of the client that introspects opaque tokens.
const CLIENT_SECRET: &str = "TOOLHIVE_OIDC_CLIENT_SECRET";
/// The variable that allows issuers without TLS, for tests of the original.
const INSECURE: &str = "INSECURE_DISABLE_URL_VALIDATION";

/// Every client is the same user.
#[derive(Debug)]
struct LocalUser(Caller);

/// Every client presents a token.
#[derive(Debug)]
struct Authentication {
    validator: Arc<Validator>,
    challenge: Challenge,
    resource: ProtectedResource,
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    match super::parameters::<parameters::Auth>(config)?.oidc_config {
        None => {
            tracing::warn!("authentication not configured: every client is taken for the user who runs this process");
            super::some(LocalUser(Caller::local(&local_user(&context.environment), unix_now())))
        }
        Some(oidc) => {
            let oidc = oidc.in_any_case().map_err(|error| super::invalid(&config.kind, error.to_string()))?;
            let built = Authentication::new(oidc, context);
            super::some(built.map_err(|problem| super::invalid(&config.kind, problem))?)
        }
    }
}

fn local_user(environment: &BTreeMap<String, String>) -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| environment.get(*name)).filter(|user| !user.is_empty());
    user.map_or_else(|| "local".to_owned(), Clone::clone)
}

// === impl LocalUser ===

impl Middleware for LocalUser {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        head.caller = Some(self.0.clone());
        Step::NEXT
    }

    fn is_head_only(&self) -> bool {
        true
    }
}

// === impl Authentication ===

impl Authentication {
    fn new(oidc: OidcConfig, context: &Context) -> Result<Self, String> {
        let scopes = oidc.scopes.unwrap_or_default();
        let secret = Some(oidc.client_secret).filter(|secret| !secret.is_empty());
        let secret = secret.or_else(|| context.environment.get(CLIENT_SECRET).cloned());
        let ca_bundle = match oidc.ca_cert_path.as_str() {
            "" => None,
            path => {
                let read = skep_auth::read_ca_bundle(Path::new(path));
                Some(read.map_err(|error| format!("CACertPath: cannot read `{path}`: {error}"))?)
            }
        };
        let options = Options {
            expected: Expectations {
                issuer: oidc.issuer.clone(),
                audience: oidc.audience,
                subject: Some(oidc.required_subject).filter(|subject| !subject.is_empty()),
                namespace: Some(oidc.required_namespace).filter(|namespace| !namespace.is_empty()),
                scopes: scopes.clone(),
            },
            jwks_url: oidc.jwks_url,
            introspection_url: oidc.introspection_url,
            client_id: oidc.client_id,
            client_secret: secret.filter(|secret| !secret.is_empty()).map(|secret| Secret::new(&secret)),
            ca_bundle,
            token_file: Some(oidc.auth_token_file).filter(|path| !path.is_empty()).map(Into::into),
            addresses: if oidc.allow_private_ip { context.addresses } else { Addresses::PublicOnly },
            insecure_http: oidc.insecure_allow_http || context.environment.get(INSECURE).is_some_and(|on| on == "true"),
            cache: CacheSize(context.caches.tokens),
        };
        let validator = Validator::new(options).map_err(|error| error.to_string())?;
        Ok(Self {
            validator: Arc::new(validator),
            challenge: Challenge::new(&oidc.issuer, &oidc.resource_url, &scopes),
            resource: ProtectedResource { resource: oidc.resource_url, issuer: oidc.issuer, scopes },
        })
    }

    /// Lets a request through in the name of its client. The token stays here: it is for this server, and for no other.
    fn accept(head: &mut Head, caller: Caller) {
        head.headers.remove(AUTHORIZATION);
        head.caller = Some(caller);
    }

    fn refuse(&self, error: &AuthError) -> Response<Body> {
        if error.is_of_issuer() {
            tracing::warn!(%error, "token not validated: the identity provider fails");
        } else {
            tracing::debug!(%error, "token refused");
        }
        let problem = error.external();
        match error {
            AuthError::Saturated => busy(),
            error if error.is_scope() => {
                self.response(StatusCode::FORBIDDEN, ErrorCode::InsufficientScope, &problem, &problem)
            }
            AuthError::Claims(skep_auth::ClaimError::Subject) => {
                self.response(StatusCode::UNAUTHORIZED, ErrorCode::InvalidToken, &problem, &problem)
            }
            _ => {
                let body = format!("Invalid token: {problem}");
                self.response(StatusCode::UNAUTHORIZED, ErrorCode::InvalidToken, &problem, &body)
            }
        }
    }

    fn response(&self, status: StatusCode, code: ErrorCode, description: &str, body: &str) -> Response<Body> {
        let mut response = json(status, Challenge::body(code, body).into());
        response.headers_mut().insert(WWW_AUTHENTICATE, self.challenge.header(code, description));
        response
    }
}

/// The response while the identity provider has enough to do. It says nothing about the token.
fn busy() -> Response<Body> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "authentication service temporarily unavailable");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

impl Middleware for Authentication {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        let token = match bearer::token(&head.headers) {
            Ok(token) => token,
            Err(error) => {
                let problem = error.to_string();
                return self.response(StatusCode::UNAUTHORIZED, ErrorCode::InvalidRequest, &problem, &problem).into();
            }
        };
        let now = unix_now();
        // Most tokens were verified before, and need no allocation for a future.
        if let Some(caller) = self.validator.known(token, now) {
            Self::accept(head, caller);
            return Step::NEXT;
        }
        let token = token.to_owned();
        Step::Pending(Box::pin(async move {
            match self.validator.validate(&token, now).await {
                Ok(caller) => {
                    Self::accept(head, caller);
                    Flow::Next
                }
                Err(error) => Flow::Answer(self.refuse(&error)),
            }
        }))
    }

    fn is_head_only(&self) -> bool {
        true
    }

    fn protected_resource(&self) -> Option<&ProtectedResource> {
        Some(&self.resource)
    }
}
