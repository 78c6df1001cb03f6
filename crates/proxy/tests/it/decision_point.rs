//! A decision point over HTTP: what it is asked, and that whatever is not a clear yes is a no.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::client::TestClient;
use crate::guarded::{as_user, guarded_config};
use crate::web::{Answer, Got, How, Web, backend};

/// A decision point, and a proxy that asks it.
struct Guarded {
    web: Web,
    questions: Arc<Mutex<Vec<Got>>>,
}

fn plain(status: u16, body: &str) -> Response<Body> {
    Response::builder().status(status).body(Body::full(body.to_owned())).unwrap()
}

fn question(got: &Got) -> Value {
    serde_json::from_slice(&got.body).unwrap_or_default()
}

/// A server with tools, prompts and resources.
fn server(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("tools/list") => {
            json!({ "tools": (0..40).map(|number| json!({ "name": format!("t{number}") })).collect::<Vec<_>>() })
        }
        _ => json!({}),
    };
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
}

impl Guarded {
    async fn new(context: Value, answer: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static) -> Result<Self> {
        let questions: Arc<Mutex<Vec<Got>>> = Arc::default();
        let answer: Answer = Arc::new(answer);
        let point = backend("127.0.0.1:0".parse()?, answer, questions.clone()).await?;
        Ok(Self { web: web(&format!("http://{point}"), context).await?, questions })
    }

    fn client(&self) -> TestClient {
        as_user(&self.web, "ada")
    }

    fn questions(&self) -> Vec<Value> {
        self.questions.lock().unwrap().iter().map(question).collect()
    }
}

async fn web(url: &str, context: Value) -> Result<Web> {
    let pdp = json!({ "http": { "url": url, "timeout": 1 }, "claim_mapping": "standard", "context": context });
    let config = guarded_config(json!({ "authz_config": { "version": "1.0", "type": "httpv1", "pdp": pdp } })).await?;
    Box::pin(Web::with(How { config, ..How::default() }, server)).await
}

async fn prompt(client: &TestClient, name: &str) -> Result<StatusCode> {
    let params = json!({ "name": name, "arguments": { "city": "Bern", "n": 1.50 } });
    Ok(client.ask(json!(1), "prompts/get", params).await?.status)
}

#[tokio::test]
async fn a_clear_yes_allows_and_a_no_denies() -> Result<()> {
    let guarded = Guarded::new(json!({ "include_args": true }), |got: &Got| {
        plain(200, &json!({ "allow": question(got)["resource"] == "mrn:mcp:srv:prompt:seen" }).to_string())
    })
    .await?;
    assert_eq!(prompt(&guarded.client(), "seen").await?, StatusCode::OK);
    assert_eq!(prompt(&guarded.client(), "hidden").await?, StatusCode::FORBIDDEN);
    assert_eq!(guarded.web.got().len(), 1);
    let asked = &guarded.questions()[0];
    assert_eq!((&asked["operation"], &asked["principal"]["sub"]), (&json!("mcp:prompt:get"), &json!("ada")));
    let got = guarded.questions.lock().unwrap()[0].clone();
    let text = String::from_utf8_lossy(&got.body).into_owned();
    assert!(text.contains(r#""n":1.50"#) || text.contains(r#""n":1.5"#), "{text}");
    assert_eq!((got.uri.path(), got.headers.contains_key("authorization")), ("/decision", false));
    Ok(())
}

#[tokio::test]
async fn arguments_are_not_sent_and_not_read_unless_that_is_configured() -> Result<()> {
    let guarded = Guarded::new(json!({}), |_: &Got| plain(200, r#"{"allow":true}"#)).await?;
    let long = json!({ "name": "seen", "arguments": { "text": "x".repeat(300_000) } });
    assert_eq!(guarded.client().ask(json!(1), "prompts/get", long.clone()).await?.status, StatusCode::OK);
    assert_eq!(guarded.questions()[0]["context"], json!({}));
    let with_arguments =
        Guarded::new(json!({ "include_args": true }), |_: &Got| plain(200, r#"{"allow":true}"#)).await?;
    assert_eq!(with_arguments.client().ask(json!(1), "prompts/get", long).await?.status, StatusCode::FORBIDDEN);
    assert!(with_arguments.questions().is_empty());
    Ok(())
}

#[tokio::test]
async fn whatever_is_not_a_clear_yes_is_a_no() -> Result<()> {
    let elsewhere: Arc<Mutex<Vec<Got>>> = Arc::default();
    let yes: Answer = Arc::new(|_: &Got| plain(200, r#"{"allow":true}"#));
    let other = backend("127.0.0.1:0".parse()?, yes, elsewhere.clone()).await?;
    let location = format!("http://{other}/decision");
    for (status, body) in [
        (200, r#"{"allow":false}"#.to_owned()),
        (200, r#"{"allow":"true"}"#.to_owned()),
        (200, r#"{"Allow":true}"#.to_owned()),
        (200, r#"[{"allow":true}]"#.to_owned()),
        (200, "garbage".to_owned()),
        (200, String::new()),
        (200, format!(r#"{{"allow":true,"x":"{}"}}"#, "x".repeat(300_000))),
        (201, r#"{"allow":true}"#.to_owned()),
        (403, r#"{"allow":true}"#.to_owned()),
        (500, r#"{"allow":true}"#.to_owned()),
        (302, r#"{"allow":true}"#.to_owned()),
        (307, r#"{"allow":true}"#.to_owned()),
    ] {
        let (location, shown) = (location.clone(), body.chars().take(60).collect::<String>());
        let guarded = Guarded::new(json!({}), move |_: &Got| {
            let mut response = plain(status, &body);
            if (300..400).contains(&status) {
                response.headers_mut().insert("location", location.parse().unwrap());
            }
            response
        })
        .await?;
        assert_eq!(prompt(&guarded.client(), "seen").await?, StatusCode::FORBIDDEN, "{status} {shown}");
        assert!(guarded.web.got().is_empty());
    }
    assert!(elsewhere.lock().unwrap().is_empty(), "it is not asked elsewhere");
    Ok(())
}

/// One that keeps silent, and one that is not there. The proxy starts without it.
#[tokio::test]
async fn a_decision_point_that_does_not_answer_denies() -> Result<()> {
    let senders: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let silent = Guarded::new(json!({}), move |_: &Got| {
        let (sender, body) = Body::channel(1);
        senders.lock().unwrap().push(sender);
        Response::new(body)
    })
    .await?;
    let started = Instant::now();
    assert_eq!(prompt(&silent.client(), "seen").await?, StatusCode::FORBIDDEN);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let listed = silent.client().ask(json!(1), "tools/list", json!({})).await?;
    assert_eq!(listed.message()?["result"]["tools"], json!([]));
    // One time for the whole list, and not one for each of its elements: it is over before all of the 40 were asked about.
    let asked = silent.questions().len();
    assert!(asked < 40, "{asked}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let web = web(&format!("http://{closed}"), json!({})).await?;
    assert_eq!(prompt(&as_user(&web, "ada"), "seen").await?, StatusCode::FORBIDDEN);
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_list_is_what_the_decision_point_allows() -> Result<()> {
    let guarded = Guarded::new(json!({}), |got: &Got| {
        let resource = question(got)["resource"].as_str().unwrap_or_default().to_owned();
        plain(200, &json!({ "allow": resource.ends_with('7') }).to_string())
    })
    .await?;
    let listed = guarded.client().ask(json!(1), "tools/list", json!({})).await?;
    let expected: Vec<_> = (0..4)
        .map(|ten| json!({ "name": format!("t{}", if ten == 0 { "7".to_owned() } else { format!("{ten}7") }) }))
        .collect();
    assert_eq!(listed.message()?["result"]["tools"], json!(expected));
    assert_eq!(guarded.questions().len(), 40);
    // A call agrees with it, and the tools are known by now.
    for (tool, status) in [("t7", StatusCode::OK), ("t8", StatusCode::FORBIDDEN)] {
        assert_eq!(guarded.client().ask(json!(1), "tools/call", json!({ "name": tool })).await?.status, status);
    }
    assert_eq!(guarded.web.got().len(), 2);
    Ok(())
}

/// What a tool says about itself is part of the question, so it is found out first.
#[tokio::test]
async fn a_decision_point_gets_the_annotations_of_a_tool_before_any_list() -> Result<()> {
    let questions: Arc<Mutex<Vec<Got>>> = Arc::default();
    let answer: Answer = Arc::new(|got: &Got| {
        let is_destructive = question(got)["context"]["mcp"]["annotations"]["destructiveHint"] == true;
        plain(200, &json!({ "allow": !is_destructive }).to_string())
    });
    let point = backend("127.0.0.1:0".parse()?, answer, questions.clone()).await?;
    let pdp = json!({ "http": { "url": format!("http://{point}") }, "claim_mapping": "mpe" });
    let config = guarded_config(json!({ "authz_config": { "version": "1.0", "type": "httpv1", "pdp": pdp } })).await?;
    let web = Box::pin(Web::with(How { config, ..How::default() }, |got: &Got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let tool = |name: &str, is: bool| json!({ "name": name, "annotations": { "destructiveHint": is } });
        let result = json!({ "tools": [tool("delete", true), tool("look", false)] });
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
        Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
    }))
    .await?;
    for (tool, status) in
        [("delete", StatusCode::FORBIDDEN), ("look", StatusCode::OK), ("invented", StatusCode::FORBIDDEN)]
    {
        let answer = as_user(&web, "ada").ask(json!(1), "tools/call", json!({ "name": tool })).await?;
        assert_eq!(answer.status, status, "{tool}");
    }
    assert_eq!(questions.lock().unwrap().len(), 2, "a tool that is in no list is denied without a question");
    Ok(())
}

/// A middleware that renames a tool lets authorization run a second time, on the same message.
#[tokio::test]
async fn a_decision_point_is_asked_once_about_one_message() -> Result<()> {
    let questions: Arc<Mutex<Vec<Got>>> = Arc::default();
    let answer: Answer = Arc::new(|_: &Got| plain(200, r#"{"allow":true}"#));
    let point = backend("127.0.0.1:0".parse()?, answer, questions.clone()).await?;
    let pdp = json!({ "http": { "url": format!("http://{point}") }, "claim_mapping": "mpe" });
    let config = json!({
        "authz_config": { "version": "1.0", "type": "httpv1", "pdp": pdp },
        "tools_override": { "t1": { "name": "shown" } },
    });
    let config = guarded_config(config).await?;
    let web = Box::pin(Web::with(How { config, ..How::default() }, server)).await?;
    let client = as_user(&web, "ada");
    assert_eq!(client.ask(json!(1), "tools/list", json!({})).await?.status, StatusCode::OK);
    assert_eq!(questions.lock().unwrap().len(), 40, "once about each tool");
    assert_eq!(client.ask(json!(1), "tools/call", json!({ "name": "shown" })).await?.status, StatusCode::OK);
    let asked: Vec<Value> = questions.lock().unwrap().iter().skip(40).map(question).collect();
    let about: Vec<&Value> = asked.iter().map(|asked| &asked["resource"]).collect();
    assert_eq!(about, ["mrn:mcp:srv:tool:t1"], "once, and about the tool that is called");
    Ok(())
}
