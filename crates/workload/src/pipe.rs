//! Standard input and output of a server, wherever it runs.

use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// The three streams of a running server. Dropping it lets go of the server.
pub struct Pipe {
    /// Where messages go in, one per line.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Where messages come out, one per line.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// What the server says to people.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Whatever must live as long as the streams do.
    pub held: Box<dyn Held>,
}

/// What is behind the streams. Dropping it ends it at once.
pub trait Held: Send {
    /// Ends it gently, and says how it ended, where that can be known.
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>>;

    /// Waits until it has ended by itself, where that can be known apart from the end of its streams: others may hold those open.
    fn ended(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    /// What tells it from others, where the same one can be met again: as far as is known by now, so ask late. Nothing where each
    /// is a new one.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Where something can be kept for whoever talks to the same one later, where there is such a place.
    fn notes(&self) -> Option<Arc<dyn Notes>> {
        None
    }
}

/// Something that takes its time.
pub type Taken<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is kept beside a server that runs, for the next proxy in front of it.
pub trait Notes: std::fmt::Debug + Send + Sync {
    /// Keeps a text. If that fails, there is none. It may take as long as the server is talked to: nobody should wait for it.
    fn keep(&self, text: String) -> Taken<()>;

    /// What was kept about this very server, and not about one before it.
    fn kept(&self) -> Taken<Option<String>>;
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
