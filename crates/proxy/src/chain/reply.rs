//! The third phase: each message of the response, however it travels (JSON, an SSE event, a resumed stream). It fails closed: a reply
//! that cannot be evaluated is withheld.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use skep_mcp::{Message, MessageError, answer};

/// A middleware as far as it sees the replies to one request.
pub trait ReplyMiddleware: Debug + Send + Sync {
    /// A reply as the client should see it.
    fn reply(&self, reply: Message) -> ReplyStep<'_>;
}

/// What becomes of a reply, at once or later.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and a box would cost an allocation per reply")]
pub enum ReplyStep<'a> {
    /// It is known.
    Ready(Result<Message, Withheld>),
    /// It will be known.
    Pending(Pin<Box<dyn Future<Output = Result<Message, Withheld>> + Send + 'a>>),
}

/// A reply that must not reach the client, because it could not be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply could not be evaluated and was withheld: {0}")]
pub struct Withheld(pub MessageError);

/// The middleware that sees the replies to one request.
#[derive(Clone, Debug, Default)]
pub struct ReplyChain {
    /// Outermost first.
    middleware: Vec<Arc<dyn ReplyMiddleware>>,
}

/// A reply on its way through the chain. It is small: most replies pass unseen, and every request would carry the room for more.
pub(crate) enum Evaluation {
    /// It passes as it came.
    Done(Bytes),
    /// Middleware sees it.
    Pending(Pin<Box<dyn Future<Output = Result<Bytes, Bytes>> + Send>>),
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

    /// The same as bytes. In the place of a reply that is withheld, an error.
    pub(crate) fn evaluate(&self, reply: Message) -> Evaluation {
        if self.is_empty() {
            return Evaluation::Done(reply.into_body());
        }
        let chain = self.clone();
        Evaluation::Pending(Box::pin(async move {
            let id = reply.id();
            match chain.reply(reply).await {
                Ok(reply) => Ok(reply.into_body()),
                Err(withheld) => {
                    tracing::error!(%withheld, "reply withheld");
                    Err(answer::withheld(id.as_ref()))
                }
            }
        }))
    }
}

// === impl Evaluation ===

impl Future for Evaluation {
    type Output = Result<Bytes, Bytes>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Done(reply) => Poll::Ready(Ok(std::mem::take(reply))),
            Self::Pending(reply) => reply.as_mut().poll(context),
        }
    }
}

impl Debug for Evaluation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Evaluation")
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
