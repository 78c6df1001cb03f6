//! Signs requests to a server of AWS with a session of the role that the client's claims stand for.

use std::sync::Arc;

use http::{Response, StatusCode};
use skep_auth::aws::sigv4::{Scope, Unsigned, sign};
use skep_auth::aws::sts::{Session, Sts, StsError, StsOptions};
use skep_auth::aws::{RoleMapping, Roles};
use skep_auth::{CacheSize, Caller, Secret, unix_now};
use skep_net::Body;
use skep_runconfig::parameters;
use skep_runconfig::run_config::{AwsStsConfig, MiddlewareConfig};
use skep_upstream::http::Target;

use crate::chain::{AnswerReason, ChainError, Context, Flow, Middleware, Pass, Step};
use crate::exchange::Exchange;
use crate::http::text;
use crate::observe::Observation;

/// The variable by which the SDKs of AWS are given another endpoint of STS.
const ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";
/// The service that requests are signed for, unless the configuration names another.
const SERVICE: &str = "aws-mcp";

#[derive(Debug)]
struct AwsSts {
    sts: Arc<Sts>,
    scope: Scope,
    target: Target,
}

/// A session that a request was signed with.
#[derive(Debug)]
struct Sent {
    sts: Arc<Sts>,
    session: Session,
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let parameters = super::parameters::<parameters::AwsSts>(config)?;
    let built = AwsSts::new(parameters, context);
    super::some(built.map_err(|problem| super::invalid(&config.kind, problem))?)
}

// === impl AwsSts ===

impl AwsSts {
    fn new(parameters: parameters::AwsSts, context: &Context) -> Result<Self, String> {
        let config = parameters.aws_sts_config.ok_or("aws_sts_config is missing")?;
        if parameters.target_url.is_empty() {
            return Err("target_url is missing: only requests to a remote server can be signed".to_owned());
        }
        let target = Target::remote(&parameters.target_url).map_err(|error| error.to_string())?;
        if config.region.is_empty() || !config.region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(format!("region `{}` is none; write it like eu-central-1", config.region));
        }
        let service = if config.service.is_empty() { SERVICE.to_owned() } else { config.service.clone() };
        let scope = Scope { region: config.region.clone(), service };
        let options = StsOptions {
            roles: roles(&config)?,
            region: config.region,
            endpoint: context.environment.get(ENDPOINT).cloned().unwrap_or_default(),
            duration: config.session_duration,
            session_name_claim: config.session_name_claim,
            addresses: context.addresses,
            cache: CacheSize(context.caches.credentials),
        };
        Ok(Self { sts: Arc::new(Sts::new(options)), scope, target })
    }

    /// Signs a request as it will be sent.
    fn sign(&self, exchange: &mut Exchange, session: Session) -> Flow {
        let Exchange { head, content, .. } = exchange;
        let uri = self.target.uri(&head.uri, None).unwrap_or_default();
        let request = Unsigned { method: &head.method, uri: &uri, body: content.bytes() };
        if let Err(error) = sign(&self.scope, &session.credentials, request, &mut head.headers, unix_now()) {
            tracing::error!(%error, "request not signed");
            return Flow::Answer(refused(StatusCode::INTERNAL_SERVER_ERROR, "Request signing failed"));
        }
        head.observe_with(Box::new(Sent { sts: self.sts.clone(), session }));
        Flow::Next
    }
}

fn roles(config: &AwsStsConfig) -> Result<Roles, String> {
    let mappings = config.role_mappings.iter().map(|mapping| RoleMapping {
        claim: mapping.claim.clone(),
        matcher: mapping.matcher.clone(),
        role_arn: mapping.role_arn.clone(),
        priority: mapping.priority,
    });
    let mappings: Vec<RoleMapping> = mappings.collect();
    Roles::new(&mappings, &config.fallback_role_arn, &config.role_claim).map_err(|error| error.to_string())
}

impl Middleware for AwsSts {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        let (caller, token) = match authenticated(exchange.head.caller.as_ref()) {
            Ok(authenticated) => authenticated,
            Err(problem) => return refused(StatusCode::UNAUTHORIZED, problem).into(),
        };
        let now = unix_now();
        if let Some(session) = self.sts.known(&token, now) {
            return Step::Ready(self.sign(exchange, session));
        }
        Step::Pending(Box::pin(async move {
            match self.sts.session(&token, &caller.claims, now).await {
                Ok(session) => self.sign(exchange, session),
                Err(error) => Flow::Answer(refuse(&error)),
            }
        }))
    }

    /// A signature is about the bytes that are sent.
    fn enforces(&self) -> bool {
        true
    }

    fn signs_requests(&self) -> bool {
        true
    }
}

fn authenticated(caller: Option<&Caller>) -> Result<(Caller, Secret), &'static str> {
    let caller = caller.ok_or("Authentication required")?;
    let token = caller.token.clone().ok_or("Bearer token required")?;
    Ok((caller.clone(), token))
}

fn refuse(error: &StsError) -> Response<Body> {
    let (status, problem) = match error {
        StsError::NoRole => (StatusCode::FORBIDDEN, "Failed to determine IAM role"),
        StsError::NoSessionName => (StatusCode::UNAUTHORIZED, "Missing session name claim"),
        StsError::SessionName => (StatusCode::UNAUTHORIZED, "Invalid session name"),
        StsError::Fetch(_) | StsError::Refused { .. } | StsError::Incomplete(_) | StsError::Shared => {
            tracing::warn!(%error, "no AWS session");
            (StatusCode::UNAUTHORIZED, "AWS credential exchange failed")
        }
    };
    refused(status, problem)
}

/// The client learns as much as the audit log.
fn refused(status: StatusCode, problem: &str) -> Response<Body> {
    let mut response = text(status, problem);
    response.extensions_mut().insert(AnswerReason(problem.to_owned()));
    response
}

// === impl Sent ===

impl Observation for Sent {
    fn answered(&mut self, _: &Exchange, response: &Response<Body>) {
        // AWS refuses expired and revoked sessions with 403. No middleware behind this one answers either.
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.sts.refused(&self.session);
        }
    }
}
