use serde_json::{Value, json};
use skep_mcp::Era;
use skep_net::Budget;
use tokio::sync::mpsc::error::TryRecvError;

use super::super::server_requests::ASKED;
use super::*;
use crate::stdio::cancellation::REASON;
use crate::stdio::capabilities::ClientCapabilities;

const WAIT: Duration = Duration::from_secs(30);

pub(crate) fn message(value: &Value) -> Message {
    Message::parse(value.to_string().into()).unwrap()
}

pub(crate) fn request(id: &Value, method: &str, params: &Value) -> Message {
    message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// A request of the server.
pub(crate) fn elicitation() -> Message {
    request(&json!("theirs"), "elicitation/create", &json!({}))
}

/// What the server hears next.
pub(in crate::stdio) async fn heard(queued: &mut mpsc::Receiver<Line>) -> Value {
    serde_json::from_slice(&queued.recv().await.unwrap().render().unwrap()).unwrap()
}

/// The number of the request that the server hears next.
pub(in crate::stdio) fn sent(queued: &mut mpsc::Receiver<Line>) -> u64 {
    std::iter::from_fn(|| queued.try_recv().ok()).find_map(|line| line.request).unwrap()
}

/// A session whose client can answer anything, and where it listens.
pub(crate) fn capable(upstream: &StdioUpstream, name: &str) -> (SessionId, mpsc::Receiver<Bytes>) {
    let session: SessionId = name.into();
    let heard = upstream.listen(&session, Budget::default());
    upstream.register(&session, all_capabilities());
    (session, heard)
}

fn all_capabilities() -> ClientCapabilities {
    ClientCapabilities { roots: true, sampling: true, sampling_tools: true, elicitation: true, elicitation_url: true }
}

/// Whether the server's request is refused.
fn is_refused(reply: Option<&Bytes>) -> bool {
    reply.is_some_and(|reply| serde_json::from_slice::<Value>(reply).unwrap()["error"]["code"] == -32601)
}

#[tokio::test]
async fn two_proxies_of_one_server_do_not_take_each_others_answers() {
    let (one, mut to_one) = StdioUpstream::with_server();
    let (two, mut to_two) = StdioUpstream::with_server();
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let mut first = one.forward(&slow, Era::Legacy, None, None).await.unwrap();
    let mut second = two.forward(&slow, Era::Legacy, None, None).await.unwrap();
    let (asked, other) = (heard(&mut to_one).await["id"].clone(), heard(&mut to_two).await["id"].clone());
    assert_ne!(asked, other);
    assert!(asked.as_u64().unwrap() < 1 << 31, "{asked}");
    // Both hear what the server says.
    let answer = message(&json!({ "jsonrpc": "2.0", "id": other, "result": { "of": "two" } }));
    for upstream in [&one, &two] {
        assert_eq!(upstream.dispatch(&answer), None);
    }
    assert!(second.response().await.is_ok());
    assert!(tokio::time::timeout(Duration::ZERO, first.response()).await.is_err());
}

#[tokio::test]
async fn a_token_of_a_client_that_takes_no_progress_is_no_other_calls_number() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (sender, mut interim) = mpsc::channel(1);
    let call = |token: &Value| request(&json!(1), "tools/call", &json!({ "_meta": { "progressToken": token } }));
    let _watched = upstream.forward(&call(&json!("mine")), Era::Legacy, None, Some(sender)).await.unwrap();
    let number = heard(&mut queued).await["id"].clone();
    let _plain = upstream.forward(&call(&number), Era::Legacy, None, None).await.unwrap();
    let plain = heard(&mut queued).await;
    assert_eq!(plain["params"]["_meta"]["progressToken"], plain["id"]);
    let report = |token: &Value| {
        let params = json!({ "progressToken": token, "progress": 1 });
        message(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    };
    upstream.dispatch(&report(&plain["id"]));
    assert_eq!(interim.try_recv(), Err(TryRecvError::Empty));
    upstream.dispatch(&report(&number));
    let passed: Value = serde_json::from_slice(&interim.try_recv().unwrap()).unwrap();
    assert_eq!(passed["params"]["progressToken"], "mine");
}

#[tokio::test]
async fn a_client_without_a_session_cancels_no_request() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let _call = upstream.forward(&request(&json!(1), "tools/call", &json!({})), Era::Legacy, None, None).await.unwrap();
    heard(&mut queued).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    upstream.cancel(&message(&cancel), None);
    assert!(queued.try_recv().is_err());
}

#[tokio::test]
async fn a_request_about_one_clients_call_never_goes_to_another() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let (_other, mut other_hears) = capable(&upstream, "other");
    let call = request(&json!(1), "tools/call", &json!({}));
    // One that takes JSON only, and does not listen.
    let deaf = upstream.forward(&call, Era::Legacy, Some("deaf".into()), None).await.unwrap();
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "emergency" } });
    upstream.with(|state| state.sessions.get_mut("other").unwrap().level = Some(7));
    upstream.dispatch(&message(&log));
    drop(deaf);
    // One without a session.
    let _nameless = upstream.forward(&call, Era::Legacy, None, None).await.unwrap();
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    assert_eq!(other_hears.try_recv(), Err(TryRecvError::Empty));
}

/// What the server works on although its client left is still about that client.
#[tokio::test(start_paused = true)]
async fn a_question_about_work_that_was_left_is_never_put_to_another() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (one, mut one_hears) = capable(&upstream, "one");
    let (two, mut two_hears) = capable(&upstream, "two");
    let call = request(&json!(1), "tools/call", &json!({}));
    drop(upstream.forward(&call, Era::Legacy, Some(one.clone()), None).await.unwrap());
    let wire = sent(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(one_hears.try_recv().is_ok(), "it listens");
    // Another session has a call in flight: either can be meant.
    let _other = upstream.forward(&call, Era::Legacy, Some(two), None).await.unwrap();
    let answer = |wire: u64| message(&json!({ "jsonrpc": "2.0", "id": wire, "result": {} }));
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    upstream.dispatch(&answer(sent(&mut queued)));
    // However long ago it was.
    drop(one_hears);
    tokio::time::sleep(100 * WAIT).await;
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    upstream.end(&one);
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    assert_eq!(two_hears.try_recv(), Err(TryRecvError::Empty));
    // It is answered: the work is over.
    upstream.dispatch(&answer(wire));
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(two_hears.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_left_blocks_no_other_for_long() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let (two, mut two_hears) = capable(&upstream, "two");
    let call = request(&json!(1), "tools/call", &json!({}));
    drop(upstream.forward(&call, Era::Legacy, Some("one".into()), None).await.unwrap());
    let _call = upstream.forward(&call, Era::Legacy, Some(two), None).await.unwrap();
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    tokio::time::sleep(2 * WAIT).await;
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(two_hears.try_recv().is_ok());
}

#[tokio::test]
async fn a_server_that_heard_of_no_call_does_not_ask_about_it() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (_two, mut two_hears) = capable(&upstream, "two");
    let call = request(&json!(1), "tools/call", &json!({}));
    drop(upstream.forward(&call, Era::Legacy, Some("one".into()), None).await.unwrap());
    assert!(!upstream.is_wanted(&queued.try_recv().unwrap()), "it is not sent");
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(two_hears.try_recv().is_ok());
    // A server that was restarted has forgotten all.
    drop(upstream.forward(&call, Era::Legacy, Some("one".into()), None).await.unwrap());
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    upstream.disconnected(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(two_hears.try_recv().is_ok());
}

#[tokio::test]
async fn more_calls_were_left_than_are_remembered_and_still_no_other_client_is_asked() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (_two, mut two_hears) = capable(&upstream, "two");
    let call = request(&json!(1), "tools/call", &json!({}));
    let mut last = 0;
    for _ in 0..2000 {
        drop(upstream.forward(&call, Era::Legacy, Some("one".into()), None).await.unwrap());
        while let Ok(line) = queued.try_recv() {
            last = line.request.unwrap_or(last);
        }
    }
    for wire in last - 2000..=last {
        upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": wire, "result": {} })));
    }
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    assert_eq!(two_hears.try_recv(), Err(TryRecvError::Empty));
}

#[tokio::test]
async fn requests_of_our_own_and_of_todays_protocol_have_no_questions() {
    let (upstream, _queued) = StdioUpstream::with_server_of(Era::Modern);
    let (_other, mut other_hears) = capable(&upstream, "other");
    let _ours = upstream.call_internally(&request(&json!(0), "tools/list", &json!({}))).await.unwrap();
    let call = request(&json!(1), "tools/call", &json!({}));
    let _modern = upstream.forward(&call, Era::Modern, None, None).await.unwrap();
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(other_hears.try_recv().is_ok());
}

fn notification(method: &str) -> Message {
    message(&json!({ "jsonrpc": "2.0", "method": method, "params": { "level": "error", "taskId": "t" } }))
}

#[tokio::test(start_paused = true)]
async fn what_may_be_about_one_clients_call_goes_to_no_other() {
    let (upstream, mut queued) = StdioUpstream::with_server_of(Era::Modern);
    let (one, mut one_hears) = capable(&upstream, "one");
    let (two, mut two_hears) = capable(&upstream, "two");
    for name in ["one", "two"] {
        upstream.with(|state| state.sessions.get_mut(name).unwrap().level = Some(7));
    }
    let about_work = ["notifications/message", "notifications/unheard-of"].map(notification);
    let mut heard = || {
        let count = |hears: &mut mpsc::Receiver<Bytes>| std::iter::from_fn(|| hears.try_recv().ok()).count();
        (count(&mut one_hears), count(&mut two_hears))
    };
    let say = || about_work.iter().for_each(|said| drop(upstream.dispatch(said)));
    let answer = |wire: u64| drop(upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": wire, "result": {} }))));
    let call = request(&json!(1), "tools/call", &json!({}));
    // No call is in flight: a log message is for every session that set a level.
    say();
    assert_eq!(heard(), (1, 1));
    let first = upstream.forward(&call, Era::Legacy, Some(one), None).await.unwrap();
    let first_wire = sent(&mut queued);
    say();
    assert_eq!(heard(), (2, 0));
    let _second = upstream.forward(&call, Era::Legacy, Some(two), None).await.unwrap();
    let second_wire = sent(&mut queued);
    say();
    assert_eq!(heard(), (0, 0), "either may be meant");
    drop(first);
    say();
    assert_eq!(heard(), (0, 0), "the server may not heed that");
    answer(first_wire);
    say();
    assert_eq!(heard(), (0, 2));
    let modern = upstream.forward(&call, Era::Modern, None, None).await.unwrap();
    say();
    assert_eq!(heard(), (0, 0), "one of today's protocol is at work, too");
    answer(second_wire);
    say();
    assert_eq!(heard(), (0, 0));
    drop(modern);
    tokio::time::sleep(2 * WAIT).await;
    say();
    assert_eq!(heard(), (1, 1));
    upstream.connected(Some(WAIT));
    say();
    assert_eq!(heard(), (0, 0), "it may be about work of another proxy's callers");
}

#[tokio::test]
async fn lists_that_changed_are_for_all_clients_and_a_task_is_for_none() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let ((one, mut one_hears), (_two, mut two_hears)) = (capable(&upstream, "one"), capable(&upstream, "two"));
    let _call =
        upstream.forward(&request(&json!(1), "tools/call", &json!({})), Era::Legacy, Some(one), None).await.unwrap();
    for list in ["tools", "prompts", "resources"] {
        upstream.dispatch(&notification(&format!("notifications/{list}/list_changed")));
        assert!(one_hears.try_recv().is_ok() && two_hears.try_recv().is_ok(), "{list}");
    }
    upstream.dispatch(&notification("notifications/tasks/status"));
    assert!(one_hears.try_recv().is_err() && two_hears.try_recv().is_err());
}

/// What their clients declared does not say whose call it is about: it may be about the one that cannot answer.
#[tokio::test]
async fn a_question_is_refused_while_several_clients_have_calls_in_flight() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (able, mut able_hears) = capable(&upstream, "able");
    let unable: SessionId = "unable".into();
    upstream.register(&unable, ClientCapabilities::default());
    let call = request(&json!(1), "tools/call", &json!({}));
    let answer = |wire: u64| message(&json!({ "jsonrpc": "2.0", "id": wire, "result": {} }));
    let _first = upstream.forward(&call, Era::Legacy, Some(able), None).await.unwrap();
    sent(&mut queued);
    // One that cannot answer, one of which nothing is known, one without a session.
    for beside in [Some(unable), Some("stranger".into()), None] {
        let _second = upstream.forward(&call, Era::Legacy, beside, None).await.unwrap();
        let wire = sent(&mut queued);
        assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
        assert_eq!(able_hears.try_recv(), Err(TryRecvError::Empty));
        upstream.dispatch(&answer(wire));
    }
    // The only one that is left is asked.
    let (_idle, mut idle_hears) = capable(&upstream, "idle");
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(able_hears.try_recv().is_ok());
    assert_eq!(idle_hears.try_recv(), Err(TryRecvError::Empty));
}

/// The body may say anything: the proxy and the server need not read the same in it.
#[tokio::test]
async fn the_era_that_a_call_was_admitted_in_says_whom_a_question_concerns() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let (_other, mut other_hears) = capable(&upstream, "other");
    let meta = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": skep_mcp::era::MODERN } });
    for method in ["tools/call", "subscriptions/listen"] {
        let call = upstream.forward(&request(&json!(1), method, &meta), Era::Legacy, Some("deaf".into()), None).await;
        assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()), "{method}");
        assert_eq!(other_hears.try_recv(), Err(TryRecvError::Empty), "{method}");
        drop(call);
        upstream.with(|state| state.left = AbandonedCalls::default());
    }
}

#[tokio::test]
async fn requests_that_no_client_answers_are_refused_in_the_end() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (session, mut hears) = capable(&upstream, "s");
    let question = |id: usize| request(&json!(id), "elicitation/create", &json!({}));
    let mut last = Bytes::new();
    for id in 0..ASKED {
        assert_eq!(upstream.dispatch(&question(id)), None);
        last = hears.try_recv().unwrap();
    }
    let refused = upstream.dispatch(&question(ASKED));
    assert!(is_refused(refused.as_ref()));
    assert_eq!(serde_json::from_slice::<Value>(&refused.unwrap()).unwrap()["id"], 0, "the oldest");
    assert_eq!(upstream.with(|state| state.asked.len()), ASKED);
    // The others can be answered.
    let last: Value = serde_json::from_slice(&last).unwrap();
    let answer = message(&json!({ "jsonrpc": "2.0", "id": last["id"], "result": {} }));
    upstream.forward_notification(&answer, Some(&session)).await.unwrap();
    assert_eq!(heard(&mut queued).await["id"], ASKED - 1);
}

#[tokio::test]
async fn who_left_without_a_word_is_not_counted_among_those_who_can_answer() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let (_left, left_hears) = capable(&upstream, "left");
    let (_here, mut here_hears) = capable(&upstream, "here");
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()), "either may be meant");
    drop(left_hears);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(here_hears.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_concerns_no_client_is_left_to_the_previous_proxy_for_a_while() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (session, mut hears) = capable(&upstream, "s");
    upstream.connected(Some(WAIT));
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert_eq!(hears.try_recv(), Err(TryRecvError::Empty), "no call is in flight here");
    assert!(queued.try_recv().is_err());
    // What concerns a client of ours is asked at once.
    let call = upstream
        .forward(&request(&json!(1), "tools/call", &json!({})), Era::Legacy, Some(session), None)
        .await
        .unwrap();
    assert_eq!(heard(&mut queued).await["method"], "tools/call");
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(hears.try_recv().is_ok());
    drop(call);
    assert_eq!(heard(&mut queued).await["method"], "notifications/cancelled");
    // After that time the server gets a refusal, and a client that can answer is asked.
    assert_eq!(heard(&mut queued).await["error"]["code"], -32601);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(hears.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_leaves_refuses_nothing_in_the_name_of_the_next() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    upstream.connected(Some(WAIT));
    tokio::time::sleep(2 * WAIT).await;
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()), "it is alone by now");
    upstream.leave();
    assert_eq!(upstream.dispatch(&elicitation()), None);
    tokio::time::sleep(2 * WAIT).await;
    assert!(queued.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_on_this_machine_has_one_proxy_and_is_refused_at_once() {
    let (upstream, _queued) = StdioUpstream::with_server();
    upstream.connected(None);
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
    upstream.leave();
    assert!(is_refused(upstream.dispatch(&elicitation()).as_ref()));
}

#[tokio::test]
async fn a_request_of_the_server_is_refused_for_a_client_that_did_not_declare_the_capability() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let (able, mut able_hears) = capable(&upstream, "able");
    let call = request(&json!(1), "tools/call", &json!({}));
    let unable: SessionId = "unable".into();
    let mut unable_hears = upstream.listen(&unable, Budget::default());
    upstream.register(&unable, ClientCapabilities::default());
    let working = upstream.forward(&call, Era::Legacy, Some(unable), None).await.unwrap();
    let refused = upstream.dispatch(&elicitation()).unwrap();
    let refused: Value = serde_json::from_slice(&refused).unwrap();
    let message = "elicitation/create: the client does not support elicitation";
    assert_eq!(refused["error"], json!({ "code": -32601, "message": message }));
    assert_eq!(unable_hears.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(able_hears.try_recv(), Err(TryRecvError::Empty));
    drop(working);
    upstream.with(|state| state.left = AbandonedCalls::default());
    let _working = upstream.forward(&call, Era::Legacy, Some(able), None).await.unwrap();
    assert_eq!(upstream.dispatch(&elicitation()), None);
    assert!(able_hears.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_listens_is_not_forgotten_at_the_moment_when_its_stream_breaks() {
    let (upstream, _queued) = StdioUpstream::with_server();
    let session: SessionId = "ann".into();
    let listening = upstream.listen(&session, Budget::default());
    for _ in 0..3 {
        tokio::time::advance(WAIT).await;
        assert!(upstream.idle(WAIT).is_empty());
    }
    drop(listening);
    assert!(upstream.idle(WAIT).is_empty());
    tokio::time::advance(WAIT).await;
    assert_eq!(upstream.idle(WAIT), [session]);
}

/// Item 17-8: what waits for a server that does not read is counted, also if it wants no response.
#[tokio::test]
async fn item_8_notifications_and_answers_of_clients_count_until_they_are_written() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let budget = skep_net::Budget::new(16 << 20);
    let long = "x".repeat(100_000);
    let (ann, mut hears) = capable(&upstream, "ann");
    assert_eq!(upstream.dispatch(&elicitation()), None);
    let question: Value = serde_json::from_slice(&hears.try_recv().unwrap()).unwrap();
    let reason = "x".repeat(REASON / 2);
    let slow = request(&json!(7), "tools/call", &json!({ "name": "slow" }));
    let _call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), None).await.unwrap();
    sent(&mut queued);
    for value in [
        json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed", "params": { "x": long } }),
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "x": long } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7, "reason": reason } }),
    ] {
        let body = budget.hold(value.to_string().into(), skep_net::budget::Purpose::Request).unwrap();
        let counted = budget.held();
        assert_eq!(counted, body.len());
        upstream.forward_notification(&Message::parse(body).unwrap(), Some(&ann)).await.unwrap();
        assert_eq!(budget.held(), counted, "{}", value["method"]);
        assert!(queued.try_recv().is_ok());
        assert_eq!(budget.held(), 0);
    }
}
