//! The second phase: one parsed message.

use super::{Chain, Flow, Pass};
use crate::exchange::Exchange;

// === impl Chain ===

impl Chain {
    /// Whether a middleware must see what is in a message. Then every body is parsed, whatever its media type.
    pub(crate) fn needs_message(&self) -> bool {
        self.middleware.iter().any(|one| one.needs_message())
    }

    /// Puts a message through the chain. If a middleware replaced it, every enforcing middleware runs again, on the message that will
    /// be sent.
    pub async fn message(&self, exchange: &mut Exchange) -> Flow {
        for one in &self.middleware {
            if let Flow::Answer(response) = one.message(exchange, Pass::Incoming).flow().await {
                return Flow::Answer(response);
            }
        }
        if !exchange.take_mutated() {
            return Flow::Next;
        }
        for one in self.middleware.iter().filter(|one| one.enforces()) {
            if let Flow::Answer(response) = one.message(exchange, Pass::Outgoing).flow().await {
                return Flow::Answer(response);
            }
        }
        Flow::Next
    }
}
