//! What comes back of a call: messages before the response, and the response.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::CallError;

/// How many messages before a response may wait to be read. What comes beyond that is dropped.
pub(crate) const INTERIM: usize = 16;

/// What comes back of a call. Dropping it cancels the call at the server.
#[derive(Debug)]
pub struct Replies {
    /// Progress, logs and requests of the server, which come before the response. `None` if the client does not take them.
    pub interim: Option<mpsc::Receiver<Bytes>>,
    /// The response.
    pub response: PendingResponse,
}

/// What a call ends with. The id is the client's own.
pub type Response = Result<Box<Message>, CallError>;

/// What an upstream that calls another one makes of its response.
type Change = Box<dyn FnOnce(Result<Message, CallError>) -> Result<Message, CallError> + Send + Sync>;

/// A response that is still to come. Dropping it cancels the call at the server.
pub struct PendingResponse {
    response: oneshot::Receiver<Response>,
    /// `None` once there is a response.
    call: Option<Arc<dyn InFlight>>,
    /// `None` once there is a response, or if it stays as it is.
    change: Option<Change>,
}

/// A call that is with a server.
pub trait InFlight: Debug + Send + Sync {
    /// The client does not want the response any longer.
    fn cancel(&self);

    /// Whether the server has the request.
    fn is_sent(&self) -> bool;

    /// Until when the server may be silent although the timeout has passed: it may be waiting for the client.
    fn extended_deadline(&self, timeout: Duration) -> Option<Instant>;
}

// === impl Replies ===

impl Replies {
    /// A response that is there, with nothing before it.
    pub fn ready(response: Message) -> Self {
        let (sender, receiver) = oneshot::channel();
        // The receiver is there.
        let _sent = sender.send(Ok(Box::new(response)));
        Self { interim: None, response: PendingResponse { response: receiver, call: None, change: None } }
    }
}

// === impl PendingResponse ===

impl PendingResponse {
    /// The response to a call in flight.
    pub fn new(response: oneshot::Receiver<Response>, call: Box<dyn InFlight>) -> Self {
        Self { response, call: Some(call.into()), change: None }
    }

    /// The call, for what wraps it.
    pub fn in_flight(&self) -> Option<Arc<dyn InFlight>> {
        self.call.clone()
    }

    /// The same response, changed once it is there. What the change holds is dropped with the call, also if there is no response.
    #[must_use]
    pub fn then(
        mut self,
        change: impl FnOnce(Result<Message, CallError>) -> Result<Message, CallError> + Send + Sync + 'static,
    ) -> Self {
        let before = self.change.take();
        self.change = Some(match before {
            None => Box::new(change),
            Some(before) => Box::new(|response| change(before(response))),
        });
        self
    }

    /// Waits for the response. Cancel safe.
    pub async fn response(&mut self) -> Result<Message, CallError> {
        let response = (&mut self.response).await.unwrap_or(Err(CallError::Disconnected));
        self.call = None;
        let response = response.map(|message| *message);
        match self.change.take() {
            None => response,
            Some(change) => change(response),
        }
    }

    /// Waits for the response until then, and longer while the server waits for the client.
    pub async fn response_by(&mut self, mut until: Instant, timeout: Duration) -> Result<Message, CallError> {
        loop {
            if let Ok(response) = tokio::time::timeout_at(until, self.response()).await {
                return response;
            }
            until = self.extended_deadline(timeout).ok_or(CallError::Timeout)?;
        }
    }

    /// Waits for the response as long as it takes once the server has the request, and until then for that.
    pub async fn response_once_sent(&mut self, until: Instant) -> Result<Message, CallError> {
        match tokio::time::timeout_at(until, self.response()).await {
            Ok(response) => response,
            Err(_elapsed) if self.call.as_ref().is_some_and(|call| call.is_sent()) => self.response().await,
            Err(_elapsed) => Err(CallError::Timeout),
        }
    }

    /// Until when the server may be silent although the timeout has passed.
    pub fn extended_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.call.as_ref()?.extended_deadline(timeout)
    }
}

impl Debug for PendingResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PendingResponse").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            call.cancel();
        }
    }
}
