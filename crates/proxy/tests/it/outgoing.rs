//! Credentials for the server: the client's own token never reaches it, and no request does without the one that is configured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use skep_auth::Secret;
use skep_auth::aws::AwsCredentials;
use skep_auth::aws::sigv4::{Scope, Unsigned, sign};
use skep_net::Body;
use skep_runconfig::RunConfig;
use tokio::task::JoinSet;
use url::form_urlencoded;

use crate::client::{TestClient, request};
use crate::guarded::{guarded_config, token};
use crate::web::{Got, How, Web, backend};

pub(crate) type Seen = Arc<Mutex<Vec<Got>>>;

/// A token endpoint that issues `<subject>-<number>`, and what it was asked.
pub(crate) async fn token_endpoint(
    answer: impl Fn(&str, usize) -> Response<Body> + Send + Sync + 'static,
) -> Result<(String, Seen)> {
    let (seen, issued) = (Seen::default(), AtomicUsize::new(0));
    let respond = move |got: &Got| {
        let subject = form_urlencoded::parse(&got.body).find(|(name, _)| name == "subject_token");
        let subject = subject.map(|(_, value)| value.into_owned()).unwrap_or_default();
        answer(&subject, issued.fetch_add(1, Ordering::Relaxed) + 1)
    };
    let address = backend("127.0.0.1:0".parse()?, Arc::new(respond), seen.clone()).await?;
    Ok((format!("http://{address}/token"), seen))
}

fn issue(subject: &str, number: usize) -> Response<Body> {
    let body = json!({
        "access_token": format!("{subject}-{number}"), "token_type": "Bearer",
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "expires_in": 3600,
    });
    Response::new(Body::full(body.to_string()))
}

/// A token endpoint that refuses every token.
pub(crate) fn issue_none(_: &str, _: usize) -> Response<Body> {
    Response::builder().status(400).body(Body::full(json!({ "error": "invalid_grant" }).to_string())).unwrap()
}

pub(crate) fn served(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }).to_string();
    Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
}

/// A proxy that exchanges the tokens of its clients.
async fn exchanging(
    url: &str,
    more: Value,
    answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static,
) -> Result<Web> {
    let mut exchange = json!({ "token_url": url, "client_id": "id", "client_secret": "s", "audience": "tools" });
    for (name, value) in more.as_object().into_iter().flatten() {
        exchange[name] = value.clone();
    }
    let config = json!({ "name": "srv", "token_exchange_config": exchange }).to_string();
    let config = RunConfig::from_slice(config.as_bytes())?;
    Box::pin(Web::with(How { config, ..How::default() }, answer)).await
}

fn as_user(web: &Web, token: &str) -> TestClient {
    web.caller().with("authorization", &format!("Bearer {token}"))
}

async fn ping(client: TestClient) -> Result<crate::client::Answer> {
    client.post(request(json!(1), "ping", json!({})).to_string()).await
}

fn sent(web: &Web, header: &str) -> Vec<Option<String>> {
    let value = |got: &Got| got.headers.get(header).map(|value| value.to_str().unwrap().to_owned());
    web.got().iter().map(value).collect()
}

#[tokio::test]
async fn a_token_is_exchanged_once_and_the_server_sees_only_the_new_one() -> Result<()> {
    let (url, seen) = token_endpoint(issue).await?;
    let web = exchanging(&url, json!({}), served).await?;
    for user in ["ada", "ada", "bob", "ada"] {
        assert_eq!(ping(as_user(&web, user)).await?.status, StatusCode::OK);
    }
    let expected = ["Bearer ada-1", "Bearer ada-1", "Bearer bob-2", "Bearer ada-1"];
    assert_eq!(sent(&web, "authorization"), expected.map(|value| Some(value.to_owned())));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].headers["authorization"], "Basic aWQ6cw==");
    assert_eq!(seen[0].headers["content-type"], "application/x-www-form-urlencoded");
    Ok(())
}

#[tokio::test]
async fn an_exchanged_token_does_not_outlive_the_token_of_an_unauthenticated_client() -> Result<()> {
    // {"exp":1} and {"exp":9999999999}, and no JSON Web Token.
    for (subject, exchanges) in [("e30.eyJleHAiOjF9.x", 2), ("e30.eyJleHAiOjk5OTk5OTk5OTl9.x", 1), ("e30.x", 1)] {
        let (url, seen) = token_endpoint(issue).await?;
        let web = exchanging(&url, json!({}), served).await?;
        for _ in 0..2 {
            assert_eq!(ping(as_user(&web, subject)).await?.status, StatusCode::OK);
        }
        assert_eq!(seen.lock().unwrap().len(), exchanges, "{subject}");
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_come_at_once_cause_one_exchange() -> Result<()> {
    let (url, seen) = token_endpoint(issue).await?;
    let web = exchanging(&url, json!({}), served).await?;
    let mut calls: JoinSet<Result<crate::client::Answer>> = (0..20).map(|_| ping(as_user(&web, "ada"))).collect();
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer??.status, StatusCode::OK);
    }
    assert_eq!(seen.lock().unwrap().len(), 1);
    assert!(sent(&web, "authorization").iter().all(|value| value.as_deref() == Some("Bearer ada-1")));
    Ok(())
}

#[tokio::test]
async fn with_another_header_the_token_of_the_client_still_goes_no_further() -> Result<()> {
    let (url, _) = token_endpoint(issue).await?;
    let custom = json!({ "header_strategy": "custom", "external_token_header_name": "X-Upstream-Token" });
    let web = exchanging(&url, custom, served).await?;
    assert_eq!(ping(as_user(&web, "ada")).await?.status, StatusCode::OK);
    assert_eq!(sent(&web, "x-upstream-token"), [Some("Bearer ada-1".to_owned())]);
    assert_eq!(sent(&web, "authorization"), [None]);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_exchanged_never_reaches_the_server() -> Result<()> {
    type Respond = fn(&str, usize) -> Response<Body>;
    let hostile: [(&str, Respond); 9] = [
        ("an error status", |_, _| Response::builder().status(500).body(Body::full("secret trace")).unwrap()),
        ("a refusal", |_, _| Response::builder().status(400).body(Body::full(r#"{"error":"invalid_grant"}"#)).unwrap()),
        ("an error with status 200", |_, _| {
            let body = r#"{"error":"x","access_token":"t","token_type":"Bearer","issued_token_type":"u"}"#;
            Response::new(Body::full(body))
        }),
        ("no JSON", |_, _| Response::new(Body::full("<html>"))),
        ("a list", |_, _| Response::new(Body::full("[]"))),
        ("no token", |_, _| Response::new(Body::full(r#"{"token_type":"Bearer","issued_token_type":"u"}"#))),
        ("a token that splits the header", |_, _| {
            let token = json!({ "access_token": "a\r\nx: y", "token_type": "Bearer", "issued_token_type": "u" });
            Response::new(Body::full(token.to_string()))
        }),
        ("a response over the limit", |_, _| Response::new(Body::full("x".repeat(2 << 20)))),
        ("a redirect to another host", |_, _| {
            let found = Response::builder().status(307).header("location", "http://127.0.0.2:9/token");
            found.body(Body::empty()).unwrap()
        }),
    ];
    for (name, respond) in hostile {
        let (url, _) = token_endpoint(respond).await?;
        let web = exchanging(&url, json!({}), served).await?;
        let refused = ping(as_user(&web, "ada")).await?;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{name}");
        assert_eq!(refused.body, "Token exchange failed", "{name}");
        assert!(web.got().is_empty(), "{name}");
    }
    // No server listens there.
    let web = exchanging("http://127.0.0.1:9/token", json!({}), served).await?;
    assert_eq!(ping(as_user(&web, "ada")).await?.status, StatusCode::UNAUTHORIZED);
    // Without a token there is nothing to exchange.
    assert_eq!(ping(web.caller()).await?.status, StatusCode::UNAUTHORIZED);
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_exchanged_again_once() -> Result<()> {
    let (url, seen) = token_endpoint(issue).await?;
    let refuse = |_: &Got| Response::builder().status(401).body(Body::empty()).unwrap();
    let web = exchanging(&url, json!({}), refuse).await?;
    for _ in 0..4 {
        assert_eq!(ping(as_user(&web, "ada")).await?.status, StatusCode::UNAUTHORIZED);
    }
    let expected = ["Bearer ada-1", "Bearer ada-2", "Bearer ada-2", "Bearer ada-2"];
    assert_eq!(sent(&web, "authorization"), expected.map(|value| Some(value.to_owned())));
    assert_eq!(seen.lock().unwrap().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused_at_the_start() {
    for (more, problem) in [
        (json!({ "token_url": "" }), "token_url is missing"),
        (json!({ "header_strategy": "custom" }), "external_token_header_name is missing"),
        (json!({ "header_strategy": "both" }), "header_strategy `both` is unknown"),
        (json!({ "header_strategy": "custom", "external_token_header_name": "Host" }), "`Host` cannot be set"),
    ] {
        let error = exchanging("http://127.0.0.1:9/", more, served).await.err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

const ROLE: &str = "arn:aws:iam::123456789012:role/tools";

/// An endpoint of AWS STS that opens a session for every caller, and a proxy whose server expects signed requests.
async fn signing(sts: Value, answer: fn(&Got) -> Response<Body>) -> Result<(Web, Seen)> {
    signing_with(sts, json!({}), answer).await
}

/// The same with more in its RunConfig.
pub(crate) async fn signing_with(
    sts: Value,
    mut more: Value,
    answer: fn(&Got) -> Response<Body>,
) -> Result<(Web, Seen)> {
    let (seen, issued) = (Seen::default(), AtomicUsize::new(0));
    let respond = move |_: &Got| {
        let number = issued.fetch_add(1, Ordering::Relaxed) + 1;
        let credentials = format!(
            "<AccessKeyId>ASIA{number}</AccessKeyId><SecretAccessKey>s{number}</SecretAccessKey>\
             <SessionToken>t{number}</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>"
        );
        Response::new(Body::full(credentials))
    };
    let address = backend("127.0.0.1:0".parse()?, Arc::new(respond), seen.clone()).await?;
    let mut config = json!({ "region": "eu-central-1", "service": "aws-mcp", "fallback_role_arn": ROLE });
    for (name, value) in sts.as_object().into_iter().flatten() {
        config[name] = value.clone();
    }
    more["aws_sts_config"] = config;
    more["remote_url"] = json!("http://replaced.example/base/mcp?v=1");
    let how = How {
        config: guarded_config(more).await?,
        remote: Some("/base/mcp?v=1"),
        environment: [("AWS_ENDPOINT_URL_STS".to_owned(), format!("http://{address}/"))].into(),
        ..How::default()
    };
    Ok((Box::pin(Web::with(how, answer)).await?, seen))
}

#[tokio::test]
async fn requests_to_aws_are_signed_with_the_session_of_the_clients_role() -> Result<()> {
    let (web, seen) = signing(json!({}), served).await?;
    for _ in 0..2 {
        assert_eq!(ping(as_user(&web, &token("ada"))).await?.status, StatusCode::OK);
    }
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 1, "a session is used until shortly before it expires");
        let asked: Vec<(String, String)> = form_urlencoded::parse(&seen[0].body).into_owned().collect();
        let value = |name: &str| asked.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str());
        assert_eq!((value("Action"), value("RoleArn")), (Some("AssumeRoleWithWebIdentity"), Some(ROLE)));
        assert_eq!((value("RoleSessionName"), value("DurationSeconds")), (Some("ada"), Some("3600")));
        assert_eq!(value("WebIdentityToken"), Some(token("ada").as_str()));
    }
    for got in web.got() {
        // Signed again, from what arrived.
        let scope = Scope { region: "eu-central-1".into(), service: "aws-mcp".into() };
        let credentials = AwsCredentials {
            access_key_id: "ASIA1".into(),
            secret_access_key: Secret::new("s1"),
            session_token: Secret::new("t1"),
        };
        let time: jiff::Timestamp = {
            let date = got.headers["x-amz-date"].to_str()?;
            jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date)?.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp()
        };
        let uri = format!("http://replaced.example{}", got.uri).parse()?;
        let request = Unsigned { method: &got.method, uri: &uri, body: &got.body };
        let mut headers = got.headers.clone();
        sign(&scope, &credentials, request, &mut headers, time.as_second())?;
        assert_eq!(got.headers["authorization"], headers["authorization"]);
        assert_eq!(got.headers["x-amz-security-token"], "t1");
        assert_eq!(got.uri.to_string(), "/base/mcp?v=1");
    }
    Ok(())
}

#[tokio::test]
async fn clients_without_a_role_never_reach_the_server() -> Result<()> {
    let only = |mapping: Value| json!({ "fallback_role_arn": "", "role_mappings": [mapping] });
    for (sts, status, body) in [
        (only(json!({ "claim": "nobody", "role_arn": ROLE })), 403, "Failed to determine IAM role"),
        (only(json!({ "matcher": "claims.sub == 'eve'", "role_arn": ROLE })), 403, "Failed to determine IAM role"),
        (only(json!({ "matcher": "claims.absent.x", "role_arn": ROLE })), 403, "Failed to determine IAM role"),
        (json!({ "session_name_claim": "absent" }), 401, "Missing session name claim"),
        (json!({ "session_name_claim": "iss" }), 401, "Invalid session name"),
    ] {
        let (web, seen) = signing(sts, served).await?;
        let refused = ping(as_user(&web, &token("ada"))).await?;
        assert_eq!((refused.status.as_u16(), &refused.body[..]), (status, body.as_bytes()));
        assert!(web.got().is_empty() && seen.lock().unwrap().is_empty());
    }
    let (web, _) = signing(only(json!({ "matcher": "claims.sub == 'ada'", "role_arn": ROLE })), served).await?;
    assert_eq!(ping(as_user(&web, &token("ada"))).await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_forgotten_session_is_not_opened_again_with_the_signature_of_another_message() -> Result<()> {
    let forgetful = |got: &Got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        match message["method"].as_str() {
            Some("initialize") => {
                let mut response = served(got);
                response.headers_mut().insert("mcp-session-id", "s-1".parse().unwrap());
                response
            }
            Some("ping") => Response::builder().status(404).body(Body::empty()).unwrap(),
            _ => Response::builder().status(202).body(Body::empty()).unwrap(),
        }
    };
    let (web, _) = signing(json!({}), forgetful).await?;
    let client = as_user(&web, &token("ada")).initialized().await?;
    // The client learns that its session is gone, and initializes a new one itself.
    assert_eq!(client.ask(json!(2), "ping", json!({})).await?.status, StatusCode::NOT_FOUND);
    let method = |got: &Got| serde_json::from_slice::<Value>(&got.body).unwrap()["method"].clone();
    assert_eq!(web.got().iter().map(method).collect::<Vec<_>>(), ["initialize", "notifications/initialized", "ping"]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_aws_refuses_is_replaced_once() -> Result<()> {
    let (web, seen) = signing(json!({}), |_| Response::builder().status(403).body(Body::empty()).unwrap()).await?;
    for _ in 0..3 {
        assert_eq!(ping(as_user(&web, &token("ada"))).await?.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
    Ok(())
}
