//! Why a server cannot be reached, as clients may read it: it names no address that only the proxy knows.

use skep_net::client::Error;

/// What went wrong, as text for people. Those of the error itself name hosts and ports, which may be those of pods.
pub fn reason(error: &Error) -> String {
    let text = match error.category() {
        "target" => "its URL cannot be used",
        "resolve" => "its name cannot be resolved",
        "refused_address" => "its address is not allowed",
        "proxy" => "the HTTP proxy on the way does not connect to it",
        "tls" => "the TLS handshake failed",
        "send" => "the connection broke before it answered",
        "timeout" => return error.to_string(),
        "connect" => return connect_reason(error),
        _ => "the request failed",
    };
    text.to_owned()
}

/// Why no connection was made: the kind of the error only, since its text may name an address.
fn connect_reason(error: &Error) -> String {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.map_or_else(|| "no connection".to_owned(), |source| source.kind().to_string())
}
