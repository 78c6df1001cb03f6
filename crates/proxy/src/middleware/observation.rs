//! Lets an observer see the requests that come as far as its place in the chain.

use std::sync::Arc;

use crate::chain::{Middleware, Pass, Step};
use crate::exchange::{Exchange, Head};
use crate::observe::Observer;

/// An observer in the chain.
#[derive(Debug)]
pub(crate) struct Observe {
    observer: Arc<dyn Observer>,
    /// Whether it sees requests before their body is read.
    from_head: bool,
}

impl Observe {
    pub(crate) fn from_head(observer: Arc<dyn Observer>) -> Self {
        Self { observer, from_head: true }
    }

    pub(crate) fn from_message(observer: Arc<dyn Observer>) -> Self {
        Self { observer, from_head: false }
    }
}

impl Middleware for Observe {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        if self.from_head {
            head.observe(self.observer.clone());
        }
        Step::NEXT
    }

    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        if !self.from_head {
            exchange.head.observe(self.observer.clone());
        }
        Step::NEXT
    }
}
