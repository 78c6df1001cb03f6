//! A server that speaks HTTP, called through the proxy in front of it: what `skep tools` and a virtual server do.

use anyhow::Result;
use http::Response;
use serde_json::{Value, json};
use skep_mcp::{Era, Message};
use skep_net::{Body, Client};
use skep_upstream::http::{HttpOptions, HttpUpstream, Target};
use skep_upstream::{Call, ClientContext, SessionId, Upstream, UpstreamState};

use crate::forward::answer;
use crate::web::{Got, Web};

fn message(value: &Value) -> Result<Message> {
    Ok(Message::parse(value.to_string().into())?)
}

fn respond(got: &Got, is_modern: bool) -> Response<Body> {
    let asked: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string();
    match asked["method"].as_str() {
        Some("server/discover") if is_modern => {
            answer(200, &[], result(json!({ "supportedVersions": ["2026-07-28"] })))
        }
        Some("server/discover") => answer(400, &[], "no session"),
        Some("initialize") => {
            answer(200, &[("mcp-session-id", "s")], result(json!({ "protocolVersion": "2025-06-18" })))
        }
        Some("tools/list") => {
            let events = format!("id: 1\ndata: {}\n\n", result(json!({ "tools": [] })));
            Response::builder().header("content-type", "text/event-stream").body(Body::full(events)).unwrap()
        }
        _ => answer(202, &[], ""),
    }
}

#[tokio::test]
async fn a_server_of_either_era_is_called_through_its_proxy() -> Result<()> {
    for era in [Era::Legacy, Era::Modern] {
        let web = Web::new(move |got| respond(got, era == Era::Modern)).await?;
        let target = Target::remote(&format!("http://{}/mcp", web.address))?;
        let client = Client::new(skep_net::client::Options::default());
        let upstream = HttpUpstream::new(target, client, HttpOptions::default());
        let state = upstream.state().wait_for(|state| *state != UpstreamState::Starting).await?.clone();
        // The server answers `initialize` in both cases.
        assert!(state.is_ready_for(era), "{state:?}");
        let closed = || web.got().iter().filter(|got| got.method == "DELETE").count();
        let closed_by_probe = closed();
        let session = SessionId::from("ours");
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
        let params = if era == Era::Modern { json!({ "_meta": meta }) } else { json!({}) };
        if era == Era::Legacy {
            let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
            upstream.open(&session, &message(&initialize)?, &ClientContext::default()).await?;
        }
        let list = message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params }))?;
        let call = Call { session: (era == Era::Legacy).then_some(session.clone()), ..Call::new(list, era) };
        let listed = upstream.clone().call(call).await?.response.response().await?;
        assert_eq!(serde_json::from_slice::<Value>(listed.body())?["result"], json!({ "tools": [] }));
        upstream.close_session(&session).await;
        assert_eq!(closed() - closed_by_probe, usize::from(era == Era::Legacy), "{era:?}");
    }
    Ok(())
}
