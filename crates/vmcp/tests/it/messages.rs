//! Messages that come with calls: requests of backends, progress, cancellations, and what steps of composite tools make of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use skep_api::virtual_config::Aggregation;
use skep_mcp::Message;
use skep_upstream::memory::MemoryUpstream;
use skep_upstream::{Call, ClientContext, Replies, SessionId, Upstream as _};
use skep_vmcp::aggregate::Rules;
use skep_vmcp::backend::Backend;
use skep_vmcp::backends::Backends;
use skep_vmcp::composite::CompositeTools;
use skep_vmcp::upstream::{ServerInfo, VirtualUpstream};
use skep_vmcp::view::{Cursors, Views};

use crate::live::{Live, next, over, quiet, until};
use crate::rig::{Answers, INITIALIZE, Rig, echoing, modern_request, request, responded, server, spec};

/// Calls a tool of backend `a` that a test answers.
async fn call(rig: &Rig, session: &SessionId, id: u64) -> Replies {
    known(rig).await;
    let mut call = request(session, id, "tools/call", &json!({ "name": "a_ask" }));
    call.takes_interim = true;
    rig.upstream.clone().call(call).await.unwrap()
}

async fn known(rig: &Rig) {
    while rig.upstream.view(&ClientContext::default()).await.view.tool("a_ask").is_none() {
        quiet().await;
    }
}

async fn send(rig: &Rig, session: &SessionId, message: &Value) {
    let message = Message::parse(message.to_string().into()).unwrap();
    rig.upstream.send(Some(session), &message).await.unwrap();
}

fn asking(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "_meta": { "progressToken": "mine" } } })
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_asks_during_a_call_is_answered_within_it() {
    for method in ["elicitation/create", "sampling/createMessage"] {
        let live = Live::new(&[("", "ask")]);
        let rig = over(&live, |_| {});
        let session = rig.open("s").await;
        let mut replies = call(&rig, &session, 1).await;
        live.holds("tools/call", "").await;
        live.before("tools/call", "", &asking(method));
        let asked = next(replies.interim.as_mut().unwrap()).await;
        assert_eq!((&asked["method"], asked["id"] == 7), (&json!(method), false));
        // Progress of the client goes by the token that it was given.
        let token = asked["params"]["_meta"]["progressToken"].clone();
        for (token, progress) in [(json!("mine"), 1), (json!(7), 2), (token, 3)] {
            let params = json!({ "progressToken": token, "progress": progress });
            send(&rig, &session, &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
                .await;
        }
        let progress = live.wait("progress", |one| one["message"]["method"] == "notifications/progress").await;
        assert_eq!(progress["message"]["params"], json!({ "progressToken": "mine", "progress": 3 }));
        send(&rig, &session, &json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } })).await;
        let answer = live.wait("an answer", |one| one["message"]["result"]["action"] == "accept").await;
        assert_eq!(answer["message"]["id"], 7);
        live.answer("tools/call", &json!({ "content": [] }));
        assert_eq!(replies.response.response().await.unwrap().id(), Some(skep_mcp::Id::number(1)));
        let messages: Vec<Value> = live.all().into_iter().filter(|one| !one["message"].is_null()).collect();
        assert_eq!(messages.len(), 2, "nothing else reached the backend: {messages:?}");
    }
}

/// Replicas count alike, and so do processes one after the other.
#[tokio::test(start_paused = true)]
async fn an_answer_to_what_another_replica_asked_answers_nothing_here() {
    let mut asked = Vec::new();
    let mut replicas = Vec::new();
    for _replica in 0..2 {
        let live = Live::new(&[("", "ask")]);
        let rig = over(&live, |_| {});
        let session: SessionId = "s".into();
        rig.upstream.restore(&session, INITIALIZE.as_bytes());
        let mut replies = call(&rig, &session, 1).await;
        live.holds("tools/call", "").await;
        live.before("tools/call", "", &asking("elicitation/create"));
        asked.push(next(replies.interim.as_mut().unwrap()).await["id"].clone());
        replicas.push((live, rig, replies));
    }
    let (live, rig, _replies) = &replicas[1];
    for (id, action) in [(&asked[0], "late"), (&json!(1), "guessed"), (&asked[1], "own")] {
        send(rig, &"s".into(), &json!({ "jsonrpc": "2.0", "id": id, "result": { "action": action } })).await;
    }
    live.wait("the answer", |one| one["message"]["result"]["action"] == "own").await;
    assert_eq!(live.all().iter().filter(|one| !one["message"].is_null()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_cancels_is_cancelled_at_the_backend() {
    let live = Live::new(&[("", "ask")]);
    let rig = over(&live, |_| {});
    let session = rig.open("s").await;
    let _replies = call(&rig, &session, 5).await;
    live.holds("tools/call", "").await;
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
    send(&rig, &session, &cancelled).await;
    live.wait("the cancellation", |one| one["message"] == cancelled).await;

    // A client of 2026-07-28 closes its stream, and any client may be gone.
    let modern = Call { takes_interim: true, ..modern_request("tools/call", &json!({ "name": "a_ask" })) };
    let legacy = Call { takes_interim: true, ..request(&session, 6, "tools/call", &json!({ "name": "a_ask" })) };
    for (number, call) in [modern, legacy].into_iter().enumerate() {
        let replies = rig.upstream.clone().call(call).await.unwrap();
        until("it is there", || live.held("tools/call", "") == 2).await;
        drop(replies);
        until("it ends there", || live.held("tools/call", "") == 1).await;
        let cancelled = || live.all().iter().filter(|one| one["cancelled"] == "tools/call").count();
        until("the backend is told", || cancelled() == number + 1).await;
    }
}

/// Progress and logs directly before the response: none may be overtaken by it.
#[tokio::test]
async fn all_that_came_before_a_response_is_there_when_the_response_is() {
    for (name, expected) in [("a_echo", 5), ("both", 10)] {
        for session in ["s1", "s2", "s3", "s4", "s5"] {
            let (upstream, _backends) = composed(reporting(|| json!({ "result": { "content": [] } })));
            let session: SessionId = session.into();
            upstream.restore(&session, INITIALIZE.as_bytes());
            let mut call = request(&session, 1, "tools/call", &json!({ "name": name }));
            call.takes_interim = true;
            let Replies { interim, mut response } = upstream.clone().call(call).await.unwrap();
            let response = response.response().await.unwrap();
            assert!(response.result().is_some_and(|result| !String::from_utf8_lossy(result).contains("isError")));
            let (mut interim, mut numbers) = (interim.unwrap(), Vec::new());
            while let Ok(message) = interim.try_recv() {
                let message: Value = serde_json::from_slice(&message).unwrap();
                numbers.push(message["params"]["progress"].as_u64().unwrap());
            }
            assert_eq!(numbers.len(), expected, "{name}: {numbers:?}");
            assert!(numbers.chunks(5).all(|chunk| chunk == [0, 1, 2, 3, 4]), "{name}: {numbers:?}");
        }
    }
}

/// A server that reports progress five times and responds at once.
fn reporting(response: impl Fn() -> Value + Send + Sync + 'static) -> Answers {
    Arc::new(move |call, request| {
        if request["method"] != "tools/call" {
            return echoing("a", &["echo"])(call, request);
        }
        for progress in 0..5 {
            let params = json!({ "progressToken": 1, "progress": progress });
            let message = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
            call.interim.as_ref().unwrap().try_send(Bytes::from(message.to_string())).unwrap();
        }
        Some(response())
    })
}

/// A virtual server with a composite tool that calls the tool of its backend twice, one call after the other.
fn composed(answers: Answers) -> (Arc<VirtualUpstream>, Arc<Backends>) {
    let step = |id: &str, before: &[&str]| json!({ "id": id, "type": "tool", "tool": "a_echo", "dependsOn": before });
    let definition = json!({ "name": "both", "description": "d", "parameters": { "type": "object" },
        "steps": [step("one", &[]), step("two", &["one"])] });
    let composite = CompositeTools::new(&[serde_json::from_value(definition).unwrap()]).unwrap();
    let aggregation =
        json!({ "conflictResolution": "prefix", "conflictResolutionConfig": { "prefixFormat": "{workload}_" } });
    let aggregation: Aggregation = serde_json::from_value(aggregation).unwrap();
    let backends = Backends::new(None);
    let backend: Arc<MemoryUpstream> = server(answers);
    backends.replace(BTreeMap::from([("a".into(), Backend::over(spec("a"), backend))]));
    let views = Views::new(Rules::of(&aggregation), composite);
    (VirtualUpstream::new(ServerInfo::default(), backends.clone(), views, Cursors::new(b"key")), backends)
}

#[tokio::test]
async fn a_step_fails_that_gets_no_complete_result() {
    let asking = || json!({ "result": { "resultType": "input_required", "requestState": "x", "inputRequests": {} } });
    let (upstream, _backends) = composed(Arc::new(move |call, request| match request["method"].as_str() {
        Some("tools/call") => Some(asking()),
        _ => echoing("a", &["echo"])(call, request),
    }));
    let response = responded(&upstream, modern_request("tools/call", &json!({ "name": "both" }))).await;
    let text = response["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert_eq!(response["result"]["isError"], true, "{response}");
    assert!(text.contains("a_echo") && text.contains("input_required"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn arguments_are_completed_by_the_backend_under_its_own_names() {
    let live = Live::new(&[("", "ask")]);
    let rig = over(&live, |_| {});
    known(&rig).await;
    let session = rig.open("s").await;
    for (number, reference, own) in [
        (1, json!({ "type": "ref/prompt", "name": "a_greet" }), json!({ "type": "ref/prompt", "name": "greet" })),
        (
            2,
            json!({ "type": "ref/resource", "uri": "file:///r" }),
            json!({ "type": "ref/resource", "uri": "file:///r" }),
        ),
    ] {
        let params = json!({ "ref": reference, "argument": { "name": "x", "value": "c" } });
        for call in
            [request(&session, 1, "completion/complete", &params), modern_request("completion/complete", &params)]
        {
            let completed = responded(&rig.upstream, call).await;
            assert_eq!(completed["result"]["completion"]["values"], json!(["completed"]), "{completed}");
        }
        let of = |one: &&Value| one["call"]["params"]["ref"] == own;
        assert_eq!(live.all().iter().filter(of).count(), 2, "{number}: in both eras");
    }
    let params = json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "x", "value": "c" } });
    let unknown = responded(&rig.upstream, request(&session, 1, "completion/complete", &params)).await;
    assert_eq!(unknown["result"]["completion"]["values"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn progress_goes_to_the_backend_that_it_is_about_and_other_notifications_to_all() {
    let (one, two) = (Live::new(&[("", "ask")]), Live::new(&[("", "ask")]));
    let rig = over(&one, |_| {});
    let both = [("a", &one), ("b", &two)];
    let backends = both.map(|(name, live)| (Arc::from(name), Backend::over(spec(name), live.upstream.clone())));
    rig.backends.replace(backends.into());
    let session = rig.open("s").await;
    let mut all = Vec::new();
    for (id, (name, live)) in (1..).zip(both) {
        while rig.upstream.view(&ClientContext::default()).await.view.tool(&format!("{name}_ask")).is_none() {
            quiet().await;
        }
        let mut call = request(&session, id, "tools/call", &json!({ "name": format!("{name}_ask") }));
        call.takes_interim = true;
        let mut replies = rig.upstream.clone().call(call).await.unwrap();
        live.holds("tools/call", "").await;
        live.before("tools/call", "", &asking("sampling/createMessage"));
        let asked = next(replies.interim.as_mut().unwrap()).await;
        all.push((asked["params"]["_meta"]["progressToken"].clone(), replies));
    }
    let params = json!({ "progressToken": all[1].0, "progress": 1 });
    send(&rig, &session, &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
    send(&rig, &session, &json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" })).await;
    for (_, live) in both {
        live.wait("the notification", |one| one["message"]["method"] == "notifications/roots/list_changed").await;
    }
    let progress =
        |live: &Live| live.all().iter().filter(|one| one["message"]["method"] == "notifications/progress").count();
    assert_eq!((progress(&one), progress(&two)), (0, 1), "both chose the same token");
}
