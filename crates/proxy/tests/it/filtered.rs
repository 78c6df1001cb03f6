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
async fn what_cannot_be_evaluated_is_withheld_and_what_is_no_list_passes() -> Result<()> {
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
    let reply =
        json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "tools": "all" } }).to_string();
    let body = format!("id: 1\ndata: \n\nid: 2\ndata: {reply}\n\nid: 3\ndata: {}\n\n", list(json!("a")));
    let web = says(200, Some("text/event-stream"), body).await?;
    // A body that was not requested changes nothing.
    for body in [String::new(), request(json!(1), "ping", json!({})).to_string()] {
        let mut events = web.caller().with("last-event-id", "0").events(Method::GET, "/mcp", body).await?;
        assert_eq!(events.next().await?.unwrap().1, "");
        assert_eq!(events.message().await?, serde_json::from_str::<Value>(&reply)?);
        assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen" }]));
        assert_eq!(events.last.as_deref(), Some("3"));
    }
    Ok(())
}

#[tokio::test]
async fn a_list_in_a_stream_is_filtered_whatever_its_event_is_called_and_however_it_ends() -> Result<()> {
    let list = list(json!(1));
    for body in [
        format!("data: {list}\n"),
        format!("data: {list}"),
        format!("event: response\ndata: {list}\n\n"),
        format!("event: ping\ndata: still here\n\nid: 1\nevent: tools\ndata: {list}\n\n"),
    ] {
        let web = says(200, Some("text/event-stream"), body.clone()).await?;
        let answer = web.caller().taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
        assert_eq!(answer.message()?["result"]["tools"], json!([{ "name": "seen" }]), "{body:?}");
        assert!(!answer.text().contains("hidden"), "{body:?}");
        assert_eq!(answer.text().contains("event: ping\ndata: still here\n\n"), body.contains("ping"));
        assert_eq!(web.got()[0].headers["accept-encoding"], "identity", "no header lets a server choose");
    }
    // One that packs it all the same is not believed.
    let web = Web::with(hiding(), move |_: &Got| {
        let head = Response::builder().header("content-type", "text/event-stream").header("content-encoding", "gzip");
        head.body(Body::full(format!("data: {list}\n\n"))).unwrap()
    })
    .await?;
    let answer = web.caller().taking(BOTH).ask(json!(1), "tools/list", json!({})).await?;
    assert_eq!((answer.status, answer.text().contains("hidden")), (StatusCode::BAD_GATEWAY, false));
    Ok(())
}

#[tokio::test]
async fn a_hidden_tool_is_not_found_or_a_bad_request_as_the_client_accepts() -> Result<()> {
    let web = says(200, Some("application/json"), "{}".to_owned()).await?;
    let call = |name: Value| request(json!("i"), "tools/call", json!({ "name": name })).to_string();
    for accept in ["application/json", "Application/JSON", "text/html, application/*;q=0.1", "*/*", BOTH] {
        let answer = web.caller().taking(accept).post(call(json!("hidden"))).await?;
        let expected_text = r#"{"error":{"code":-32602,"message":"tool not found"},"id":"i","jsonrpc":"2.0"}"#;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, expected_text), "{accept}");
    }
    // A header may come in several lines.
    for accepts in [&["text/event-stream", "application/json"][..], &["text/event-stream, text/html", "*/*"], &[""]] {
        let mut caller = web.caller();
        for one in accepts {
            caller.headers.append("accept", one.parse()?);
        }
        assert_eq!(caller.post(call(json!("hidden"))).await?.status, StatusCode::OK, "{accepts:?}");
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

/// A body, and the header that it comes with.
type Disguise = (Vec<u8>, Option<(&'static str, &'static str)>);

/// Calls of a hidden tool that a server may read although the proxy does not.
fn disguised() -> Vec<Disguise> {
    let call = |start: &str, argument: &str| {
        let rest = r#""id":1,"method":"tools/call","params":{"name":"hidden","arguments":{"a":"#;
        format!("{start}{rest}{argument}}}}}}}").into_bytes()
    };
    let plain = || call(r#"{"jsonrpc":"2.0","#, "1");
    vec![
        (call("\u{feff}{\"jsonrpc\":\"2.0\",", "1"), None),
        (call(r#"{"jsonrpc":"2.0","#, "NaN"), None),
        (call("{", "1"), None),
        (call(r#"{"jsonrpc":"1.0","#, "1"), None),
        (plain().into_iter().flat_map(|byte| [byte, 0]).collect(), None),
        (b"\x1f\x8b\x08\x00".to_vec(), Some(("content-encoding", "gzip"))),
        (plain(), Some(("content-encoding", "br"))),
        // The letters are those of UTF-7, for a reader that takes it as such.
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"+AHQ-ools/call","params":{"name":"hidden"}}"#.to_vec(),
            Some(("content-type", "application/json; Charset=\"utf-7\"")),
        ),
        (b"name=hidden".to_vec(), Some(("content-type", "text/plain"))),
    ]
}

#[tokio::test]
async fn what_the_filter_cannot_read_does_not_reach_the_server_and_passes_where_there_is_none() -> Result<()> {
    for sse in [false, true] {
        let guarded = Web::with(How { sse, ..hiding() }, |_: &Got| Response::new(Body::empty())).await?;
        let open = Web::with(How { sse, ..How::default() }, |_: &Got| Response::new(Body::empty())).await?;
        for (body, header) in disguised() {
            let send = async |web: &Web, method: Method| {
                let caller = header.iter().fold(web.caller(), |caller, (name, value)| caller.with(name, value));
                caller.whole(method, "/messages?sessionId=s", body.clone()).await
            };
            for method in [Method::POST, Method::PUT] {
                let refused = send(&guarded, method).await?;
                assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{header:?} {}", String::from_utf8_lossy(&body));
            }
            assert_eq!(send(&open, Method::POST).await?.status, StatusCode::OK);
        }
        assert!(guarded.got().is_empty());
        assert_eq!(open.got().len(), disguised().len());
        // What the proxy can parse, it evaluates, whatever it is called.
        let named = r#"{"jsonrpc":"2\u002e0","id":1,"method":"tools\/call","params":{"n\u0061me":"hid\u0064en"}}"#;
        for kind in ["application/json; charset=UTF-8", "text/plain", "application/octet-stream"] {
            let refused = guarded.caller().with("content-type", kind).whole(Method::POST, "/x", named).await?;
            assert_eq!(refused.message()?["error"]["message"], "tool not found", "{kind}");
            let seen = guarded.caller().with("content-type", kind);
            seen.whole(Method::POST, "/x", named.replace(r"hid\u0064en", "seen")).await?;
        }
        assert_eq!(guarded.got().len(), 3);
    }
    Ok(())
}

#[tokio::test]
async fn a_list_on_an_sse_stream_is_filtered_however_it_was_requested() -> Result<()> {
    let stream: std::sync::Arc<std::sync::Mutex<Option<skep_net::BodySender>>> = std::sync::Arc::default();
    let kept = stream.clone();
    let web = Web::with(How { sse: true, ..hiding() }, move |got: &Got| {
        // Some servers open a stream whatever the method is, and some answer in both places.
        if got.uri.path() != "/sse" {
            let is_list = String::from_utf8_lossy(&got.body).contains("tools/list");
            let body = if is_list { list(json!(1)) } else { "Accepted".to_owned() };
            return Response::builder().status(202).body(Body::full(body)).unwrap();
        }
        let (sender, body) = Body::channel(8);
        sender.try_send("event: endpoint\ndata: /messages?sessionId=abc\n\n".into()).unwrap();
        *kept.lock().unwrap() = Some(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    })
    .await?;
    let caller = web.caller();
    let ping = request(json!(5), "ping", json!({})).to_string();
    for (method, body) in [(Method::GET, ""), (Method::POST, ""), (Method::POST, &ping)] {
        let mut events = caller.events(method, "/sse", body.to_owned()).await?;
        events.next().await?;
        let sender = stream.lock().unwrap().take().unwrap();
        for (path, asked, answered) in [
            ("/messages?sessionId=abc", r#""\u0061""#, json!("a")),
            ("/messages?sessionId=abc", "1.0", json!(1)),
            ("/messages?session%49d=abc", "2", json!(2)),
            ("/messages?sessionId=another", "3", json!(3)),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{asked},"method":"tools/list"}}"#);
            let reply = caller.whole(Method::POST, path, body).await?;
            assert_eq!(
                (reply.status, reply.text().contains("hidden")),
                (StatusCode::ACCEPTED, false),
                "{}",
                reply.text()
            );
            sender.send(format!("data: {}\n\n", list(answered)).into()).await?;
            assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen" }]), "{asked} {path}");
        }
        // Not requested here: another proxy forwarded that.
        sender.send(format!("data: {}\n\n", list(json!("unasked"))).into()).await?;
        assert_eq!(events.message().await?["result"]["tools"], json!([{ "name": "seen" }]));
        let other = r#"{"jsonrpc": "2.0", "id" : 4, "result" : {"content":[{"type":"text","text":"hidden"}]}}"#;
        sender.send(format!("data: {other}\n\n").into()).await?;
        assert_eq!(events.next().await?.unwrap().1, other, "what is no list keeps its bytes");
    }
    let reply = caller.whole(Method::POST, "/messages?sessionId=abc", ping).await?;
    assert_eq!((reply.status, reply.text()), (StatusCode::ACCEPTED, "Accepted"));
    Ok(())
}
