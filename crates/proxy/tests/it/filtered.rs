//! Lists of tools of a server that speaks HTTP, in every wrapping that they may come in: what is hidden stays hidden.

use anyhow::Result;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::client::{BOTH, request};
use crate::web::{Got, How, Web};

fn hiding() -> How {
    let mut how = How::default();
    how.config.tools_filter = vec!["seen".to_owned()];
    how
}

fn list(id: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": [{ "name": "seen" }, { "name": "hidden" }] } }).to_string()
}

/// A server that always answers the same.
async fn says(status: u16, kind: Option<&'static str>, body: String) -> Result<Web> {
    Web::with(hiding(), move |_: &Got| {
        let mut response = Response::builder().status(status);
        if let Some(kind) = kind {
            response = response.header("content-type", kind);
        }
        response.body(Body::full(body.clone())).unwrap()
    })
    .await
}

#[tokio::test]
async fn a_list_is_filtered_whatever_it_is_called_and_however_it_begins() -> Result<()> {
    let plain = list(json!(1));
    let marked = format!("\u{feff}{plain}");
    for (status, kind, body) in [
        (200, Some("application/json"), &plain),
        (200, Some("Application/JSON; charset=utf-8"), &plain),
        (200, Some("application/json"), &marked),
        (200, Some("text/plain"), &plain),
        (200, None, &plain),
        (200, None, &marked),
        (203, Some("application/json"), &plain),
        (400, Some("application/json"), &plain),
        (500, None, &plain),
        (500, None, &marked),
    ] {
        let answer = says(status, kind, body.clone()).await?.caller().ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(answer.status, status, "{kind:?}");
        assert_eq!(answer.message()?["result"]["tools"], json!([{ "name": "seen" }]), "{status} {kind:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_judged_is_withheld_and_what_is_no_list_passes() -> Result<()> {
    let nameless = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [{ "title": "hidden" }] } }).to_string();
    for body in [nameless.as_str(), "hidden, but not JSON", "[{\"name\":\"hidden\"}]"] {
        let answer = says(200, Some("application/json"), body.to_owned()).await?;
        let answer = answer.caller().ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(answer.message()?["error"]["code"], -32603, "{body}");
        assert!(!answer.text().contains("hidden"), "{body}");
    }
    let refused = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32601, "message": "no tools" } }).to_string();
    for (status, kind, body) in [
        (200, "application/json", refused.as_str()),
        (202, "application/json", ""),
        (401, "text/plain", "who are you?"),
        (500, "text/html", "<p>no</p>"),
    ] {
        let answer = says(status, Some(kind), body.to_owned()).await?;
        let answer = answer.caller().ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!((answer.status.as_u16(), answer.text()), (status, body));
    }
    // A page is no answer.
    let page = says(200, Some("text/html"), "<p>hello</p>".to_owned()).await?;
    assert_eq!(page.caller().whole(Method::GET, "/page", "").await?.text(), "<p>hello</p>");
    Ok(())
}

#[tokio::test]
async fn a_stream_may_begin_with_an_event_that_says_only_how_to_come_back() -> Result<()> {
    let begin = "id: 1\nretry: 500\ndata: \n\n";
    let web = says(200, Some("text/event-stream"), format!("{begin}id: 2\ndata: {}\n\n", list(json!(1)))).await?;
    let answer = web.caller().taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
    assert!(answer.text().starts_with(begin), "{}", answer.text());
    assert_eq!(answer.message()?["result"]["tools"], json!([{ "name": "seen" }]));
    Ok(())
}

#[tokio::test]
async fn who_comes_back_to_a_list_by_another_stream_sees_no_more_of_it() -> Result<()> {
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "tools": "all" } }).to_string();
    let body = format!("id: 1\ndata: \n\nid: 2\ndata: {told}\n\nid: 3\ndata: {}\n\n", list(json!("a")));
    let web = says(200, Some("text/event-stream"), body).await?;
    let mut events = web.caller().with("last-event-id", "0").events(Method::GET, "/mcp", "").await?;
    assert_eq!(events.next().await?.unwrap().1, "");
    assert_eq!(events.message().await?, serde_json::from_str::<Value>(&told)?);
    assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen" }]));
    assert_eq!(events.last.as_deref(), Some("3"));
    Ok(())
}

#[tokio::test]
async fn a_hidden_tool_is_not_found_or_a_bad_request_as_the_caller_takes_it() -> Result<()> {
    let web = says(200, Some("application/json"), "{}".to_owned()).await?;
    let call = |name: Value| request(json!("i"), "tools/call", json!({ "name": name })).to_string();
    for accept in ["application/json", "text/html, application/*;q=0.1", "*/*", BOTH] {
        let answer = web.caller().taking(accept).post(call(json!("hidden"))).await?;
        let words = r#"{"error":{"code":-32602,"message":"tool not found"},"id":"i","jsonrpc":"2.0"}"#;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, words), "{accept}");
    }
    let bare = (StatusCode::BAD_REQUEST, "");
    let answer = web.caller().taking("text/event-stream").post(call(json!("hidden"))).await?;
    assert_eq!((answer.status, answer.text()), bare);
    for body in [call(json!("")), call(json!(7)), request(json!(1), "tools/call", json!({})).to_string()] {
        let answer = web.caller().post(body.clone()).await?;
        assert_eq!((answer.status, answer.text()), bare, "{body}");
    }
    assert!(web.got().is_empty());
    assert_eq!(web.caller().post(call(json!("seen"))).await?.status, StatusCode::OK);
    assert_eq!(web.got().len(), 1);
    Ok(())
}
