//! Exchanges the client's token for one that the server accepts (RFC 8693). The client's own token never goes further.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, Response, StatusCode};
use skep_auth::token_exchange::{ExchangeError, ExchangeOptions, Exchanged, TokenExchange, set_header};
use skep_auth::{CacheSize, Secret, bearer, unix_now};
use skep_net::Body;
use skep_runconfig::parameters;
use skep_runconfig::run_config::{MiddlewareConfig, TokenExchangeConfig};

use super::header_forward::settable_header;
use crate::chain::{AnswerReason, ChainError, Context, Flow, Middleware, Pass, Step};
use crate::exchange::{Exchange, Head};
use crate::http::text;
use crate::observe::Observation;

/// The variable with the secret of the client that exchanges tokens.
const CLIENT_SECRET: &str = "TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET";

#[derive(Debug)]
struct ExchangeToken {
    exchange: Arc<TokenExchange>,
    /// The header that the new token is sent in.
    header: HeaderName,
}

/// A token that a request took along to the server.
#[derive(Debug)]
struct Sent {
    exchange: Arc<TokenExchange>,
    exchanged: Exchanged,
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let invalid = |problem: String| super::invalid(&config.kind, problem);
    let exchange = super::parameters::<parameters::TokenExchange>(config)?.token_exchange_config;
    let exchange = exchange.ok_or_else(|| invalid("token_exchange_config is missing".to_owned()))?;
    let header = header(&exchange).map_err(invalid)?;
    if exchange.token_url.is_empty() {
        return Err(invalid("token_url is missing; name the token endpoint".to_owned()));
    }
    let secret = Some(exchange.client_secret).filter(|secret| !secret.is_empty());
    let secret = secret.or_else(|| context.environment.get(CLIENT_SECRET).cloned());
    let options = ExchangeOptions {
        token_url: exchange.token_url,
        client_id: exchange.client_id,
        client_secret: secret.filter(|secret| !secret.is_empty()).map(|secret| Secret::new(&secret)),
        audience: exchange.audience,
        scopes: exchange.scopes,
        subject_token_type: exchange.subject_token_type,
        addresses: context.addresses,
        cache: CacheSize(context.caches.credentials),
    };
    super::some(ExchangeToken { exchange: Arc::new(TokenExchange::new(options)), header })
}

/// The header that the new token is sent in.
fn header(config: &TokenExchangeConfig) -> Result<HeaderName, String> {
    match config.header_strategy.as_str() {
        "" | "replace" => Ok(AUTHORIZATION),
        "custom" if config.external_token_header_name.is_empty() => {
            Err("header_strategy is `custom` and external_token_header_name is missing; name the header".to_owned())
        }
        "custom" => settable_header(&config.external_token_header_name),
        other => Err(format!("header_strategy `{other}` is unknown; use `replace` or `custom`")),
    }
}

// === impl ExchangeToken ===

impl ExchangeToken {
    fn send(&self, head: &mut Head, exchanged: Exchanged) {
        set_header(&mut head.headers, &self.header, &exchanged.token);
        head.observe_with(Box::new(Sent { exchange: self.exchange.clone(), exchanged }));
    }
}

impl Middleware for ExchangeToken {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        let head = &mut exchange.head;
        let Some(token) = subject_token(head) else {
            tracing::debug!("token exchange failed: the request has no bearer token");
            return refused("the request has no bearer token").into();
        };
        let now = unix_now();
        // Most tokens were exchanged before, and need no allocation for a future.
        if let Some(exchanged) = self.exchange.known(token.expose(), now) {
            self.send(head, exchanged);
            return Step::NEXT;
        }
        Step::Pending(Box::pin(async move {
            match self.exchange.exchange(token.expose(), now).await {
                Ok(exchanged) => {
                    self.send(head, exchanged);
                    Flow::Next
                }
                Err(error) => {
                    log(&error);
                    Flow::Answer(refused(category(&error)))
                }
            }
        }))
    }
}

/// The token that the client was authenticated by; where clients are not authenticated, the one that it sent.
fn subject_token(head: &Head) -> Option<Secret> {
    let verified = head.caller.as_ref().and_then(|caller| caller.token.clone());
    verified.or_else(|| bearer::token(&head.headers).ok().map(Secret::new))
}

fn log(error: &ExchangeError) {
    match error {
        ExchangeError::Refused { .. } | ExchangeError::Shared => tracing::debug!(%error, "token not exchanged"),
        ExchangeError::Fetch(_) | ExchangeError::Incomplete(_) | ExchangeError::TooLong(_) => {
            tracing::warn!(%error, "token not exchanged: the token endpoint fails");
        }
    }
}

/// Why, for the audit log: nothing that the token endpoint said.
fn category(error: &ExchangeError) -> &'static str {
    match error {
        ExchangeError::Refused { .. } => "the token endpoint refused the token",
        ExchangeError::Shared => "the same exchange failed for another request",
        ExchangeError::Fetch(_) => "the token endpoint cannot be reached",
        ExchangeError::Incomplete(_) => "the token endpoint gave an incomplete answer",
        ExchangeError::TooLong(_) => "the token endpoint gave a token that is too long",
    }
}

fn refused(reason: &str) -> Response<Body> {
    let mut response = text(StatusCode::UNAUTHORIZED, "Token exchange failed");
    response.extensions_mut().insert(AnswerReason(reason.to_owned()));
    response
}

// === impl Sent ===

impl Observation for Sent {
    fn answered(&mut self, _: &Exchange, response: &Response<Body>) {
        // No middleware behind this one answers 401.
        if response.status() == StatusCode::UNAUTHORIZED {
            self.exchange.refused(&self.exchanged);
        }
    }
}
