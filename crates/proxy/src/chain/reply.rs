//! The third phase: each message of the response, however it travels (JSON, an SSE event, a resumed stream). It fails closed: a reply
//! that cannot be evaluated is withheld.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use skep_mcp::{Malformed, Message, answer};

/// A middleware as far as it sees the replies to one request.
pub trait ReplyMiddleware: Debug + Send + Sync {
    /// A reply as the client should see it.
    fn reply(&self, reply: Message) -> ReplyStep<'_>;
}

/// What becomes of a reply, at once or later.
pub enum ReplyStep<'a> {
    /// It is known.
    Ready(Result<Message, Withheld>),
    /// It will be known.
    Pending(Pin<Box<dyn Future<Output = Result<Message, Withheld>> + Send + 'a>>),
}

/// A reply that must not reach the client, because it could not be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply could not be evaluated and was withheld: {0}")]
pub struct Withheld(pub Malformed);

/// The middleware that sees the replies to one request.
#[derive(Clone, Debug, Default)]
pub struct ReplyChain {
    /// Outermost first.
    middleware: Vec<Arc<dyn ReplyMiddleware>>,
}

// === impl ReplyChain ===

impl ReplyChain {
    /// Whether replies go through unseen.
    pub fn is_empty(&self) -> bool {
        self.middleware.is_empty()
    }

    pub(crate) fn push(&mut self, middleware: Arc<dyn ReplyMiddleware>) {
        self.middleware.push(middleware);
    }

    /// A reply as the client should see it.
    pub async fn reply(&self, mut reply: Message) -> Result<Message, Withheld> {
        for one in self.middleware.iter().rev() {
            reply = match one.reply(reply) {
                ReplyStep::Ready(reply) => reply?,
                ReplyStep::Pending(reply) => reply.await?,
            };
        }
        Ok(reply)
    }

    /// The same as bytes, with an error in the place of a reply that is withheld.
    pub(crate) async fn reply_or_error(&self, reply: Message) -> Bytes {
        if self.is_empty() {
            return reply.into_body();
        }
        let id = reply.id();
        match self.reply(reply).await {
            Ok(reply) => reply.into_body(),
            Err(withheld) => {
                tracing::error!(%withheld, "reply withheld");
                answer::internal(id.as_ref())
            }
        }
    }
}

// === impl ReplyStep ===

impl Debug for ReplyStep<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(reply) => formatter.debug_tuple("Ready").field(reply).finish(),
            Self::Pending(_) => formatter.write_str("Pending"),
        }
    }
}
