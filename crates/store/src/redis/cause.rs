//! Why a server has no answer, in words that may be shown.
//!
//! Nothing of what a server said is repeated but the code of its error: an older one repeats the greeting that it does not
//! know, and the password is in it.

use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// The longest code of an error that is repeated.
const CODE: usize = 32;

/// What is between us and an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The host is there, and nobody listens.
    #[error("nobody listens at its address")]
    Refused,
    /// It cannot be found, or TLS with it fails: what the system or TLS says of it.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// Connecting, or the answer, took too long.
    #[error("it takes too long")]
    Slow,
    /// The connection broke before the answer.
    #[error("the connection broke")]
    Broken,
    /// It wants another user or password, or one at all.
    #[error("it does not accept the user or the password")]
    Login,
    /// It is not a Redis server, or one that does not know our protocol.
    #[error("it does not speak the protocol of Redis 6 or later")]
    Protocol,
    /// It follows another server, which is the one to write to.
    #[error("it is read-only: it follows another server")]
    ReadOnly,
    /// It has just started.
    #[error("it is still loading its data")]
    Loading,
    /// It takes no more connections.
    #[error("it has as many clients as it takes")]
    Crowded,
    /// It refused, and this is its word for why.
    #[error("it refuses with `{0}`")]
    Refusal(String),
    /// It answered something else than it should.
    #[error("its answer is not what was asked for")]
    Answer,
}

/// What an error says about the connection that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is good, or whoever manages it makes a new one.
    Keep,
    /// It will say the same for ever, and did nothing.
    Replace,
    /// The same, but nobody knows whether the command was done.
    ReplaceUnsure,
}

impl Cause {
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
    /// A connection's manager dials again after an I/O error only. Any other error of a greeting is kept, and given to
    /// everybody who asks, so all must count that are not surely about one command.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io | ErrorKind::UnexpectedReturnType | ErrorKind::Client => Self::Keep,
            ErrorKind::Parse => Self::ReplaceUnsure,
            // About a key, or about room and copies of the data: said to writes, never to a greeting.
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
    fn each_kind_of_error_has_its_words_and_its_verdict() {
        let server = |kind: ServerErrorKind| RedisError::from((ErrorKind::Server(kind), "words"));
        for (error, cause, verdict) in [
            (io(io::ErrorKind::ConnectionRefused), Cause::Refused, Verdict::Keep),
            (io(io::ErrorKind::TimedOut), Cause::Slow, Verdict::Keep),
            (io(io::ErrorKind::BrokenPipe), Cause::Broken, Verdict::Keep),
            (io::Error::other("no such host").into(), Cause::Unreachable("no such host".to_owned()), Verdict::Keep),
            (said("WRONGPASS", "invalid"), Cause::Login, Verdict::Replace),
            (said("NOAUTH", "required"), Cause::Login, Verdict::Replace),
            ((ErrorKind::AuthenticationFailed, "words").into(), Cause::Login, Verdict::Replace),
            ((ErrorKind::RESP3NotSupported, "words").into(), Cause::Protocol, Verdict::Replace),
            (ParsingError::from("words").into(), Cause::Protocol, Verdict::ReplaceUnsure),
            (server(ServerErrorKind::ReadOnly), Cause::ReadOnly, Verdict::Replace),
            (server(ServerErrorKind::BusyLoading), Cause::Loading, Verdict::Replace),
            (said("ERR", "max number of clients reached"), Cause::Crowded, Verdict::Replace),
            (said("UPSTREAM!", "away"), Cause::Refusal("UPSTREAM".to_owned()), Verdict::Replace),
            (said("WRONGTYPE", "a list"), Cause::Refusal("WRONGTYPE".to_owned()), Verdict::Keep),
            ((ErrorKind::UnexpectedReturnType, "words").into(), Cause::Answer, Verdict::Keep),
        ] {
            assert_eq!((Cause::of(&error), Verdict::of(&error)), (cause, verdict), "{error}");
        }
    }

    #[test]
    fn what_a_server_repeats_is_not_shown() {
        let repeated = said("ERR", "unknown command 'HELLO', with args beginning with: '3', 'AUTH', 'me', 'secret'");
        assert_eq!(Cause::of(&repeated).to_string(), "it refuses with `ERR`");
    }
}
