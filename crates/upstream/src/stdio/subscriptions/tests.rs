use serde_json::{Value, json};

use super::super::line::LineText;
use super::super::upstream::tests::{heard, request};
use super::*;
use crate::upstream::{Call, Upstream as _};

/// The response to a client that subscribes to a resource, or unsubscribes. The server agrees to everything.
async fn ask(upstream: &Arc<StdioUpstream>, method: &str, uri: &str, session: &str, budget: &Budget) -> Value {
    let message = request(&json!(1), method, &json!({ "uri": uri }));
    let answered = upstream.change_session(&message, &session.into(), budget).await.unwrap().unwrap();
    serde_json::from_slice(answered.body()).unwrap()
}

#[tokio::test]
async fn item_8_subscriptions_count_and_leave_room_for_calls() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let agreeing = upstream.clone();
    tokio::spawn(async move {
        loop {
            let id = heard(&mut queued).await["id"].clone();
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string();
            agreeing.dispatch(&Message::parse(answer.into()).unwrap());
        }
    });
    let budget = Budget::new(1 << 20);
    let [one, other, third] = [1, 2, 3].map(|number| budget.of_client([192, 0, 2, number].into()));
    let uri = |number: usize| format!("file:///{number:06}{}", "x".repeat(7000));
    let each = uri(0).len() + SUBSCRIPTION;
    // Whatever sessions it has, one client may have an eighth of the budget.
    let most = budget.limit() / PART / 2 / each;
    for number in 0..most {
        let answer = ask(&upstream, "resources/subscribe", &uri(number), &format!("s{}", number % 3), &one).await;
        assert!(answer["result"].is_object(), "{number}: {answer}");
        assert_eq!(budget.held(), (number + 1) * each);
    }
    let refused = ask(&upstream, "resources/subscribe", &uri(most), "s9", &one).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("no room for another subscription"), "{refused}");
    // To say it again takes nothing more.
    let again = ask(&upstream, "resources/subscribe", &uri(0), "s0", &one).await;
    assert!(again["result"].is_object(), "{again}");
    assert_eq!(budget.held(), most * each);
    // Others have room, and all together a quarter of the budget.
    for number in 0..most {
        let answer = ask(&upstream, "resources/subscribe", &uri(number), "o", &other).await;
        assert!(answer["result"].is_object(), "{number}: {answer}");
    }
    let refused = ask(&upstream, "resources/subscribe", &uri(0), "t", &third).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(budget.held() <= budget.limit() / PART);
    // What is given up makes room, and so does a session that ends.
    ask(&upstream, "resources/unsubscribe", &uri(0), "s0", &one).await;
    assert_eq!(budget.held(), (2 * most - 1) * each);
    for session in ["s0", "s1", "s2", "o"] {
        upstream.end(&session.into());
    }
    while budget.held() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_the_proxys_own_waits_no_longer_than_it_may_for_a_server_that_does_not_read() {
    let (upstream, _queued) = StdioUpstream::with_server();
    for _ in 0..super::super::upstream::QUEUE {
        upstream.send_line(|| Some(LineText::Whole("{}\n".into()))).await.unwrap();
    }
    let since = Instant::now();
    upstream.request_internally("logging/setLevel", "{}", TIMEOUT).await;
    assert_eq!(since.elapsed(), TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_whose_client_leaves_is_cancelled_at_the_server() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let message = request(&json!(1), "resources/subscribe", &json!({ "uri": "a:b" }));
    let (session, budget) = (Some("a".into()), Budget::new(1 << 20));
    let call = Call { session, budget, ..Call::new(message, Era::Legacy) };
    let called = tokio::time::timeout(TIMEOUT, upstream.clone().call(call)).await;
    assert!(called.is_err(), "the server has not agreed");
    assert_eq!(heard(&mut queued).await["method"], "resources/subscribe");
    assert_eq!(heard(&mut queued).await["method"], "notifications/cancelled");
    assert_eq!(upstream.subscribed(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn however_often_clients_change_the_log_level_one_request_waits_for_the_server() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let budget = Budget::new(1 << 20);
    let set = |level: &str| request(&json!(1), "logging/setLevel", &json!({ "level": level }));
    for level in ["debug", "info"].into_iter().cycle().take(1000).chain(["error"]) {
        let answered = upstream.change_session(&set(level), &"s".into(), &budget).await;
        assert!(answered.unwrap().is_ok());
    }
    tokio::task::yield_now().await;
    let mut levels = Vec::new();
    while let Ok(line) = tokio::time::timeout(TIMEOUT, heard(&mut queued)).await {
        levels.push(line["params"]["level"].clone());
        let answer = json!({ "jsonrpc": "2.0", "id": line["id"], "result": {} }).to_string();
        upstream.dispatch(&Message::parse(answer.into()).unwrap());
    }
    assert!(levels.len() <= 2, "{} requests", levels.len());
    assert_eq!(levels.last().unwrap(), "error", "the latest one");
}
