//! All guards together on real pods: an identity provider, Cedar policies, webhooks, rate limits in Redis, audit and traces. Two users have
//! different rights, and what changes while they work takes effect without the loss of a session.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::fixture_image;
use crate::faults::{Redis, free_port};
use crate::guarded::ask;
use crate::home::{Home, get, http, with};
use crate::provider::{AUDIENCE, Provider, Webhook};

const FIRST: &str = "the first secret";
const SECOND: &str = "the second secret";

/// A user with a session.
struct User {
    address: String,
    token: String,
    session: String,
}

impl User {
    async fn open(home: &Home, provider: &Provider, address: &str, name: &str) -> Result<Self> {
        let token = provider.token(name)?;
        let session = home.open(address, &token).await?;
        Ok(Self { address: address.to_owned(), token, session })
    }

    fn ask(&self, message: &Value) -> Result<(u16, Value)> {
        let (head, body) = ask(&self.address, &self.token, &self.session, message)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.with_context(|| head.clone())?, body))
    }

    /// Calls a tool in the session: the status, and the text of the result or of the error.
    fn call(&self, tool: &str) -> Result<(u16, String)> {
        let params = json!({ "name": tool, "arguments": { "q": "x" } });
        let (status, body) =
            self.ask(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params }))?;
        let text = body.pointer("/result/content/0/text").or_else(|| body.pointer("/error/message"));
        Ok((status, text.and_then(Value::as_str).unwrap_or_default().to_owned()))
    }

    fn tools(&self) -> Result<Vec<String>> {
        let (_, listed) = self.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }))?;
        let tools = listed.pointer("/result/tools").and_then(Value::as_array).with_context(|| listed.to_string())?;
        Ok(tools.iter().filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned())).collect())
    }

    /// Waits until a call is answered with a status. While pods are replaced, connections may break; a session must not.
    async fn until(&self, home: &Home, what: &str, tool: &str, expected: u16) -> Result<()> {
        home.cluster
            .until(what, || {
                let called = self.call(tool);
                let lost = called.as_ref().is_ok_and(|(status, _)| *status == 404);
                let is_there = called.is_ok_and(|(status, _)| status == expected);
                async move {
                    ensure!(!lost, "the session is lost");
                    Ok(is_there)
                }
            })
            .await
    }
}

/// The policies: `ada` may do everything, and `bob` may call some tools.
fn policies(of_bob: &[&str]) -> Value {
    let bob = |tool: &&str| format!(r#"permit(principal == Client::"bob", action, resource == Tool::"{tool}");"#);
    let mut policies = vec![r#"permit(principal == Client::"ada", action, resource);"#.to_owned()];
    policies.extend(of_bob.iter().map(bob));
    json!({ "type": "cedarv1", "config": { "policies": policies } })
}

fn webhooks(webhook: &Webhook, policy: &str) -> Value {
    let one = |path: &str| {
        json!({
            "name": path, "url": format!("{}/{path}", webhook.url), "failurePolicy": policy, "timeout": "5s",
            "hmacSecretRef": { "name": "webhook", "key": "hmac" },
            "tlsConfig": {
                "caSecretRef": { "name": "webhook", "key": "ca.crt" },
                "clientCertSecretRef": { "name": "webhook", "key": "client.crt" },
                "clientKeySecretRef": { "name": "webhook", "key": "client.key" },
            },
        })
    };
    json!({ "mutating": [one("mutate")], "validating": [one("validate")] })
}

impl Home {
    /// Changes the spec of an object.
    async fn change(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let change = Patch::Merge(json!({ "spec": spec }));
        self.kind(kind).patch(name, &PatchParams::default(), &change).await?;
        Ok(())
    }

    async fn change_secret(&self, name: &str, data: Value) -> Result<()> {
        let change = Patch::Merge(json!({ "stringData": data }));
        self.api::<Secret>().patch(name, &PatchParams::default(), &change).await?;
        Ok(())
    }

    /// The audit events of all proxies.
    async fn events(&self) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        for pod in self.pods("app=mcpserver").await? {
            let name = pod.metadata.name.context("a pod without a name")?;
            let log = self.api::<Pod>().logs(&name, &kube::api::LogParams::default()).await?;
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.extend(lines.filter(|line| line.get("level") == Some(&json!("AUDIT"))));
        }
        Ok(events)
    }

    /// Waits for an audit event about a tool whose details have a member with this text in it.
    async fn event(&self, tool: &str, member: &str, text: &str) -> Result<()> {
        let is_it = |event: &Value| {
            let of_tool = event.pointer("/target/name").and_then(Value::as_str) == Some(tool);
            let detail = event.pointer(&format!("/metadata/extra/{member}"));
            of_tool && detail.is_some_and(|detail| detail.to_string().contains(text))
        };
        self.cluster
            .until(&format!("an audit event about `{tool}` with `{text}` in {member}"), || async {
                Ok(self.events().await?.iter().any(is_it))
            })
            .await
    }

    /// Everything that guards the server `guarded`.
    async fn guard(&self, provider: &Provider, webhook: &Webhook, redis: &str) -> Result<()> {
        let client = &webhook.client;
        let secret = json!({
            "hmac": FIRST, "ca.crt": webhook.authority, "client.crt": client.certificate, "client.key": client.key,
        });
        self.cluster.create::<Secret>(json!({ "metadata": { "name": "webhook" }, "stringData": secret })).await?;
        let inline = json!({ "issuer": provider.url, "insecureAllowHTTP": true, "jwksAllowPrivateIP": true });
        self.create_kind("MCPOIDCConfig", "provider", json!({ "type": "inline", "inline": inline })).await?;
        self.create_kind("MCPAuthzConfig", "policies", policies(&["who", "limited"])).await?;
        self.create_kind("MCPWebhookConfig", "webhooks", webhooks(webhook, "fail")).await?;
        let tracing = json!({ "enabled": true, "samplingRate": "1.0" });
        let collector = json!({ "enabled": true, "endpoint": provider.url, "insecure": true, "tracing": tracing });
        let telemetry = json!({ "openTelemetry": collector, "prometheus": { "enabled": true } });
        self.create_kind("MCPTelemetryConfig", "telemetry", telemetry).await?;
        let once = json!({ "maxTokens": 1, "refillPeriod": "1h" });
        let mut spec = http(&fixture_image()?);
        for (name, value) in [
            ("oidcConfigRef", json!({ "name": "provider", "audience": AUDIENCE })),
            ("authzConfigRef", json!({ "name": "policies" })),
            ("webhookConfigRef", json!({ "name": "webhooks" })),
            ("telemetryConfigRef", json!({ "name": "telemetry" })),
            ("audit", json!({ "enabled": true })),
            ("sessionStorage", json!({ "provider": "redis", "address": redis })),
            ("rateLimiting", json!({ "tools": [{ "name": "limited", "perUser": once }] })),
        ] {
            spec = with(spec, name, value);
        }
        self.create("guarded", spec).await?;
        self.ready("guarded").await
    }
}

#[tokio::test]
async fn guards_are_visible_to_clients_and_in_the_audit_log_and_change_without_the_loss_of_a_session() -> Result<()> {
    let home = Home::new("guards").await?;
    let node = home.node_address().await?;
    let directory = std::env::temp_dir().join(&home.namespace);
    std::fs::create_dir_all(&directory)?;
    let redis = Redis { address: node.clone(), port: free_port(&node)?, directory: directory.clone() };
    let _running = redis.start().await?;
    let provider = Provider::start(&node)?;
    let mut webhook = Webhook::start(&node, &directory, FIRST)?;
    home.guard(&provider, &webhook, &format!("{node}:{}", redis.port)).await?;
    let address = home.address("guarded").await?;
    let ada = User::open(&home, &provider, &address, "ada").await?;
    let mut bob = User::open(&home, &provider, &address, "bob").await?;

    refusals(&home, &ada, &bob).await?;
    home.cluster.until("spans reach the collector", || async { Ok(provider.spans() > 0) }).await?;
    let (_, metrics) = get(&address, "/metrics")?;
    ensure!(metrics.contains("rate_limit"), "{metrics}");

    // A new policy.
    ensure!(bob.call("sleep")?.0 == 403, "before its policy is there");
    home.change("MCPAuthzConfig", "policies", policies(&["who", "limited", "sleep"])).await?;
    bob.until(&home, "a new policy lets bob sleep", "sleep", 200).await?;
    ensure!(bob.tools()? == ["who", "sleep"], "the list follows");

    // A new key, and a token that it signed, in the same session. The old one is not published any more.
    let old = bob.token.clone();
    provider.rotate()?;
    bob.token = provider.token("bob")?;
    ensure!(old != bob.token && bob.call("who")?.0 == 200, "the first call with a new key");
    let ada = User { token: provider.token("ada")?, ..ada };

    // A new secret of the webhook: first there, so that nothing passes, and then in the cluster. No pod is replaced for it.
    let pods = home.uids("app=mcpserver").await?;
    webhook.expect(SECOND)?;
    ada.until(&home, "the webhook refuses what is signed with the old secret", "who", 500).await?;
    home.change_secret("webhook", json!({ "hmac": SECOND })).await?;
    ada.until(&home, "requests are signed with the new secret", "who", 200).await?;
    // The same for the certificate of its clients.
    webhook.expect_another_client()?;
    ada.until(&home, "the webhook refuses the old certificate", "who", 500).await?;
    let client = json!({ "client.crt": webhook.client.certificate, "client.key": webhook.client.key });
    home.change_secret("webhook", client).await?;
    ada.until(&home, "the new certificate is presented", "who", 200).await?;
    ensure!(home.uids("app=mcpserver").await? == pods, "a pod was replaced for a Secret");

    // Without a webhook, its policy decides.
    webhook.stop()?;
    ada.until(&home, "nothing passes without the webhook", "who", 500).await?;
    home.change("MCPWebhookConfig", "webhooks", webhooks(&webhook, "ignore")).await?;
    ada.until(&home, "everything passes without the webhook", "who", 200).await?;
    ensure!(bob.call("who")?.0 == 200 && bob.call("die")?.0 == 403, "policies hold without the webhook");

    home.cluster.no_restarts("app=mcpserver").await?;
    std::fs::remove_dir_all(&directory)?;
    home.cluster.remove().await
}

/// What each guard does, as clients and the audit log see it.
async fn refusals(home: &Home, ada: &User, bob: &User) -> Result<()> {
    ensure!(ada.tools()? == ["who", "sleep", "die"], "{:?}", ada.tools()?);
    ensure!(bob.tools()? == ["who"], "{:?}", bob.tools()?);
    ensure!(bob.call("who")?.0 == 200, "what bob may call");
    ensure!(bob.call("die")? == (403, "Unauthorized".to_owned()), "what bob may not call");
    let denied = ada.call("delete_all")?;
    ensure!(denied == (403, "Request denied by policy".to_owned()), "{denied:?}");
    // The webhook sets a limit, which the server returns.
    let (status, text) = ada.call("search")?;
    ensure!(status == 200 && text.contains("limit 10"), "{status} {text}");
    for user in [ada, bob] {
        ensure!(user.call("limited")?.0 == 200, "the first call within the limit of each user");
        let limited = user.call("limited")?;
        ensure!(limited == (429, "Rate limit exceeded".to_owned()), "{limited:?}");
    }
    home.event("die", "denied_by", "authorization").await?;
    home.event("die", "denial_reason", "no policy permits it").await?;
    home.event("who", "policies", "policies[1]:1").await?;
    home.event("delete_all", "denied_by", "validating-webhook").await?;
    home.event("search", "mutated_by", "mutate").await?;
    home.event("limited", "denied_by", "ratelimit").await
}
