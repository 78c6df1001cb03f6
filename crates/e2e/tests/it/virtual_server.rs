//! A virtual server on real pods: members of a group are found, join and leave, while its clients keep their sessions.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{PATIENCE, fixture_image, next_image};
use crate::guarded::ask;
use crate::home::{Home, get, http, stdio, with};

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

/// The stream on which a client hears what happens outside of its calls.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn open(client: &Client) -> Result<Self> {
        let mut stream = TcpStream::connect(&client.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // HTTP/1.0: a stream without chunk headers in it.
        let headers = format!("Accept: text/event-stream\r\nMcp-Session-Id: {}", client.session);
        write!(stream, "GET /mcp HTTP/1.0\r\nHost: {}\r\n{headers}\r\n\r\n", client.address)?;
        let mut listener = Self(BufReader::new(stream));
        listener.wait_for("200")?;
        Ok(listener)
    }

    /// Reads on to a line with this text in it.
    fn wait_for(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            ensure!(self.0.read_line(&mut line)? > 0, "the stream ended before `{text}` came");
        }
        Ok(())
    }
}

/// The status of a condition.
async fn condition(home: &Home, name: &str) -> Result<Option<String>> {
    let status = home.kind("VirtualMCPServer").get("v").await?.data;
    let conditions = status.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == name);
    Ok(found.and_then(|condition| condition["status"].as_str()).map(str::to_owned))
}

#[tokio::test]
async fn members_of_a_group_join_roll_and_leave_and_clients_keep_their_sessions() -> Result<()> {
    let home = Home::new("virtual").await?;
    let image = fixture_image()?;
    let member = |spec: Value| with(spec, "groupRef", json!({ "name": "g" }));
    home.create_kind("MCPGroup", "g", json!({})).await?;
    home.create("pipe", member(stdio(&image))).await?;
    home.create("web", member(http(&image))).await?;
    home.create("outside", http(&image)).await?;
    home.ready("outside").await?;
    let url = format!("http://mcp-outside.{}.svc.cluster.local:8080/mcp", home.namespace);
    let far = json!({ "remoteUrl": url, "allowPrivateEndpoint": true });
    home.create_kind("MCPRemoteProxy", "far", member(far)).await?;
    // It is listed as long as its members are there.
    let steps = json!([{ "id": "a", "tool": "pipe_who" }, { "id": "b", "tool": "far.who", "dependsOn": ["a"] }]);
    let output = json!({ "type": "object", "properties": {
        "first": { "type": "string", "description": "The first.", "value": "{{.steps.a.output.text}}" },
        "second": { "type": "string", "description": "The second.", "value": "{{.steps.b.output.text}}" },
    } });
    let everywhere =
        json!({ "name": "everywhere", "description": "Calls two members.", "steps": steps, "output": output });
    let spec = json!({
        "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "config": { "compositeTools": [everywhere] },
    });
    home.create_kind("VirtualMCPServer", "v", spec).await?;
    home.phase("VirtualMCPServer", "v", "Ready").await?;
    let address = home.address_of("vmcp-v").await?;
    let client = Client { session: home.open(&address, TOKEN).await?, address };

    until_members_are(&home, &client, &["far", "pipe", "web"]).await?;
    let is_of = |tool: &str, member: &str| -> Result<()> {
        ensure!(client.call(tool)?.contains(&format!("{member}-0")), "a call of {tool} reached another member");
        Ok(())
    };
    is_of("pipe_who", "pipe")?;
    is_of("web_who", "web")?;
    is_of("far_who", "outside")?;
    is_of("everywhere", "pipe")?;
    is_of("everywhere", "outside")?;
    let ready = |name: &str| (name.to_owned(), "ready".to_owned());
    home.cluster
        .until("the status names all members", || async {
            Ok(reported(&home).await? == [ready("far"), ready("pipe"), ready("web")])
        })
        .await?;
    ensure!(get(&client.address, "/readyz")?.0.starts_with("HTTP/1.1 200"), "it is not ready");
    for name in ["Ready", "BackendsDiscovered"] {
        home.cluster
            .until(&format!("condition {name}"), || async {
                Ok(condition(&home, name).await?.as_deref() == Some("True"))
            })
            .await?;
    }
    let pods = home.uids(POD).await?;

    let mut listener = Listener::open(&client)?;
    home.create("more", member(http(&image))).await?;
    listener.wait_for("notifications/tools/list_changed")?;
    until_members_are(&home, &client, &["far", "more", "pipe", "web"]).await?;
    is_of("more_who", "more")?;

    // A member whose pod is replaced.
    let before = home.uids("app=web").await?;
    let change = Patch::Merge(json!({ "spec": { "image": next_image()? } }));
    home.servers().patch("web", &PatchParams::default(), &change).await?;
    home.cluster
        .until("the new pod of the member answers in the same session", || async {
            let pods = home.uids("app=web").await?;
            Ok(pods.len() == 1 && pods.is_disjoint(&before) && is_of("web_who", "web").is_ok())
        })
        .await?;

    home.servers().delete("web", &DeleteParams::default()).await?;
    listener.wait_for("notifications/tools/list_changed")?;
    until_members_are(&home, &client, &["far", "more", "pipe"]).await?;
    home.cluster
        .until("the status names those that are left", || async {
            Ok(reported(&home).await? == [ready("far"), ready("more"), ready("pipe")])
        })
        .await?;
    is_of("pipe_who", "pipe")?;
    ensure!(home.uids(POD).await? == pods, "the pod was replaced although members are followed without it");
    home.cluster.no_restarts(POD).await?;
    home.cluster.remove().await
}
