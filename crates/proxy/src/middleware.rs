//! The middleware that this build has: one file each, and one row of the table.

pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod aws_sts;
pub(crate) mod body_limit;
pub(crate) mod header_forward;
pub(crate) mod observation;
pub(crate) mod optimizer;
pub(crate) mod origin;
pub(crate) mod parser;
pub(crate) mod rate_limit;
pub(crate) mod strip_auth;
pub(crate) mod token_exchange;
pub(crate) mod tool_filter;
pub(crate) mod webhooks;

use std::sync::Arc;

use skep_runconfig::Field;
use skep_runconfig::feature::Feature;
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware};
use crate::unsupported::UNSUPPORTED;

/// Builds a middleware from its parameters. Nothing if there is nothing to do at run time.
type Build = fn(&MiddlewareConfig, &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError>;

/// The middleware of this build, by the type that a RunConfig names. Telemetry is not among it: it is what the proxy counts anyway, see
/// [`crate::chain::Context`].
const TABLE: &[(&str, Build)] = &[
    ("audit", audit::build),
    ("auth", authentication::build),
    ("authorization", authorization::build),
    ("awssts", aws_sts::build),
    ("bodylimit", body_limit::build),
    ("header-forward", header_forward::build),
    ("mcp-parser", parser::build),
    ("mutating-webhook", webhooks::build_mutating),
    ("optimizer", optimizer::build),
    ("origin", origin::build),
    ("ratelimit", rate_limit::build),
    ("strip-auth", strip_auth::build),
    ("tokenexchange", token_exchange::build),
    ("tool-call-filter", tool_filter::build_call_filter),
    ("tool-filter", tool_filter::build_list_filter),
    ("validating-webhook", webhooks::build_validating),
    // A panic ends one request only, in any chain.
    ("recovery", nothing),
    #[cfg(test)]
    ("test-stamp", crate::chain::tests::build_stamp),
    // Skep reports no usage.
    ("usagemetrics", nothing),
];

/// Builds the middleware that an entry of a RunConfig asks for.
pub(crate) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let row = TABLE.iter().find(|(kind, _)| *kind == config.kind);
    row.map_or_else(|| Err(unsupported(&config.kind)), |(_, build)| build(config, context))
}

#[expect(clippy::unnecessary_wraps, reason = "rows of the table have one type")]
fn nothing(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    Ok(None)
}

/// A middleware as [`Build`] returns it.
#[expect(clippy::unnecessary_wraps, reason = "rows of the table have one type")]
fn some(middleware: impl Middleware + 'static) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    Ok(Some(Arc::new(middleware)))
}

/// The parameters of an entry.
pub(crate) fn parameters<D: Field>(config: &MiddlewareConfig) -> Result<D, ChainError> {
    D::read(config.parameters.clone()).map_err(|error| invalid(&config.kind, error.to_string()))
}

/// The error of an entry whose parameters are invalid.
pub(crate) fn invalid(kind: &str, problem: String) -> ChainError {
    ChainError::InvalidParameters { kind: kind.to_owned(), problem }
}

/// The error of an entry whose type this build does not have.
fn unsupported(kind: &str) -> ChainError {
    let kind = kind.to_owned();
    match Feature::of_middleware(&kind).filter(|feature| UNSUPPORTED.contains(feature)) {
        Some(feature) => ChainError::UnsupportedMiddleware { kind, feature },
        None => ChainError::UnknownMiddleware(kind),
    }
}
