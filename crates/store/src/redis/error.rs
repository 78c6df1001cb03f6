//! Why a server is unavailable, in text that may be shown.
//!
//! Of the server's error, only its code is repeated: an older server echoes the `HELLO` command that it does not know,
//! and the password is in it.

use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The maximum length of an error code that is repeated.
const CODE: usize = 32;

/// Why a server is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableError {
    /// The host exists, and the port is closed.
    #[error("connection refused")]
    Refused,
    /// It cannot be resolved or reached, or TLS fails: the error of the system or of TLS.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// Connecting, or the response, timed out.
    #[error("timed out")]
    Slow,
    /// The connection broke before the response.
    #[error("the connection broke")]
    Broken,
    /// It requires another user or password, or any.
    #[error("it rejects the user or the password")]
    Login,
    /// It is not a Redis server, or one that does not know our protocol.
    #[error("it does not speak the protocol of Redis 6 or later")]
    Protocol,
    /// It is a replica, and writes must go to its master.
    #[error("it is a read-only replica")]
    ReadOnly,
    /// It has just started.
    #[error("it is still loading its data")]
    Loading,
    /// It accepts no more connections.
    #[error("it has reached its maximum number of clients")]
    Crowded,
    /// It refused, with this error code.
    #[error("it refuses with `{0}`")]
    Refusal(String),
    /// Its response has an unexpected type.
    #[error("its response is not of the expected type")]
    Answer,
}

/// What an error means for the connection that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is good, or its manager reconnects.
    Keep,
    /// It will fail the same way forever, and had no effect.
    Replace,
    /// The same, but the command may have taken effect.
    ReplaceUnsure,
}

impl UnavailableError {
    /// A constant name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Slow => "timeout",
            Self::Refused | Self::Unreachable(_) | Self::Broken | Self::Crowded => "connection",
            Self::Login => "auth",
            Self::Protocol | Self::ReadOnly | Self::Loading | Self::Refusal(_) | Self::Answer => "other",
        }
    }

    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => Self::Slow,
            ErrorKind::Io if error.is_connection_refusal() => Self::Refused,
            ErrorKind::Io if error.is_connection_dropped() => Self::Broken,
            ErrorKind::Io => io_error(error).map_or(Self::Broken, |error| Self::Unreachable(error.to_string())),
            ErrorKind::InvalidClientConfig => Self::Unreachable("its host has no address".to_owned()),
            ErrorKind::AuthenticationFailed => Self::Login,
            ErrorKind::Parse | ErrorKind::RESP3NotSupported => Self::Protocol,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly,
            ErrorKind::Server(ServerErrorKind::BusyLoading) => Self::Loading,
            ErrorKind::Server(_) | ErrorKind::Extension => Self::refusal(error),
            _ => Self::Answer,
        }
    }

    fn refusal(error: &RedisError) -> Self {
        let is_crowded = error.detail().is_some_and(|detail| detail.starts_with("max number of clients"));
        match error.code() {
            Some("WRONGPASS" | "NOAUTH") => Self::Login,
            Some("ERR") if is_crowded => Self::Crowded,
            Some(code) => Self::Refusal(code.chars().filter(char::is_ascii_alphanumeric).take(CODE).collect()),
            None => Self::Answer,
        }
    }
}

impl Verdict {
    /// A connection manager reconnects after an I/O error only. Any other error of a handshake is kept and returned to
    /// every command, so every error counts that is not surely about one command.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io | ErrorKind::UnexpectedReturnType | ErrorKind::Client => Self::Keep,
            ErrorKind::Parse => Self::ReplaceUnsure,
            // About a key, or about memory and replication: returned to writes, never to a handshake.
            ErrorKind::Extension if matches!(error.code(), Some("WRONGTYPE" | "OOM" | "MISCONF" | "NOREPLICAS")) => {
                Self::Keep
            }
            _ => Self::Replace,
        }
    }
}

/// The system's error in an error.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared = std::error::Error::source(error)?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use redis::{ParsingError, make_extension_error};

    use super::*;

    fn said(code: &str, detail: &str) -> RedisError {
        make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    fn io(kind: io::ErrorKind) -> RedisError {
        io::Error::from(kind).into()
    }

    #[test]
    fn each_kind_of_error_has_its_text_and_its_verdict() {
        let server = |kind: ServerErrorKind| RedisError::from((ErrorKind::Server(kind), "words"));
        for (error, cause, verdict) in [
            (io(io::ErrorKind::ConnectionRefused), UnavailableError::Refused, Verdict::Keep),
            (io(io::ErrorKind::TimedOut), UnavailableError::Slow, Verdict::Keep),
            (io(io::ErrorKind::BrokenPipe), UnavailableError::Broken, Verdict::Keep),
            (
                io::Error::other("no such host").into(),
                UnavailableError::Unreachable("no such host".to_owned()),
                Verdict::Keep,
            ),
            (said("WRONGPASS", "invalid"), UnavailableError::Login, Verdict::Replace),
            (said("NOAUTH", "required"), UnavailableError::Login, Verdict::Replace),
            ((ErrorKind::AuthenticationFailed, "words").into(), UnavailableError::Login, Verdict::Replace),
            ((ErrorKind::RESP3NotSupported, "words").into(), UnavailableError::Protocol, Verdict::Replace),
            (ParsingError::from("words").into(), UnavailableError::Protocol, Verdict::ReplaceUnsure),
            (server(ServerErrorKind::ReadOnly), UnavailableError::ReadOnly, Verdict::Replace),
            (server(ServerErrorKind::BusyLoading), UnavailableError::Loading, Verdict::Replace),
            (said("ERR", "max number of clients reached"), UnavailableError::Crowded, Verdict::Replace),
            (said("UPSTREAM!", "away"), UnavailableError::Refusal("UPSTREAM".to_owned()), Verdict::Replace),
            (said("WRONGTYPE", "a list"), UnavailableError::Refusal("WRONGTYPE".to_owned()), Verdict::Keep),
            ((ErrorKind::UnexpectedReturnType, "words").into(), UnavailableError::Answer, Verdict::Keep),
        ] {
            assert_eq!((UnavailableError::of(&error), Verdict::of(&error)), (cause, verdict), "{error}");
        }
    }

    #[test]
    fn text_that_a_server_echoes_is_not_shown() {
        let repeated = said("ERR", "unknown command 'HELLO', with args beginning with: '3', 'AUTH', 'me', 'secret'");
        assert_eq!(UnavailableError::of(&repeated).to_string(), "it refuses with `ERR`");
    }
}
