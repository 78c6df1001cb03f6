//! `server/discover`, by which a server of 2026-07-28 is recognized.

use skep_mcp::{Eras, Message, era, value};

/// The parameters of the request.
pub(crate) fn discover_params() -> String {
    let (modern, version) = (era::MODERN, env!("CARGO_PKG_VERSION"));
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{modern}","io.modelcontextprotocol/clientInfo":{{"name":"skep","version":"{version}"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
    )
}

/// The request.
pub fn discover_request() -> String {
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}}"#, discover_params())
}

/// Whether the response says that the server speaks 2026-07-28.
pub(crate) fn supports_modern(answer: &Message) -> bool {
    eras_of(answer) != Eras::Legacy
}

/// The eras of the versions that the response lists. A server that does not list 2026-07-28 is one of earlier versions.
pub fn eras_of(answer: &Message) -> Eras {
    let versions = answer.result().and_then(|result| value::find(result, &["supportedVersions"])).unwrap_or("[]");
    let is_legacy = |version: &&str| *version != era::MODERN && value::has_text(versions, version);
    match (value::has_text(versions, era::MODERN), era::VERSIONS.iter().any(is_legacy)) {
        (true, true) => Eras::Both,
        (true, false) => Eras::Modern,
        (false, _) => Eras::Legacy,
    }
}
