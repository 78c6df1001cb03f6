//! A client on crates.io's rmcp that begins with `server/discover` and falls back (`auto`), or begins with `initialize` (`legacy`).

use anyhow::{Result, ensure};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    Implementation, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RequestContext};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::json;

struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("peer", "1"))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": "Ann" })))
    }
}

pub(crate) async fn run(url: &str, mode: &str, tool: &str) -> Result<()> {
    let lifecycle = match mode {
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
    };
    let client = Client.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url), lifecycle).await?;
    let mut call = CallToolRequestParams::new(tool.to_owned());
    if tool == "echo" {
        call = call.with_arguments(json!({ "message": "hello" }).as_object().cloned().unwrap_or_default());
    }
    let called = client.call_tool(call).await?;
    let wanted = match tool {
        "echo" => "hello",
        "ask" => "Ann",
        _ => "done",
    };
    let text = called.content.first().and_then(|content| content.as_text()).map(|content| content.text.as_str());
    ensure!(called.is_error != Some(true) && text == Some(wanted), "{called:?}");
    client.cancel().await?;
    Ok(())
}
