//! Standard input and output of a server, wherever it runs.

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
    pub held: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pipe").finish_non_exhaustive()
    }
}
