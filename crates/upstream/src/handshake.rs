//! `server/discover`, by which a server of 2026-07-28 is recognized.

use skep_mcp::{Message, era};

/// The parameters of the request.
pub(crate) fn discover_params() -> String {
    let (modern, version) = (era::MODERN, env!("CARGO_PKG_VERSION"));
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{modern}","io.modelcontextprotocol/clientInfo":{{"name":"skep","version":"{version}"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
    )
}

/// Whether the response says that the server speaks 2026-07-28.
pub(crate) fn supports_modern(answer: &Message) -> bool {
    let result = answer.result().and_then(|result| serde_json::from_slice::<serde_json::Value>(result).ok());
    let versions = result.as_ref().and_then(|result| result.get("supportedVersions")?.as_array());
    versions.is_some_and(|versions| versions.iter().any(|version| version == era::MODERN))
}
