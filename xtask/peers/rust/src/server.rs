//! A server on crates.io's rmcp, over stdio: it echoes, asks for a name, and logs. It serves both eras, or only
//! 2026-07-28.

#![expect(deprecated, reason = "logging, which is deprecated, is what is tried here")]

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Result;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::json;

struct Server {
    is_modern_only: bool,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

rmcp::elicit_safe!(Name);

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("peer", "1"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];
        Cow::Borrowed(if self.is_modern_only { MODERN } else { ProtocolVersion::KNOWN_VERSIONS })
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(json!({ "type": "object" }).as_object().cloned().unwrap_or_default());
        let tools = ["echo", "ask", "log"].map(|name| Tool::new(name, name, schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let failed = |error: &dyn std::fmt::Display| ErrorData::internal_error(error.to_string(), None);
        let text = match call.name.as_ref() {
            "echo" => {
                let arguments = call.arguments.unwrap_or_default();
                arguments.get("message").and_then(|message| message.as_str()).unwrap_or_default().to_owned()
            }
            "ask" => {
                let answer = context.peer.elicit::<Name>("Who are you?").await;
                answer.map_err(|error| failed(&error))?.map_or_else(|| "nobody".to_owned(), |answer| answer.name)
            }
            _ => {
                // In 2026-07-28 only a request that asks for it gets a log. The server of both eras is opened in the other one.
                for number in (0..3).filter(|_| !self.is_modern_only || context.meta.log_level().is_some()) {
                    let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(format!("line {number}")));
                    context.peer.notify_logging_message(line).await.map_err(|error| failed(&error))?;
                }
                "done".to_owned()
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

pub(crate) async fn run(is_modern_only: bool) -> Result<()> {
    let running = Server { is_modern_only }.serve(rmcp::transport::stdio()).await?;
    running.waiting().await?;
    Ok(())
}
