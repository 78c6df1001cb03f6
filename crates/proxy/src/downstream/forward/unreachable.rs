//! The response while a server that speaks HTTP cannot be reached: why, as far as it is known.

use bytes::Bytes;
use skep_mcp::{Id, answer};
use skep_net::client::Error;
use skep_upstream::http::unreachable_reason as reason;

use crate::health::{Health, ServerHealth};

/// The JSON-RPC error for a request that the server did not get or did not answer.
pub(super) fn body(id: Option<&Id>, error: &Error, health: Option<&Health>) -> Bytes {
    let text = match health.map(Health::known) {
        // How its process ended says more than that the connection is refused. The server's log comes after the first line.
        Some(ServerHealth::Unavailable(why)) if error.category() == "connect" => {
            format!("the server is not available: {}", why.lines().next().unwrap_or_default())
        }
        _ => format!("the server cannot be reached: {}", reason(error)),
    };
    answer::error(id, answer::INTERNAL_ERROR, &text, None)
}

#[cfg(test)]
mod tests {
    use std::io;

    use skep_net::Drain;
    use skep_net::drain::Grace;

    use super::*;

    fn text(error: &Error, known: Option<ServerHealth>) -> String {
        let drain = Drain::new(Grace { linger: std::time::Duration::ZERO, finish: std::time::Duration::ZERO });
        let health = known.map(|known| {
            let health = Health::new("sse", drain);
            health.set(known);
            health
        });
        let body: serde_json::Value = serde_json::from_slice(&body(None, error, health.as_ref())).unwrap();
        body["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_client_gets_the_reason_and_no_address() {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "10.1.2.3:80 said no");
        let connect = Error::Connect { target: "10.1.2.3:80".to_owned(), source: refused() };
        let ended = ServerHealth::Unavailable("the server ended: exit status: 1\npassword".to_owned());
        for (error, known, wanted) in [
            (&connect, None, "the server cannot be reached: connection refused"),
            (&connect, Some(ServerHealth::Unwatched), "the server cannot be reached: connection refused"),
            (&connect, Some(ended.clone()), "the server is not available: the server ended: exit status: 1"),
            (
                &connect,
                // As a health check writes it.
                Some(ServerHealth::Unavailable(format!("it cannot be reached: {}", reason(&connect)))),
                "the server is not available: it cannot be reached: connection refused",
            ),
            (
                &Error::Resolve { host: "a".to_owned(), source: refused() },
                Some(ended),
                "the server cannot be reached: its name cannot be resolved",
            ),
            (
                &Error::Timeout { step: skep_net::client::Step::Answer },
                None,
                "the server cannot be reached: the answer took too long",
            ),
        ] {
            assert_eq!(text(error, known), wanted);
        }
    }
}
