//! `subscriptions/listen` under a policy: a client subscribes to what it may read, and to nothing else, whichever era the server speaks.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::client::{BOTH, MODERN, TestClient, modern};
use crate::forward::answer;
use crate::guarded::{as_user, guarded_config, policies};
use crate::web::{Answer, Got, How, Web, backend};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// `ada` may read what is seen, and nothing else.
const SEEN: &str = r#"permit(principal == Client::"ada", action == Action::"read_resource", resource) when { resource.uri like "file:///seen*" };"#;

/// A server of one era that grants every subscription.
fn server(is_modern_server: bool) -> impl Fn(&Got) -> Response<Body> + Send + Sync + 'static {
    move |got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let id = &message["id"];
        let is_modern = got.headers.get("mcp-protocol-version").is_some_and(|version| version == MODERN);
        if is_modern != is_modern_server
            && message["method"] != "initialize"
            && got.headers.get("mcp-session-id").is_none()
        {
            let error = json!({ "code": if is_modern_server { -32022 } else { -32000 }, "message": "no", "data": { "supported": [MODERN] } });
            return answer(400, &[], json!({ "jsonrpc": "2.0", "id": if is_modern_server { id.clone() } else { json!(null) }, "error": error }).to_string());
        }
        let capabilities = json!({ "resources": { "subscribe": true, "listChanged": true } });
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let result = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": { "name": "s", "version": "1" } });
                return answer(
                    200,
                    &[("mcp-session-id", "theirs")],
                    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
                );
            }
            "server/discover" => {
                json!({ "supportedVersions": [MODERN], "capabilities": capabilities, "resultType": "complete" })
            }
            "subscriptions/listen" => {
                let granted = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": { "_meta": { SUBSCRIPTION: id }, "notifications": message["params"]["notifications"] } });
                return stream(format!("data: {granted}\n\n"));
            }
            _ if got.method == Method::GET => return stream(String::new()),
            _ if id.is_null() => return answer(202, &[], ""),
            _ => json!({}),
        };
        answer(200, &[], json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
    }
}

fn stream(events: String) -> Response<Body> {
    Response::builder().header("content-type", "text/event-stream").body(Body::full(events)).unwrap()
}

fn subscriber(web: &Web, user: &str) -> TestClient {
    let client = as_user(web, user).taking(BOTH);
    client.with("mcp-protocol-version", MODERN).with("mcp-method", "subscriptions/listen")
}

fn listen(notifications: &Value) -> Value {
    let mut message = modern(json!("mine"), "subscriptions/listen", MODERN);
    message["params"] = json!({ "_meta": message["params"]["_meta"], "notifications": notifications });
    message
}

fn uris(uris: &[&str]) -> Value {
    json!({ "resourceSubscriptions": uris, "resourcesListChanged": true })
}

/// What reached the server about resources.
fn reached(web: &Web) -> String {
    let bodies = web.got().into_iter().map(|got| String::from_utf8_lossy(&got.body).into_owned());
    bodies.filter(|body| body.contains("file:///") || body.contains("subscriptions/listen")).collect()
}

#[tokio::test]
async fn a_client_subscribes_to_what_it_may_read_and_to_nothing_else() -> Result<()> {
    for is_modern in [true, false] {
        let config = guarded_config(policies(&[SEEN])).await?;
        let web = Box::pin(Web::with(How { config, bridged: true, ..How::default() }, server(is_modern))).await?;
        for (user, wanted) in [
            ("ada", uris(&["file:///hidden"])),
            ("ada", uris(&["file:///seen", "file:///hidden"])),
            ("ada", uris(&["file:///hidden", "file:///seen"])),
            ("ada", uris(&["file:///SEEN"])),
            ("bob", uris(&["file:///seen"])),
            ("ada", json!({ "resourceSubscriptions": "file:///seen" })),
            ("ada", json!({ "resourceSubscriptions": ["file:///seen", { "uri": "file:///hidden" }] })),
            ("ada", json!([{ "resourceSubscriptions": ["file:///seen"] }])),
            ("ada", json!(null)),
        ] {
            let refused = subscriber(&web, user).post(listen(&wanted).to_string()).await?;
            let expected =
                json!({ "jsonrpc": "2.0", "id": "mine", "error": { "code": 403, "message": "Unauthorized" } });
            assert_eq!((refused.status, refused.message()?), (StatusCode::FORBIDDEN, expected), "{user} {wanted}");
        }
        let allowed = listen(&uris(&["file:///seen"])).to_string();
        for two_ways in [
            allowed.replace(
                r#""resourceSubscriptions":"#,
                r#""resourceSubscriptions":["file:///hidden"],"resourceSubscriptions":"#,
            ),
            allowed.replace(
                r#""resourceSubscriptions":"#,
                r#""ResourceSubscriptions":["file:///hidden"],"resourceSubscriptions":"#,
            ),
            allowed.replace("resourceSubscriptions", r"resourceSub\u017fcriptions"),
            allowed.replace(
                r#""notifications":"#,
                r#""Notifications":{"resourceSubscriptions":["file:///hidden"]},"notifications":"#,
            ),
        ] {
            let refused = subscriber(&web, "ada").post(two_ways.clone()).await?;
            assert!(refused.status.is_client_error() && !refused.text().contains("file:///"), "{two_ways}");
        }
        assert_eq!(reached(&web), "", "nothing of it reached the server");
        let mut heard = subscriber(&web, "ada").events(Method::POST, "/mcp", allowed).await?;
        let granted = heard.message().await?;
        assert_eq!(granted["params"]["notifications"]["resourceSubscriptions"], json!(["file:///seen"]), "{is_modern}");
        let seen = reached(&web);
        assert!(seen.contains("file:///seen") && !seen.contains("hidden"), "{seen}");
        // Of lists, no resource is named.
        let mut heard = subscriber(&web, "bob")
            .events(Method::POST, "/mcp", listen(&json!({ "resourcesListChanged": true })).to_string())
            .await?;
        assert_eq!(heard.message().await?["params"]["notifications"], json!({ "resourcesListChanged": true }));
    }
    Ok(())
}

#[tokio::test]
async fn a_decision_point_is_asked_about_every_resource_of_a_subscription() -> Result<()> {
    let questions: Arc<Mutex<Vec<Got>>> = Arc::default();
    let asked = |got: &Got| serde_json::from_slice::<Value>(&got.body).unwrap_or_default();
    let decides: Answer = Arc::new(move |got: &Got| {
        let is_hidden = asked(got)["resource"].as_str().unwrap_or_default().contains("hidden");
        Response::new(Body::full(json!({ "allow": !is_hidden }).to_string()))
    });
    let point = backend("127.0.0.1:0".parse()?, decides, questions.clone()).await?;
    let pdp = json!({ "http": { "url": format!("http://{point}") }, "claim_mapping": "standard" });
    let config = guarded_config(json!({ "authz_config": { "version": "1.0", "type": "httpv1", "pdp": pdp } })).await?;
    let web = Box::pin(Web::with(How { config, bridged: true, ..How::default() }, server(true))).await?;
    let refused = subscriber(&web, "ada").post(listen(&uris(&["file:///a", "file:///hidden"])).to_string()).await?;
    assert_eq!((refused.status, reached(&web)), (StatusCode::FORBIDDEN, String::new()));
    let wanted = listen(&uris(&["file:///a", "file:///b"])).to_string();
    let mut heard = subscriber(&web, "ada").events(Method::POST, "/mcp", wanted).await?;
    assert_eq!(
        heard.message().await?["params"]["notifications"]["resourceSubscriptions"],
        json!(["file:///a", "file:///b"])
    );
    let mut about: Vec<(Value, Value)> = questions
        .lock()
        .unwrap()
        .iter()
        .map(asked)
        .map(|asked| (asked["operation"].clone(), asked["resource"].clone()))
        .collect();
    about.sort_by_key(|(_, resource)| resource.to_string());
    about.dedup();
    let read = |uri: &str| (json!("mcp:resource:read"), json!(format!("mrn:mcp:srv:resource:{uri}")));
    assert_eq!(about, [read("file:///a"), read("file:///b"), read("file:///hidden")]);
    Ok(())
}
