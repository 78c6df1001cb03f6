use serde_json::{Value, json};

use super::super::bridge::tests::{heard, request};
use super::*;

const WAIT: Duration = Duration::from_secs(30);

/// What a client is told who wants to hear of a resource, or not any more. The server agrees to everything.
async fn ask(bridge: &Arc<Bridge>, method: &str, uri: &str, session: &str, budget: &Budget) -> Value {
    let message = request(&json!(1), method, &json!({ "uri": uri }));
    let answered = bridge.interest(&message, &session.into(), budget, WAIT).await.unwrap().unwrap();
    serde_json::from_slice(answered.body()).unwrap()
}

#[tokio::test]
async fn item_8_subscriptions_count_and_leave_room_for_calls() {
    let (bridge, mut queued) = Bridge::with_server();
    let agreeing = bridge.clone();
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
        let answer = ask(&bridge, "resources/subscribe", &uri(number), &format!("s{}", number % 3), &one).await;
        assert!(answer["result"].is_object(), "{number}: {answer}");
        assert_eq!(budget.held(), (number + 1) * each);
    }
    let refused = ask(&bridge, "resources/subscribe", &uri(most), "s9", &one).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("no room for another subscription"), "{refused}");
    // To say it again takes nothing more.
    let again = ask(&bridge, "resources/subscribe", &uri(0), "s0", &one).await;
    assert!(again["result"].is_object(), "{again}");
    assert_eq!(budget.held(), most * each);
    // Others have room, and all together a quarter of the budget.
    for number in 0..most {
        let answer = ask(&bridge, "resources/subscribe", &uri(number), "o", &other).await;
        assert!(answer["result"].is_object(), "{number}: {answer}");
    }
    let refused = ask(&bridge, "resources/subscribe", &uri(0), "t", &third).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(budget.held() <= budget.limit() / PART);
    // What is given up makes room, and so does a session that ends.
    ask(&bridge, "resources/unsubscribe", &uri(0), "s0", &one).await;
    assert_eq!(budget.held(), (2 * most - 1) * each);
    for session in ["s0", "s1", "s2", "o"] {
        bridge.end(&session.into(), WAIT);
    }
    while budget.held() > 0 {
        tokio::task::yield_now().await;
    }
}
