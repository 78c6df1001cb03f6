//! Authentication and authorization in front of a server: who gets in, and what they see. Whatever is refused never reaches the server.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;

use crate::client::{TestClient, request};
use crate::web::{Got, How, Web, backend};

/// Keys and tokens that PyJWT made.
fn vectors() -> Value {
    serde_json::from_str(include_str!("tokens.json")).unwrap()
}

fn token(name: &str) -> String {
    vectors()["tokens"][name].as_str().unwrap().to_owned()
}

/// A server that lists two tools and answers every other request.
fn tools(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let tool =
        |name: &str| json!({ "name": name, "inputSchema": {}, "annotations": { "readOnlyHint": name == "look" } });
    let result = match message["method"].as_str() {
        Some("tools/list") => json!({ "tools": [tool("look"), tool("delete")], "nextCursor": "c", "x": 1.50 }),
        Some("resources/templates/list") => {
            json!({ "resourceTemplates": [{ "uriTemplate": "db://{t}", "name": "t" }] })
        }
        _ => json!({ "content": [] }),
    };
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
}

/// A proxy that expects tokens of an issuer whose keys are on loopback.
pub(crate) async fn guarded(more: Value) -> Result<Web> {
    let keys = json!({ "keys": vectors()["keys"] }).to_string();
    let answer = move |_: &Got| Response::new(Body::full(keys.clone()));
    let issuer = backend("127.0.0.1:0".parse()?, Arc::new(answer), Arc::default()).await?;
    let mut config = json!({
        "name": "srv",
        "oidc_config": {
            "Issuer": "https://issuer.example", "Audience": "mcp", "JWKSURL": format!("http://{issuer}/keys"),
            "AllowPrivateIP": true, "InsecureAllowHTTP": true, "ResourceURL": "https://tools.example/mcp",
        },
    });
    for (name, value) in more.as_object().context("an object")? {
        config[name] = value.clone();
    }
    let config = RunConfig::from_slice(config.to_string().as_bytes())?;
    Web::with(How { config, ..How::default() }, tools).await
}

fn policies(policies: &[&str]) -> Value {
    json!({ "authz_config": { "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies } } })
}

pub(crate) fn as_user(web: &Web, name: &str) -> TestClient {
    web.caller().with("authorization", &format!("Bearer {}", token(name)))
}

#[tokio::test]
async fn a_request_without_a_valid_token_never_reaches_the_server() -> Result<()> {
    let web = guarded(json!({})).await?;
    let ping = || request(json!(1), "ping", json!({})).to_string();
    let realm = r#"Bearer realm="https://issuer.example", resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp""#;
    for (header, code, text, body) in [
        (None, "invalid_request", "authorization header required", "authorization header required"),
        (
            Some("Basic YTpi".to_owned()),
            "invalid_request",
            "invalid authorization header format, expected 'Bearer <token>'",
            "invalid authorization header format, expected 'Bearer <token>'",
        ),
        (
            Some(format!("Bearer {}", token("audience"))),
            "invalid_token",
            "invalid audience",
            "Invalid token: invalid audience",
        ),
        (
            Some(format!("Bearer {}", token("issuer"))),
            "invalid_token",
            "invalid issuer",
            "Invalid token: invalid issuer",
        ),
        (
            Some(format!("Bearer {}", token("expired"))),
            "invalid_token",
            "token expired",
            "Invalid token: token expired",
        ),
        (
            Some(format!("Bearer {}", token("forged"))),
            "invalid_token",
            "failed to parse token: token signature is invalid",
            "Invalid token: failed to parse token: token signature is invalid",
        ),
        (
            Some(format!("Bearer {}", token("nameless"))),
            "invalid_token",
            "Invalid authentication claims",
            "Invalid authentication claims",
        ),
    ] {
        let client = match &header {
            Some(header) => web.caller().with("authorization", header),
            None => web.caller(),
        };
        let refused = client.post(ping()).await?;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{header:?}");
        let challenge = refused.headers["www-authenticate"].to_str()?.to_owned();
        assert_eq!(challenge, format!(r#"{realm}, error="{code}", error_description="{text}""#));
        assert_eq!(refused.message()?, json!({ "error": code, "error_description": body }));
    }
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_client_with_a_token_gets_in_and_its_token_goes_no_further() -> Result<()> {
    let web = guarded(json!({})).await?;
    for _ in 0..2 {
        let answer = as_user(&web, "ada").ask(json!(1), "ping", json!({})).await?;
        assert_eq!(answer.status, StatusCode::OK);
    }
    let got = web.got();
    assert_eq!(got.len(), 2);
    assert!(got.iter().all(|one| !one.headers.contains_key("authorization")));
    Ok(())
}

#[tokio::test]
async fn clients_without_a_token_can_read_where_to_get_one() -> Result<()> {
    let web = guarded(json!({})).await?;
    let found = web.caller().whole(Method::GET, "/.well-known/oauth-protected-resource/mcp", "").await?;
    assert_eq!(found.status, StatusCode::OK);
    let expected = json!({ "resource": "https://tools.example/mcp", "authorization_servers": ["https://issuer.example"],
        "bearer_methods_supported": ["header"], "scopes_supported": ["openid"] });
    assert_eq!(found.message()?, expected);
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn each_client_sees_and_calls_only_its_own_tools() -> Result<()> {
    let web = guarded(policies(&[
        r#"permit(principal in THVGroup::"dev", action, resource in MCP::"srv");"#,
        r#"permit(principal, action == Action::"call_tool", resource) when { resource has readOnlyHint && resource.readOnlyHint };"#,
    ]))
    .await?;
    for (user, tools, templates) in [("ada", &["look", "delete"][..], 1), ("bob", &["look"], 0)] {
        let client = as_user(&web, user);
        let listed = client.ask(json!(1), "tools/list", json!({})).await?;
        let result = listed.message()?["result"].clone();
        let names: Vec<_> =
            result["tools"].as_array().context("a list")?.iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, tools, "{user}");
        assert!(
            listed.text().contains(r#""nextCursor":"c""#) && listed.text().contains("1.5"),
            "the rest stays: {}",
            listed.text()
        );
        let listed = client.ask(json!(1), "resources/templates/list", json!({})).await?;
        assert_eq!(
            listed.message()?["result"]["resourceTemplates"].as_array().map(Vec::len),
            Some(templates),
            "{user}"
        );
    }
    let called = |user: &'static str, tool: &'static str| {
        let web = &web;
        async move {
            let answer =
                as_user(web, user).ask(json!("x"), "tools/call", json!({ "name": tool, "arguments": {} })).await?;
            anyhow::Ok((answer.status, answer.message()?))
        }
    };
    let before = web.got().len();
    let denied = json!({ "jsonrpc": "2.0", "id": "x", "error": { "code": 403, "message": "Unauthorized" } });
    assert_eq!(called("bob", "delete").await?, (StatusCode::FORBIDDEN, denied));
    assert_eq!(web.got().len(), before, "it never reached the server");
    for (user, tool) in [("bob", "look"), ("ada", "delete"), ("ada", "look")] {
        assert_eq!(called(user, tool).await?.0, StatusCode::OK, "{user} {tool}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_authorized_is_denied() -> Result<()> {
    let web = guarded(policies(&["permit(principal, action, resource);"])).await?;
    let client = as_user(&web, "ada");
    for method in ["tasks/get", "sampling/createMessage", "no/such/method", "Tools/call"] {
        let answer = client.ask(json!(7), method, json!({ "taskId": "a", "name": "look" })).await?;
        assert_eq!((answer.status, answer.message()?["id"].clone()), (StatusCode::FORBIDDEN, json!(7)), "{method}");
    }
    let told = client.tell("no/such/notification", json!({})).await?;
    assert_eq!((told.status, told.message()?.get("id")), (StatusCode::FORBIDDEN, None));
    for body in ["", "x", r#""text""#] {
        let answer = client.post(body.to_owned()).await?;
        assert_eq!(
            (answer.status, answer.text()),
            (StatusCode::BAD_REQUEST, "Invalid or malformed MCP request"),
            "{body}"
        );
    }
    let hidden = request(json!(8), "tools/call", json!({ "name": "look" })).to_string();
    assert_eq!(client.whole(Method::PUT, "/mcp", hidden).await?.status, StatusCode::BAD_REQUEST);
    assert!(web.got().is_empty());
    // A client's answer to a request of the server is let through.
    let answered = client.post(json!({ "jsonrpc": "2.0", "id": 1, "result": {} }).to_string()).await?;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(web.got().len(), 1);
    Ok(())
}
