//! Standard input and output of a server, wherever it runs.

use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// The three streams of a running server. Dropping it releases the server.
pub struct Pipe {
    /// For messages to the server, one per line.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// For messages from the server, one per line.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The log of the server.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// A value that must live as long as the streams do.
    pub held: Box<dyn Held>,
}

/// The process or connection that the streams belong to. Dropping it ends it at once.
pub trait Held: Send {
    /// Ends it gracefully, and returns how it ended, where that can be known.
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>>;

    /// Waits until it has ended by itself, where that can be known apart from the end of its streams: child processes
    /// may hold those open.
    fn ended(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    /// Its identity, where the same one can be met again: as far as it is known by now, so ask late. `None` where each
    /// is a new one.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Notes for the next proxy of the same server, where they can be stored.
    fn notes(&self) -> Option<Arc<dyn Notes>> {
        None
    }
}

/// A boxed future.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Notes about a running server, for the next proxy in front of it.
pub trait Notes: std::fmt::Debug + Send + Sync {
    /// Stores a text. If that fails, there is none. It may take as long as the server is in use: do not wait for it.
    fn keep(&self, text: String) -> BoxFuture<()>;

    /// The text about this very server, and not about an earlier one.
    fn kept(&self) -> BoxFuture<Option<String>>;
}

impl Held for () {
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        Box::pin(std::future::ready(None))
    }
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pipe").finish_non_exhaustive()
    }
}
