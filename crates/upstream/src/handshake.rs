//! `server/discover`, by which a server of 2026-07-28 is recognized.

use skep_mcp::{Message, era, value};

/// The parameters of the request.
pub(crate) fn discover_params() -> String {
    let (modern, version) = (era::MODERN, env!("CARGO_PKG_VERSION"));
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{modern}","io.modelcontextprotocol/clientInfo":{{"name":"skep","version":"{version}"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
    )
}

/// Whether the response says that the server speaks 2026-07-28.
pub(crate) fn supports_modern(answer: &Message) -> bool {
    let versions = answer.result().and_then(|result| value::find(result, &["supportedVersions"]));
    versions.is_some_and(|versions| value::has_text(versions, era::MODERN))
}
