use serde_json::json;
use skep_net::drain::Grace;
use skep_store::Memory;

use super::super::bridge::tests::{message, request, sent};
use super::*;
use crate::sessions::{Kind, Store};

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_does_not_wait_behind_a_message_that_waits_for_room() {
    let (bridge, mut queued) = Bridge::with_server();
    let budget = Budget::new(1 << 20);
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Sse);
    let sse = Sse::new(bridge.clone(), sessions, Duration::from_mins(10), false, drain);
    let (answers, _answered) = mpsc::channel(LISTENER);
    let _others = budget.reserve(900_000, Purpose::Response).unwrap();
    let call = {
        let budget = budget.clone();
        tokio::spawn(async move {
            let params = json!({ "name": "slow", "_meta": { "progressToken": "mine" } });
            let call = request(&json!(1), "tools/call", &params);
            sse.forward(&call, Era::Legacy, &"s".into(), &answers, &ReplyChain::default(), &budget).await
        })
    };
    while queued.is_empty() {
        tokio::task::yield_now().await;
    }
    let wire = sent(&mut queued);
    let long = "x".repeat(200_000);
    let params = json!({ "progressToken": wire, "progress": 1, "message": long });
    bridge.dispatch(&message(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })));
    while budget.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    bridge.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": wire, "result": { "text": long } })));
    assert!(call.await.unwrap().unwrap().len() > 200_000);
    assert_eq!((budget.refused(), budget.waiters()), (0, 0), "it is counted from here on");
}
