//! Why a call has no response.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use skep_mcp::bridge::Refused;
use skep_mcp::{Id, answer};

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request could not be handed over.
    #[error("the request could not be forwarded")]
    NotSent,
    /// The server cannot be used now, and why.
    #[error("the server is not available: {0}")]
    Unavailable(Arc<str>),
    /// There is no room for what would have to be kept of the client, and why. Nothing was sent; a later attempt may succeed.
    #[error("the proxy has no room for this request: {0}; try again in a moment")]
    Busy(Arc<str>),
    /// There are no credentials for the server, and why.
    #[error("no credentials for the server: {0}")]
    NoCredentials(Arc<str>),
    /// The server refused the request by its HTTP status, without a message.
    #[error("the server responded with HTTP status {0}")]
    Rejected(StatusCode),
    /// The server's response is longer than is read.
    #[error("the server's response is longer than {limit} bytes")]
    TooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// The server's response is malformed.
    #[error("the server's response is malformed")]
    Malformed,
    /// The connection to the server was lost before it responded.
    #[error("the connection to the server was lost")]
    Disconnected,
    /// The server did not respond in time.
    #[error("the server did not respond in time")]
    Timeout,
    /// The server asked the client for something during the call, which is not relayed to a client of the other era.
    #[error("{}", .0.text())]
    NeedsClient(Box<Refused>),
    /// The client cancelled the request. Over Streamable HTTP an error says so, as JSON and in a stream: the POST wants an end, and
    /// a client would try to resume a stream without a response. Over SSE nothing is said.
    #[error("the request was cancelled")]
    Cancelled,
}

// === impl CallError ===

impl CallError {
    /// The JSON-RPC error that the client gets.
    pub fn answer(self, id: Option<&Id>) -> Bytes {
        match self {
            Self::NotSent => answer::internal(id),
            Self::Unavailable(_)
            | Self::Busy(_)
            | Self::NoCredentials(_)
            | Self::Rejected(_)
            | Self::TooLarge { .. } => answer::error(id, answer::INTERNAL_ERROR, &self.to_string(), None),
            Self::Disconnected => {
                let text = "the connection to the server was lost before it responded; the proxy is reconnecting, so retry the request";
                answer::error(id, answer::INTERNAL_ERROR, text, None)
            }
            Self::Malformed => {
                let text = "the server's response is malformed; its log may say why";
                answer::error(id, answer::INTERNAL_ERROR, text, None)
            }
            Self::NeedsClient(refused) => answer::error(id, refused.code(), &refused.text(), refused.data().as_ref()),
            Self::Timeout => answer::timeout(id),
            Self::Cancelled => answer::error(id, answer::TIMEOUT, "the request was cancelled", None),
        }
    }
}
