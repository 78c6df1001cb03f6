//! The second phase: one parsed message.

use super::{Chain, Flow, Pass, Step};
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
        if self.is_composed() {
            Box::pin(self.find_backends(exchange)).await;
        }
        for pass in [Pass::Incoming, Pass::Outgoing] {
            if pass == Pass::Outgoing && !exchange.take_mutated() {
                break;
            }
            let all = self.middleware.iter().enumerate();
            for (place, one) in all.filter(|(_, one)| pass == Pass::Incoming || one.enforces()) {
                if one.needs_tools(exchange) {
                    // Boxed: it is rare, and every call would carry the room for it.
                    Box::pin(self.list_tools(place, exchange)).await;
                }
                let flow = match one.message(exchange, pass) {
                    Step::Ready(flow) => flow,
                    Step::Pending(flow) => flow.await,
                };
                if let Flow::Answer(response) = flow {
                    return one.answer(response);
                }
            }
        }
        Flow::Next
    }
}
