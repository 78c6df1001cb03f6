//! What can go wrong on the way out, by step. No text holds a path, a query or credentials.

use std::io;
use std::net::IpAddr;

use crate::Scope;
use crate::tls::TlsError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI is not one to send a request to.
    #[error("the target has no host, or names a user; write it like `https://mcp.example.com/mcp`")]
    Target,
    /// The scheme is not allowed.
    #[error("scheme `{scheme}` is not allowed here")]
    Scheme {
        /// What the URI has.
        scheme: String,
    },
    /// The name has no address.
    #[error("cannot resolve `{host}`")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The name resolved to addresses that may not be dialled.
    #[error("`{host}` is at {address}, which is a {scope} address and not allowed here{}", advice(*.scope))]
    RefusedAddress {
        /// The name.
        host: String,
        /// Its first address.
        address: IpAddr,
        /// What that address is.
        scope: Scope,
    },
    /// The name itself is of a place that may not be dialled.
    #[error("`{host}` is a {scope} host, which is not allowed here{}", advice(*.scope))]
    RefusedHost {
        /// The name.
        host: String,
        /// What it is.
        scope: Scope,
    },
    /// Nobody answers at the address.
    #[error("cannot connect to `{target}`")]
    Connect {
        /// Host and port.
        target: String,
        /// What the last attempt said.
        source: io::Error,
    },
    /// The HTTP proxy does not lead to the target.
    #[error("the proxy does not connect to `{target}`: {reason}")]
    Proxy {
        /// Host and port.
        target: String,
        /// What it answered instead.
        reason: String,
    },
    /// TLS could not be set up on our side.
    #[error("cannot speak TLS")]
    Settings(#[source] TlsError),
    /// The TLS handshake failed.
    #[error("no TLS with `{target}`")]
    Tls {
        /// Host and port.
        target: String,
        /// What went wrong.
        source: io::Error,
    },
    /// A step took too long.
    #[error("{step} took too long")]
    Timeout {
        /// Which one.
        step: Step,
    },
    /// The connection broke while the request was sent or before the answer began.
    #[error("the connection to `{target}` broke")]
    Send {
        /// Host and port.
        target: String,
        /// What hyper said.
        source: hyper::Error,
    },
}

/// What to do about an address that is refused, where something can be done.
const fn advice(scope: Scope) -> &'static str {
    match scope {
        Scope::Private | Scope::Reserved => "; set allowPrivateEndpoint to true if that is meant",
        _ => "",
    }
}

/// A step that has a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Resolving and connecting.
    Dial,
    /// The TLS handshake.
    Handshake,
    /// Waiting for the head of the answer.
    Answer,
}

impl Error {
    /// Whether the request cannot have had any effect: no connection was ever made for it.
    pub fn never_reached(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Timeout { step: Step::Answer })
    }

    /// The step that failed, in one word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Target | Self::Scheme { .. } => "target",
            Self::Resolve { .. } => "resolve",
            Self::RefusedAddress { .. } | Self::RefusedHost { .. } => "refused_address",
            Self::Connect { .. } => "connect",
            Self::Proxy { .. } => "proxy",
            Self::Settings(_) | Self::Tls { .. } => "tls",
            Self::Timeout { .. } => "timeout",
            Self::Send { .. } => "send",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Dial => "connecting",
            Self::Handshake => "the TLS handshake",
            Self::Answer => "the answer",
        })
    }
}
