//! What an event says about a request that a middleware answered or changed, and about who sent it.

use std::sync::Arc;

use anyhow::Result;
use http::Response;
use serde_json::{Value, json};
use skep_net::Body;

use super::{Log, essence, extra, merged};
use crate::client::request;
use crate::guarded::{as_user, guarded, policies, token};
use crate::outgoing::{issue_none, served, signing_with, token_endpoint};
use crate::web::{Got, How, Web, backend};
use crate::webhooks::{Hook, patch, proxy};

/// What no event may hold: a text of a webhook.
const TEXT: &str = "s3cret words";

fn call(tool: &str) -> String {
    request(json!(1), "tools/call", json!({ "name": tool, "arguments": {} })).to_string()
}

#[tokio::test]
async fn an_answer_of_a_webhook_names_it_and_its_cause_and_never_its_words() -> Result<()> {
    let denial = json!({ "allowed": false, "message": TEXT, "reason": TEXT });
    let broken = patch(json!([{ "op": "remove", "path": "/mcp_request/params/none" }]));
    for (kind, status, body, outcome, category) in [
        ("validating", 200, denial.clone(), "denied", "denied"),
        ("validating", 422, json!({}), "denied", "unprocessable"),
        ("validating", 500, json!(TEXT), "denied", "status"),
        ("mutating", 200, denial, "denied", "denied"),
        ("mutating", 422, json!({}), "denied", "unprocessable"),
        ("mutating", 200, json!(TEXT), "error", "response"),
        ("mutating", 200, broken, "error", "patch"),
    ] {
        let log = Log::new()?;
        let hook = Hook::new(vec![(status, body.clone())]).await?;
        let list = format!("{kind}_webhooks");
        let web = proxy(merged(log.config(json!({})), json!({ list: [hook.entry("fail")] }))).await?;
        web.caller().post(call("look")).await?;
        let event = log.last(1).await?;
        let place = format!("{kind} {status} {body}: {event}");
        assert_eq!(essence(&event), ["mcp_tool_call", outcome, "tools/call", "look"], "{place}");
        assert_eq!(extra(&event, "denied_by"), &json!(format!("{kind}-webhook")), "{place}");
        assert_eq!(extra(&event, "denial_reason"), &json!(format!("{kind} webhook `hook`: {category}")), "{place}");
        assert!(!std::fs::read_to_string(log.path())?.contains(TEXT), "{place}");
        assert!(web.got().is_empty(), "{place}");
    }
    Ok(())
}

#[tokio::test]
async fn an_event_shows_the_request_that_was_sent_and_which_webhooks_made_it() -> Result<()> {
    let log = Log::new()?;
    let rename = |name: &str| patch(json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": name }]));
    let (same, first, second) = (
        Hook::new(vec![(200, json!({ "allowed": true }))]).await?,
        Hook::new(vec![(200, rename("look"))]).await?,
        Hook::new(vec![(200, rename("delete")), (200, rename("safe"))]).await?,
    );
    let named = |hook: &Hook, name: &str| {
        let mut entry = hook.entry("fail");
        entry["name"] = json!(name);
        entry
    };
    let hooks = json!([named(&same, "same"), named(&first, "first"), named(&second, "second")]);
    let forbid = policies(&[
        "permit(principal, action, resource);",
        r#"forbid(principal, action, resource == Tool::"delete");"#,
    ]);
    let config = log.config(json!({ "includeRequestData": true }));
    let web = guarded(merged(merged(config, forbid), json!({ "mutating_webhooks": hooks }))).await?;
    let mutated_by = json!(["first", "second"]);
    as_user(&web, "ada").post(call("typed")).await?;
    let event = log.last(1).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "denied", "tools/call", "delete"], "{event}");
    assert_eq!((extra(&event, "mutated_by"), extra(&event, "denied_by")), (&mutated_by, &json!("authorization")));
    as_user(&web, "ada").post(call("typed")).await?;
    let event = log.last(2).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "success", "tools/call", "safe"], "{event}");
    assert_eq!(extra(&event, "mutated_by"), &mutated_by);
    assert_eq!(event["data"]["request"]["params"]["name"], "safe");
    Ok(())
}

#[tokio::test]
async fn an_answer_of_a_rate_limit_names_the_scope() -> Result<()> {
    let log = Log::new()?;
    let limits = json!({ "shared": { "maxTokens": 1, "refillPeriod": "1h0m0s" } });
    let limits = json!({ "rate_limit_config": limits, "rate_limit_namespace": "ns" });
    let web = proxy(merged(log.config(json!({})), limits)).await?;
    web.caller().post(call("look")).await?;
    assert!(extra(&log.last(1).await?, "denied_by").is_null());
    web.caller().post(call("look")).await?;
    let event = log.last(2).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "failure", "tools/call", "look"]);
    assert_eq!(
        (extra(&event, "denied_by"), extra(&event, "denial_reason")),
        (&json!("ratelimit"), &json!("rate limit of scope shared_server"))
    );
    Ok(())
}

#[tokio::test]
async fn credentials_that_cannot_be_had_are_recorded_and_no_token_is() -> Result<()> {
    let log = Log::new()?;
    let (url, _) = token_endpoint(issue_none).await?;
    let exchange = json!({ "token_exchange_config": { "token_url": url, "audience": "tools" } });
    let web = proxy(merged(log.config(json!({})), exchange)).await?;
    let client = web.caller().with("authorization", "Bearer t0ken");
    client.post(call("look")).await?;
    let event = log.last(1).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "denied", "tools/call", "look"], "{event}");
    assert_eq!(extra(&event, "denied_by"), "tokenexchange");
    assert_eq!(extra(&event, "denial_reason"), "the token endpoint refused the token");
    assert!(!std::fs::read_to_string(log.path())?.contains("t0ken"));

    let log = Log::new()?;
    let mapping = json!([{ "claim": "none", "role_arn": "arn:aws:iam::123456789012:role/r" }]);
    let sts = json!({ "fallback_role_arn": "", "role_mappings": mapping });
    let (web, _) = signing_with(sts, log.config(json!({})), served).await?;
    web.caller().with("authorization", &format!("Bearer {}", token("ada"))).post(call("look")).await?;
    let event = log.last(1).await?;
    assert_eq!(essence(&event), ["mcp_tool_call", "denied", "tools/call", "look"], "{event}");
    assert_eq!(
        (extra(&event, "denied_by"), extra(&event, "denial_reason")),
        (&json!("awssts"), &json!("Failed to determine IAM role"))
    );
    Ok(())
}

/// A proxy whose issuer introspects tokens: a token is the claims that it stands for.
async fn introspecting(log: &Log, more: Value) -> Result<Web> {
    let introspect = |got: &Got| {
        let token = url::form_urlencoded::parse(&got.body).find(|(name, _)| name == "token");
        let token = token.map(|(_, token)| token.into_owned()).unwrap_or_default();
        let mut claims =
            json!({ "active": true, "iss": "https://issuer.example", "aud": "mcp", "exp": 4_102_444_800_u64 });
        for pair in token.split(',') {
            let (name, value) = pair.split_once('=').unwrap();
            claims[name] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        }
        Response::builder().header("content-type", "application/json").body(Body::full(claims.to_string())).unwrap()
    };
    let issuer = backend("127.0.0.1:0".parse()?, Arc::new(introspect), Arc::default()).await?;
    let oidc = json!({
        "Issuer": "https://issuer.example", "Audience": "mcp", "JWKSURL": format!("http://{issuer}/keys"),
        "IntrospectionURL": format!("http://{issuer}/introspect"), "AllowPrivateIP": true, "InsecureAllowHTTP": true,
    });
    let config = merged(merged(log.config(more), json!({ "oidc_config": oidc })), json!({}));
    let config = super::run_config(config)?;
    Box::pin(Web::with(How { config, ..How::default() }, served)).await
}

#[tokio::test]
async fn a_user_is_named_by_the_first_claim_that_names_one() -> Result<()> {
    let log = Log::new()?;
    let web = introspecting(&log, json!({})).await?;
    for (index, (claims, user)) in [
        ("sub=u,name=Ada,preferred_username=ada,email=ada@example.com", "Ada"),
        ("sub=u,name=\"\",preferred_username=ada,email=ada@example.com", "ada"),
        ("sub=u,name=7,email=ada@example.com", "ada@example.com"),
        ("sub=u", "anonymous"),
    ]
    .into_iter()
    .enumerate()
    {
        web.caller().with("authorization", &format!("Bearer {claims}")).post(call("look")).await?;
        let event = log.last(index + 1).await?;
        assert_eq!((&event["subjects"]["user"], &event["subjects"]["user_id"]), (&json!(user), &json!("u")), "{event}");
    }
    Ok(())
}

#[tokio::test]
async fn an_event_names_who_acts_for_whom_as_far_as_that_can_be_read() -> Result<()> {
    let log = Log::new()?;
    let web = introspecting(&log, json!({ "maxDelegationDepth": 1 })).await?;
    for (index, (act, delegation)) in [
        (r#"{"sub":"agent"}"#, json!({ "chain": [{ "sub": "agent" }] })),
        (r#"["agent"]"#, json!({ "malformed": true, "malformedReason": "act_not_object" })),
    ]
    .into_iter()
    .enumerate()
    {
        web.caller().with("authorization", &format!("Bearer sub=u,act={act}")).post(call("look")).await?;
        let event = log.last(index + 1).await?;
        for (name, value) in delegation.as_object().unwrap() {
            assert_eq!(&event["delegation"][name], value, "{event}");
        }
    }
    Ok(())
}
