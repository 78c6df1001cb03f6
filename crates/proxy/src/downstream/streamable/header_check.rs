//! Headers that repeat the body. The server does not see them, so they are checked here.

use std::pin::pin;

use http::StatusCode;
use skep_mcp::headers::{self, parameters};
use skep_mcp::{Era, Message};
use skep_upstream::CallError;

use super::Streamable;
use crate::downstream::reply::Reply;
use crate::downstream::request::Refusal;
use crate::exchange::Exchange;
use crate::http::json;

// === impl Streamable ===

impl Streamable {
    /// Checks that headers and body agree. A modern request must repeat its body in headers; a legacy one need not, but what it sends
    /// must agree.
    pub(super) async fn check_headers(
        &self,
        exchange: &Exchange,
        message: &Message,
        reply: &Reply,
    ) -> Result<(), Refusal> {
        let (sent, id) = (&exchange.head.headers, message.id());
        let is_modern = reply.era == Era::Modern;
        let required = if is_modern { headers::require(sent, message) } else { Ok(()) };
        required
            .and_then(|()| headers::check(sent, message))
            .map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref())))?;
        if message.method() == Some("tools/call") && (is_modern || parameters::any(sent)) {
            // Boxed: hardly any legacy client sends such headers, and every call would carry the room for it.
            return Box::pin(self.check_parameters(exchange, message, reply)).await;
        }
        Ok(())
    }

    /// The same for the headers that repeat arguments of a tool, which its schema names.
    async fn check_parameters(&self, exchange: &Exchange, message: &Message, reply: &Reply) -> Result<(), Refusal> {
        let (sent, id) = (&exchange.head.headers, message.id());
        let found = self.endpoint.upstream.clone().tool_parameters(message.clone(), parameters::any(sent));
        let mut found = pin!(tokio::time::timeout(self.endpoint.timeout, found));
        let found = self.before_shutdown(found.as_mut()).await.and_then(Result::ok);
        let known = match found.unwrap_or(Err(CallError::Timeout)) {
            Ok(known) => known,
            Err(error) => return Err(Box::new(reply.error(error, id.as_ref()))),
        };
        let checked = match reply.era {
            Era::Modern => parameters::check(sent, message, &known),
            Era::Legacy => parameters::check_sent(sent, message, &known),
        };
        checked.map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref())).into())
    }
}
