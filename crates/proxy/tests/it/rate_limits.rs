//! Rate limits in front of a server: who may call what how often, in memory and in Redis, and what happens without Redis.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::StatusCode;
use serde_json::{Value, json};
use skep_proxy::metrics::Metrics;
use skep_testkit::{Seen, eventually};

use crate::client::TestClient;
use crate::guarded::{as_user, guarded};
use crate::web::How;
use crate::webhooks::{Hook, patch, proxy, proxy_with};

const PATIENCE: Duration = Duration::from_secs(20);

/// A bucket that does not fill during a test.
fn bucket(tokens: u32) -> Value {
    json!({ "maxTokens": tokens, "refillPeriod": "1h0m0s" })
}

fn limits(limits: Value) -> Value {
    json!({ "rate_limit_config": limits, "rate_limit_namespace": "ns" })
}

async fn call(client: &TestClient, tool: &str) -> Result<StatusCode> {
    Ok(client.ask(json!(7), "tools/call", json!({ "name": tool, "arguments": {} })).await?.status)
}

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

#[tokio::test]
async fn calls_beyond_the_limit_are_told_when_to_come_back_and_never_reach_the_server() -> Result<()> {
    let web = proxy(limits(json!({ "shared": { "maxTokens": 2, "refillPeriod": "1m0s" } }))).await?;
    let client = web.caller();
    assert_eq!((call(&client, "a").await?, call(&client, "b").await?), (OK, OK));
    let refused = client.ask(json!("x"), "tools/call", json!({ "name": "a" })).await?;
    let expected = json!({ "jsonrpc": "2.0", "id": "x",
        "error": { "code": 429, "message": "Rate limit exceeded", "data": { "retryAfterSeconds": 30 } } });
    assert_eq!((refused.status, refused.message()?), (REFUSED, expected));
    assert_eq!(
        (&refused.headers["retry-after"], &refused.headers["content-type"]),
        (&"30".parse()?, &"application/json".parse()?)
    );
    let told = client.tell("tools/call", json!({ "name": "a" })).await?;
    assert_eq!((told.status, told.message()?.get("id")), (REFUSED, None));
    assert_eq!(web.got().len(), 2);
    // Everything else is free; what cannot be parsed is not.
    for method in ["ping", "tools/list", "prompts/get", "resources/read", "initialize"] {
        assert_eq!(client.ask(json!(1), method, json!({ "name": "a", "uri": "a" })).await?.status, OK, "{method}");
    }
    let hidden = r#"{"jsonrpc":"2.0","id":1,"method":"x","Method":"tools/call","params":{"name":"a"}}"#;
    assert_eq!(client.post(hidden).await?.status, StatusCode::BAD_REQUEST);
    assert_eq!(web.got().len(), 7);
    Ok(())
}

#[tokio::test]
async fn each_user_and_each_tool_has_its_own_bucket() -> Result<()> {
    let tools = json!([{ "name": "look", "perUser": bucket(1) }, { "name": "delete", "shared": bucket(1) }]);
    let web = guarded(limits(json!({ "perUser": bucket(3), "tools": tools }))).await?;
    let (ada, bob) = (as_user(&web, "ada"), as_user(&web, "bob"));
    assert_eq!((call(&ada, "look").await?, call(&ada, "look").await?), (OK, REFUSED), "of the tool");
    assert_eq!(call(&bob, "look").await?, OK, "another user's");
    assert_eq!((call(&bob, "delete").await?, call(&ada, "delete").await?), (OK, REFUSED), "of all users");
    // The refusals took nothing of the user's own bucket.
    assert_eq!((call(&ada, "other").await?, call(&ada, "other").await?, call(&ada, "other").await?), (OK, OK, REFUSED));
    Ok(())
}

#[tokio::test]
async fn prompts_and_resources_can_be_limited_too() -> Result<()> {
    let resources = json!([{ "name": "*", "shared": bucket(2) }, { "name": "db://rare", "shared": bucket(1) }]);
    let web =
        proxy(limits(json!({ "prompts": [{ "name": "p", "perUser": bucket(1) }], "resources": resources }))).await?;
    let client = web.caller();
    let get = async |name: &str| anyhow::Ok(client.ask(json!(1), "prompts/get", json!({ "name": name })).await?.status);
    assert_eq!((get("p").await?, get("p").await?, get("q").await?), (OK, REFUSED, OK));
    let read =
        async |uri: &str| anyhow::Ok(client.ask(json!(1), "resources/read", json!({ "uri": uri })).await?.status);
    assert_eq!((read("db://rare").await?, read("db://rare").await?), (OK, REFUSED));
    assert_eq!((read("db://1").await?, read("db://2").await?, read("db://3").await?), (OK, OK, REFUSED));
    for _ in 0..5 {
        assert_eq!(call(&client, "a").await?, OK);
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_call_counts_as_what_is_sent_and_nothing_is_paid_twice() -> Result<()> {
    let rename = patch(json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": "b" }]));
    let hook = Hook::new(vec![(200, rename)]).await?;
    let mut config = limits(json!({ "shared": bucket(3), "tools": [{ "name": "b", "shared": bucket(2) }] }));
    config["mutating_webhooks"] = json!([hook.entry("fail")]);
    let web = proxy(config).await?;
    let client = web.caller();
    assert_eq!((call(&client, "a").await?, call(&client, "a").await?), (OK, OK), "one token of the shared bucket each");
    assert_eq!(call(&client, "a").await?, REFUSED, "by the bucket of the tool that would be called");
    assert_eq!(web.got().len(), 2);
    Ok(())
}

/// A Redis on loopback, killed with the test.
struct Redis {
    process: Option<Child>,
    port: u16,
}

impl Redis {
    /// A port on which none runs yet.
    fn later() -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self { process: None, port })
    }

    async fn start(&mut self) -> Result<()> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("redis-server is needed")?;
        self.process = Some(process);
        let address = ("127.0.0.1", self.port);
        eventually("Redis listens", PATIENCE, || async {
            let connected = tokio::net::TcpStream::connect(address).await;
            Ok(connected.map_or_else(|error| Seen::NotYet(error.to_string()), |_| Seen::Yes(())))
        })
        .await
    }

    /// A RunConfig that counts in it. Sessions are kept elsewhere in these tests.
    fn limits(&self, config: Value) -> Value {
        let parameters = json!({ "namespace": "ns", "server_name": "srv", "config": config,
            "redis_addr": format!("127.0.0.1:{}", self.port) });
        json!({ "middleware_configs": [{ "type": "ratelimit", "parameters": parameters }] })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ended = process.kill();
            let _status = process.wait();
        }
    }
}

#[tokio::test]
async fn proxies_share_their_limits_in_redis() -> Result<()> {
    let mut redis = Redis::later()?;
    redis.start().await?;
    let config = redis.limits(json!({ "shared": bucket(3) }));
    let (one, other) = (proxy(config.clone()).await?, proxy(config).await?);
    let (one, other) = (one.caller(), other.caller());
    assert_eq!((call(&one, "a").await?, call(&other, "a").await?, call(&one, "a").await?), (OK, OK, OK));
    assert_eq!((call(&one, "a").await?, call(&other, "a").await?), (REFUSED, REFUSED));
    Ok(())
}

#[tokio::test]
async fn without_redis_calls_pass_and_are_counted_as_such_or_are_refused_where_that_is_asked_for() -> Result<()> {
    let mut redis = Redis::later()?;
    let metrics = Metrics::new("srv", "streamable-http");
    let how = How { rate_limits: metrics.rate_limits().clone(), ..How::default() };
    let open = proxy_with(redis.limits(json!({ "shared": bucket(1) })), how).await?;
    let closed = proxy(redis.limits(json!({ "shared": bucket(1), "failurePolicy": "fail" }))).await?;
    for _ in 0..3 {
        assert_eq!(call(&open.caller(), "a").await?, OK);
    }
    let refused = closed.caller().ask(json!(1), "tools/call", json!({ "name": "a" })).await?;
    assert_eq!(
        (refused.status, refused.message()?["error"]["code"].clone()),
        (StatusCode::SERVICE_UNAVAILABLE, json!(-32603))
    );
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(closed.caller().ask(json!(1), "ping", json!({})).await?.status, OK, "what is not limited passes");
    assert_eq!((open.got().len(), closed.got().len()), (3, 1));
    let has = |line: &str| metrics.page().lines().any(|found| found == line);
    assert!(has(r#"toolhive_rate_limit_fail_open_total{namespace="ns",server="srv"} 3"#), "{}", metrics.page());
    let errors = r#"toolhive_rate_limit_redis_errors_total{namespace="ns",server="srv",error_type="connection"} 3"#;
    assert!(has(errors), "{}", metrics.page());
    // As soon as it is there, it is used.
    redis.start().await?;
    eventually("the limit holds", PATIENCE, || async {
        let status = call(&open.caller(), "a").await?;
        Ok(if status == REFUSED { Seen::Yes(()) } else { Seen::NotYet(status.to_string()) })
    })
    .await?;
    let labels = r#"namespace="ns",server="srv",decision="rejected",scope="shared_server",operation_type="tool""#;
    assert!(has(&format!("toolhive_rate_limit_decisions_total{{{labels}}} 1")), "{}", metrics.page());
    assert_eq!(call(&closed.caller(), "a").await?, REFUSED, "the bucket is the same");
    Ok(())
}
