//! Keeps the client's credentials from the server.

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;

#[derive(Debug)]
struct StripAuth;

pub(super) fn build(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(StripAuth)
}

impl Middleware for StripAuth {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            exchange.head.headers.remove(name);
        }
        Step::NEXT
    }
}
