//! Outbound errors, by step. No text holds a path, a query or credentials.

use std::io;
use std::net::IpAddr;

use crate::Scope;
use crate::tls::TlsError;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI is not a valid target.
    #[error("the target has no host, or names a user; write it like `https://mcp.example.com/mcp`")]
    Target,
    /// The scheme is not allowed.
    #[error("scheme `{scheme}` is not allowed here")]
    Scheme {
        /// The scheme of the URI.
        scheme: String,
    },
    /// The name has no address.
    #[error("cannot resolve `{host}`")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The name resolved to addresses that may not be dialled.
    #[error("`{host}` is at {address}, which is a {scope} address and not allowed here{}", advice(*.scope))]
    RefusedAddress {
        /// The name.
        host: String,
        /// Its first address.
        address: IpAddr,
        /// The scope of that address.
        scope: Scope,
    },
    /// The name itself may not be dialled.
    #[error("`{host}` is a {scope} host, which is not allowed here{}", advice(*.scope))]
    RefusedHost {
        /// The name.
        host: String,
        /// Its scope.
        scope: Scope,
    },
    /// The connection failed.
    #[error("cannot connect to `{target}`")]
    Connect {
        /// Host and port.
        target: String,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The HTTP proxy does not connect to the target.
    #[error("the proxy does not connect to `{target}`: {reason}")]
    Proxy {
        /// Host and port.
        target: String,
        /// Its response.
        reason: String,
    },
    /// The TLS configuration of the client is invalid.
    #[error("cannot configure TLS")]
    Settings(#[source] TlsError),
    /// The TLS handshake failed.
    #[error("TLS handshake with `{target}` failed")]
    Tls {
        /// Host and port.
        target: String,
        /// The error of the handshake.
        source: io::Error,
    },
    /// A step timed out.
    #[error("{step} took too long")]
    Timeout {
        /// The step.
        step: Step,
    },
    /// The connection broke while the request was sent or before the response started.
    #[error("the connection to `{target}` broke")]
    Send {
        /// Host and port.
        target: String,
        /// The error of hyper.
        source: hyper::Error,
    },
}

/// Advice on a denied address, where there is any.
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
    /// Waiting for the head of the response.
    Answer,
}

impl Error {
    /// Whether the request cannot have had any effect: no connection was ever made for it.
    pub fn never_reached(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Timeout { step: Step::Answer })
    }

    /// The step that failed, as a constant name for metrics.
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
