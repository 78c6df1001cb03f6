//! Keeps the client's credentials from the server.

use std::sync::Arc;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;

/// Removes headers of the client.
#[derive(Debug)]
pub(crate) struct StripAuth(&'static [HeaderName]);

pub(super) fn build(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(StripAuth(&[AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION]))
}

// === impl StripAuth ===

impl StripAuth {
    /// One for chains that add credentials of the proxy's own: the client's token is not for the server.
    pub(crate) fn of_authorization() -> Self {
        Self(&[AUTHORIZATION])
    }
}

impl Middleware for StripAuth {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        for name in self.0 {
            exchange.head.headers.remove(name);
        }
        Step::NEXT
    }
}
