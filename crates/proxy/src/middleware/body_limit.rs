//! Limits how long the body of a request may be. It is checked while the body is read.

use std::sync::Arc;

use skep_runconfig::parameters;
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{BODY_LIMIT, ChainError, Context, Middleware};

#[derive(Debug)]
struct BodyLimit(usize);

pub(super) fn build(config: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let limit = super::parameters::<parameters::BodyLimit>(config)?.max_bytes;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(BODY_LIMIT);
    super::some(BodyLimit(limit))
}

impl Middleware for BodyLimit {
    fn is_head_only(&self) -> bool {
        true
    }

    fn body_limit(&self) -> Option<usize> {
        Some(self.0)
    }
}
