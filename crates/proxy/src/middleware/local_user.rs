//! Takes every client for the user who runs this process, where authentication is not configured.

use std::sync::Arc;

use skep_runconfig::parameters;
use skep_runconfig::run_config::MiddlewareConfig;

use crate::caller::Caller;
use crate::chain::{ChainError, Middleware, Step};
use crate::exchange::Head;

#[derive(Debug)]
struct LocalUser(Caller);

pub(super) fn build(config: &MiddlewareConfig) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    if super::parameters::<parameters::Auth>(config)?.oidc_config.is_some() {
        return Err(super::unsupported(&config.kind));
    }
    tracing::warn!("authentication not configured: every client is taken for the user who runs this process");
    super::some(LocalUser(Caller::local()))
}

impl Middleware for LocalUser {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        head.caller = Some(self.0.clone());
        Step::NEXT
    }

    fn is_head_only(&self) -> bool {
        true
    }
}
