//! A client on crates.io's rmcp. Usage: `peer URL streamable TOOL ARGUMENTS`. It is a client of either era as well, `peer client URL
//! auto|legacy TOOL`, and a server on stdio, `peer server both|modern`.

mod client;
mod server;

use anyhow::{Context, Result, ensure};
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["client", url, mode, tool] => return client::run(url, mode, tool).await,
        ["server", eras] => return server::run(*eras == "modern").await,
        _ => {}
    }
    let [url, _transport, tool, arguments] = words.as_slice() else { anyhow::bail!("use: peer URL streamable TOOL ARGUMENTS") };
    let client = ().serve(StreamableHttpClientTransport::from_uri(url.as_str())).await?;
    let tools = client.list_all_tools().await?;
    ensure!(tools.iter().any(|one| one.name == tool.as_str()), "{tools:?}");
    let arguments: serde_json::Value = serde_json::from_str(arguments)?;
    let arguments = arguments.as_object().context("arguments are not an object")?.clone();
    for _ in 0..10 {
        let called = client.call_tool(CallToolRequestParams::new(tool.clone()).with_arguments(arguments.clone())).await?;
        ensure!(called.is_error != Some(true) && !called.content.is_empty(), "{called:?}");
    }
    client.cancel().await?;
    Ok(())
}
