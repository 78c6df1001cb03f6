//! Authentication and authorization on real pods, with tokens of the cluster's own service accounts.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::cluster::fixture_image;
use crate::home::{Home, get, http, post_to};

const AUDIENCE: &str = "guarded";

impl Home {
    /// A session of a client with a token, once the server is available.
    pub(crate) async fn open(&self, address: &str, token: &str) -> Result<String> {
        let mut session = None;
        self.cluster
            .until(&format!("{address} answers a client with a token"), || {
                session = open(address, token).ok();
                let done = session.is_some();
                async move { Ok(done) }
            })
            .await?;
        session.context("no response")
    }

    /// A token of a service account, which is created for it.
    async fn token_of(&self, account: &str) -> Result<String> {
        self.cluster.create::<ServiceAccount>(json!({ "metadata": { "name": account } })).await?;
        let spec = TokenRequestSpec { audiences: Some(vec![AUDIENCE.to_owned()]), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = self.api::<ServiceAccount>();
        let issued = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        issued.status.and_then(|status| status.token).context("no token")
    }
}

/// Sends a message with a token; returns the status line and the message.
pub(crate) fn ask(address: &str, token: &str, session: &str, message: &Value) -> Result<(String, Value)> {
    let session = if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
    let headers = format!("Authorization: Bearer {token}\r\n{session}");
    let (head, body) = post_to(address, "/mcp", &headers, &message.to_string())?;
    Ok((head, serde_json::from_str(&body).unwrap_or_default()))
}

/// A session of a client with a token.
fn open(address: &str, token: &str) -> Result<String> {
    let client = json!({ "name": "e2e", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let (head, body) = ask(address, token, "", &initialize)?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    let session = head
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id")));
    let session = session.context("no session")?.1.trim().to_owned();
    ask(address, token, &session, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
    Ok(session)
}

#[tokio::test]
async fn service_accounts_see_and_call_the_tools_that_their_policies_permit() -> Result<()> {
    let home = Home::new("guarded").await?;
    let (ada, bob) = (home.token_of("ada").await?, home.token_of("bob").await?);
    let of_cluster = json!({ "type": "kubernetesServiceAccount", "kubernetesServiceAccount": {} });
    home.create_kind("MCPOIDCConfig", "cluster", of_cluster).await?;
    let client = |name: &str| format!("Client::\"system:serviceaccount:{}:{name}\"", home.namespace);
    let policies = [
        format!("permit(principal == {}, action, resource);", client("ada")),
        format!("permit(principal == {}, action, resource == Tool::\"who\");", client("bob")),
    ];
    let mut spec = http(&fixture_image()?);
    spec["oidcConfigRef"] = json!({ "name": "cluster", "audience": AUDIENCE });
    spec["authzConfig"] = json!({ "type": "inline", "inline": { "policies": policies } });
    home.create("web", spec).await?;
    home.ready("web").await?;
    let address = home.address("web").await?;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let call = |tool: &str| json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": tool, "arguments": {} } });

    home.open(&address, &ada).await?;

    // Without a token, and with one that is none, nothing is served.
    let (head, _) = post_to(&address, "/mcp", "", &list.to_string())?;
    ensure!(head.starts_with("HTTP/1.1 401") && head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
    let (head, body) = get(&address, "/.well-known/oauth-protected-resource")?;
    ensure!(head.starts_with("HTTP/1.1 200") && body.contains("https://kubernetes.default.svc"), "{head}\n{body}");
    let (head, _) = ask(&address, "no.token.really", "", &list)?;
    ensure!(head.starts_with("HTTP/1.1 401"), "{head}");

    for (token, tools) in [(&ada, &["who", "sleep", "die"][..]), (&bob, &["who"])] {
        let session = home.open(&address, token).await?;
        let (_, listed) = ask(&address, token, &session, &list)?;
        let names = listed.pointer("/result/tools").and_then(Value::as_array).context("a list")?;
        let names: Vec<_> = names.iter().filter_map(|tool| tool["name"].as_str()).collect();
        ensure!(names == tools, "{names:?}");
        let (head, body) = ask(&address, token, &session, &call("who"))?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    }
    let session = home.open(&address, &bob).await?;
    let (head, body) = ask(&address, &bob, &session, &call("sleep"))?;
    ensure!(head.starts_with("HTTP/1.1 403") && body["error"]["message"] == "Unauthorized", "{head}\n{body}");
    // A session belongs to its client.
    let (head, _) = ask(&address, &ada, &session, &call("who"))?;
    ensure!(head.starts_with("HTTP/1.1 404"), "{head}");
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}
