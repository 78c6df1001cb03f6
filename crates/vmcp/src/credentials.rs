//! Credentials for backends: a fixed header, a token that the client's is exchanged for, or a session of AWS.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use skep_auth::aws::sigv4::{Scope, Unsigned, sign};
use skep_auth::aws::sts::Sts;
use skep_auth::token_exchange::{Exchanged, TokenExchange, set_header};
use skep_auth::{Caller, Secret, unix_now};
use skep_upstream::BoxFuture;
use skep_upstream::http::{Credentials, CredentialsError, ServerRequest};

/// How the requests for a backend get their credentials.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// They get none.
    None,
    /// A header with a fixed value.
    Header(HeaderName, HeaderValue),
    /// A token that the client's is exchanged for.
    TokenExchange(Arc<TokenExchange>),
    /// A signature with a session of AWS, for the client's role.
    AwsSts(Arc<Sts>, Scope),
}

// === impl Strategy ===

impl Strategy {
    /// Whether the credentials are those of a client, so that a backend may offer each client something else.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::TokenExchange(_) | Self::AwsSts(..))
    }

    /// What adds them to requests. Nothing if there is nothing to add.
    pub fn credentials(&self) -> Option<Arc<dyn Credentials>> {
        match self {
            Self::None => None,
            strategy => Some(Arc::new(strategy.clone())),
        }
    }

    async fn add_to(&self, request: &mut ServerRequest) -> Result<(), CredentialsError> {
        match self {
            Self::None => {}
            Self::Header(name, value) => {
                request.headers.insert(name, value.clone());
            }
            Self::TokenExchange(exchange) => {
                let token = token(request.caller.as_ref())?;
                let exchanged = exchange.exchange(token.expose(), unix_now()).await.map_err(not_issued)?;
                set_header(&mut request.headers, &AUTHORIZATION, &exchanged.token);
                request.sent = Some(Arc::new(exchanged));
            }
            Self::AwsSts(sts, scope) => {
                let caller = request.caller.clone().ok_or(CredentialsError::NoCaller)?;
                let token = token(Some(&caller))?;
                let session = sts.session(&token, &caller.claims, unix_now()).await.map_err(not_issued)?;
                let unsigned = Unsigned { method: &request.method, uri: &request.uri, body: &request.body };
                sign(scope, &session.credentials, unsigned, &mut request.headers, unix_now()).map_err(not_issued)?;
                request.sent = Some(Arc::new(session));
            }
        }
        Ok(())
    }
}

impl Credentials for Strategy {
    fn add<'a>(&'a self, request: &'a mut ServerRequest) -> BoxFuture<'a, Result<(), CredentialsError>> {
        Box::pin(self.add_to(request))
    }

    fn refused(&self, request: &ServerRequest) {
        let Some(sent) = request.sent.as_ref() else { return };
        match self {
            Self::TokenExchange(exchange) => {
                if let Some(exchanged) = sent.downcast_ref::<Exchanged>() {
                    exchange.refused(exchanged);
                }
            }
            Self::AwsSts(sts, _) => {
                if let Some(session) = sent.downcast_ref() {
                    sts.refused(session);
                }
            }
            Self::None | Self::Header(..) => {}
        }
    }
}

fn token(caller: Option<&Caller>) -> Result<Secret, CredentialsError> {
    caller.and_then(|caller| caller.token.clone()).ok_or(CredentialsError::NoCaller)
}

/// The errors of issuers hold no tokens.
fn not_issued(error: impl std::fmt::Display) -> CredentialsError {
    CredentialsError::NotIssued(error.to_string())
}
