//! A virtual server on real pods: members of a group are found, join and leave, while its clients keep their sessions.

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::fixture_image;
use crate::guarded::ask;
use crate::home::{Home, http, stdio, with};

/// Nothing is checked of it: the clients are anonymous.
const TOKEN: &str = "none";
const POD: &str = "app=virtualmcpserver";

/// A client of the virtual server.
struct Client {
    address: String,
    session: String,
}

// === impl Client ===

impl Client {
    fn request(&self, method: &str, params: &Value) -> Result<Value> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (head, answer) = ask(&self.address, TOKEN, &self.session, &request)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{answer}");
        Ok(answer)
    }

    /// The names of the tools.
    fn tools(&self) -> Result<Vec<String>> {
        let answer = self.request("tools/list", &json!({}))?;
        let tools = answer.pointer("/result/tools").and_then(Value::as_array).context("a list")?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// The result of a tool as text.
    fn call(&self, tool: &str) -> Result<String> {
        let answer = self.request("tools/call", &json!({ "name": tool, "arguments": {} }))?;
        let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
        Ok(text.with_context(|| answer.to_string())?.to_owned())
    }
}

/// Waits until a client sees tools of these members and of no others.
async fn until_members_are(home: &Home, client: &Client, members: &[&str]) -> Result<()> {
    let tools = ["die", "sleep", "who"];
    let mut expected: Vec<String> =
        members.iter().flat_map(|member| tools.map(|tool| format!("{member}_{tool}"))).collect();
    expected.push("everywhere".to_owned());
    expected.sort();
    home.cluster
        .until(&format!("the tools are those of {members:?}"), || {
            let seen = client.tools().map(|mut tools| {
                tools.sort();
                tools
            });
            let done = seen.is_ok_and(|seen| seen == expected);
            async move { Ok(done) }
        })
        .await
}

/// The backends in the status, with how they are.
async fn reported(home: &Home) -> Result<Vec<(String, String)>> {
    let status = home.kind("VirtualMCPServer").get("v").await?.data;
    let backends = status.pointer("/status/discoveredBackends").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |backend: &Value, member: &str| backend[member].as_str().unwrap_or_default().to_owned();
    Ok(backends.iter().map(|backend| (text(backend, "name"), text(backend, "status"))).collect())
}

#[tokio::test]
async fn members_of_a_group_join_and_leave_and_clients_keep_their_sessions() -> Result<()> {
    let home = Home::new("virtual").await?;
    let image = fixture_image()?;
    let member = |spec: Value| with(spec, "groupRef", json!({ "name": "g" }));
    home.create_kind("MCPGroup", "g", json!({})).await?;
    home.create("pipe", member(stdio(&image))).await?;
    home.create("web", member(http(&image))).await?;
    // It is listed as long as its member is there.
    let steps = json!([{ "id": "a", "tool": "pipe_who" }, { "id": "b", "tool": "pipe.who", "dependsOn": ["a"] }]);
    let everywhere = json!({ "name": "everywhere", "description": "Calls a member twice.", "steps": steps });
    let spec = json!({
        "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "config": { "compositeTools": [everywhere] },
    });
    home.create_kind("VirtualMCPServer", "v", spec).await?;
    home.phase("VirtualMCPServer", "v", "Ready").await?;
    let address = home.address_of("vmcp-v").await?;
    let client = Client { session: home.open(&address, TOKEN).await?, address };

    until_members_are(&home, &client, &["pipe", "web"]).await?;
    ensure!(client.call("pipe_who")?.starts_with("pipe-"), "a call reached another member");
    ensure!(client.call("web_who")?.starts_with("web-"), "a call reached another member");
    ensure!(client.call("everywhere")?.contains("pipe-"), "a composite tool returned something else");
    let ready = |name: &str| (name.to_owned(), "ready".to_owned());
    home.cluster
        .until("the status names both members", || async {
            Ok(reported(&home).await? == [ready("pipe"), ready("web")])
        })
        .await?;
    let pods = home.pods(POD).await?;

    home.create("more", member(http(&image))).await?;
    until_members_are(&home, &client, &["more", "pipe", "web"]).await?;
    ensure!(client.call("more_who")?.starts_with("more-"), "a call reached another member");

    home.servers().delete("web", &DeleteParams::default()).await?;
    until_members_are(&home, &client, &["more", "pipe"]).await?;
    home.cluster
        .until("the status names those that are left", || async {
            Ok(reported(&home).await? == [ready("more"), ready("pipe")])
        })
        .await?;
    ensure!(client.call("pipe_who")?.starts_with("pipe-"), "the session is lost");
    let uid =
        |pods: &[k8s_openapi::api::core::v1::Pod]| pods.iter().map(|pod| pod.metadata.uid.clone()).collect::<Vec<_>>();
    ensure!(uid(&home.pods(POD).await?) == uid(&pods), "the pod was replaced although members are followed without it");
    home.cluster.no_restarts(POD).await?;
    home.cluster.remove().await
}
