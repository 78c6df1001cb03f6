//! Modern clients in front of a legacy server.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Map, Value, json};
use skep_auth::{Caller, Identity};
use skep_mcp::Era;
use skep_net::Budget;
use skep_upstream::{BridgedUpstream, Call, CallError, ClientContext, Upstream};

use super::{BOTH, META, PATIENCE, answer, complete, fake, modern, modern_call, next};
use fake::Over;

/// A call of a client with this identity and this token.
fn call_of(subject: Option<&str>, token: &str, id: &Value) -> Call {
    let call = modern(id, "tools/call", &json!({ "name": "echo", "arguments": { "id": id } }), &json!({}));
    let identity =
        subject.map(|subject| Identity { issuer: "https://i".into(), subject: subject.into(), name: "n".into() });
    let caller = identity.map(|identity| Caller { identity, claims: Arc::new(Map::new()), token: None });
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, token.parse().unwrap())]);
    Call { client: ClientContext { caller, headers, ..ClientContext::default() }, ..modern_call(call) }
}

#[tokio::test]
async fn a_modern_client_uses_every_plain_method_of_a_legacy_server() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
        let found = answer(&bridge, modern_call(modern(&json!("d"), "server/discover", &json!({}), &json!({})))).await;
        let result = &found["result"];
        let versions = json!(["2026-07-28", "2025-06-18", "2025-03-26", "2024-11-05"]);
        assert_eq!(
            (&found["id"], &result["supportedVersions"], &result["resultType"]),
            (&json!("d"), &versions, &json!("complete"))
        );
        assert_eq!(
            (&result["instructions"], &result["ttlMs"], &result["cacheScope"]),
            (&json!("be kind"), &json!(0), &json!("private"))
        );
        for (method, params, member, is_cacheable) in [
            ("tools/list", json!({ "cursor": "c" }), "tools", true),
            ("tools/call", json!({ "name": "echo", "arguments": { "n": 1 } }), "echo", false),
            ("resources/list", json!({}), "resources", true),
            ("resources/templates/list", json!({}), "resourceTemplates", true),
            ("resources/read", json!({ "uri": "a:b" }), "contents", true),
            ("prompts/list", json!({}), "prompts", true),
            ("prompts/get", json!({ "name": "p" }), "messages", false),
            ("completion/complete", json!({ "ref": {}, "argument": {} }), "completion", false),
        ] {
            let response = answer(&bridge, modern_call(modern(&json!("mine"), method, &params, &json!({})))).await;
            let result = &response["result"];
            assert_eq!(
                (&response["id"], &result["resultType"]),
                (&json!("mine"), &json!("complete")),
                "{over:?} {method} {response}"
            );
            assert!(!result[member].is_null(), "{method}");
            assert_eq!(result["ttlMs"] == json!(0), is_cacheable, "{method}");
            assert_eq!(
                result["_meta"][format!("{META}serverInfo")],
                json!({ "name": "fake", "version": "1" }),
                "{method}"
            );
            let seen = fake.received(method).pop().unwrap().message;
            assert_eq!(seen["params"]["_meta"], json!({}), "nothing of the other era");
        }
        let none = modern(&json!(1), "resources/read", &json!({ "uri": "a:none" }), &json!({}));
        assert_eq!(answer(&bridge, modern_call(none)).await["error"]["code"], -32602);
        for method in ["ping", "initialize", "logging/setLevel", "resources/subscribe", "tasks/list"] {
            let refused =
                answer(&bridge, modern_call(modern(&json!(1), method, &json!({ "uri": "a:b" }), &json!({})))).await;
            assert_eq!(refused["error"]["code"], -32601, "{method}");
        }
        if over == Over::Http {
            assert_eq!(fake.received("initialize").len(), 1, "one session for all calls");
        }
        assert!(bridge.idle_sessions(std::time::Duration::ZERO).is_empty(), "its own sessions are its own matter");
    }
}

#[tokio::test]
async fn fifty_clients_with_the_same_ids_get_their_own_responses_and_progress() {
    for over in BOTH {
        let (bridge, _fake) = fake::bridged(over, Era::Legacy).await;
        let calls = (0..50).map(|number| {
            let bridge = bridge.clone();
            tokio::spawn(async move {
                for _ in 0..4 {
                    let params = json!({ "name": "progress", "arguments": { "number": number } });
                    let call = modern(&json!(1), "tools/call", &params, &json!({ "progressToken": "t" }));
                    let (response, before) = complete(&bridge, modern_call(call)).await.unwrap();
                    assert_eq!((&response["id"], &response["result"]["echo"]["number"]), (&json!(1), &json!(number)));
                    let tokens: Vec<_> = before.iter().map(|one| one["params"]["progressToken"].clone()).collect();
                    assert_eq!(tokens, ["t", "t"]);
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
    }
}

#[tokio::test]
async fn two_identities_never_share_a_session_and_the_token_of_one_may_change() {
    let (bridge, fake) = fake::bridged(Over::Http, Era::Legacy).await;
    let mut sessions = Vec::new();
    for (subject, token) in [
        (Some("ann"), "Bearer a1"),
        (Some("ann"), "Bearer a2"),
        (Some("bob"), "Bearer a1"),
        (None, "Bearer a1"),
        (None, "Bearer b1"),
    ] {
        answer(&bridge, call_of(subject, token, &json!(1))).await;
        let seen = fake.received("tools/call").pop().unwrap();
        assert_eq!(seen.authorization.as_deref(), Some(token));
        sessions.push(seen.session.unwrap());
    }
    assert_eq!(sessions[0], sessions[1], "a token that was renewed is the same identity");
    assert_eq!(sessions.iter().collect::<BTreeSet<_>>().len(), 4, "{sessions:?}");
}

/// A client on a network that sends another header, and a long name, with each call.
fn hostile_call(budget: &Budget, number: usize) -> Call {
    let long = "x".repeat(100 * 1024);
    let meta = json!({ format!("{META}clientInfo"): { "name": "hostile", "version": "1", "title": long } });
    let call = modern(&json!(number), "tools/call", &json!({ "name": "echo", "arguments": {} }), &meta);
    let headers = [("x-number", number.to_string()), ("x-padding", "y".repeat(4096))];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let client = ClientContext::with_headers(HeaderMap::from_iter(headers));
    Call { client, budget: budget.clone(), ..modern_call(call) }
}

#[tokio::test]
async fn sessions_of_one_client_count_in_its_share_of_the_memory_and_displace_no_others() {
    let (bridge, fake) = fake::bridged(Over::Http, Era::Legacy).await;
    let budget = Budget::new(512 * 1024);
    let (ann, hostile) = (budget.of_client([10, 0, 0, 1].into()), budget.of_client([10, 0, 0, 2].into()));
    let of_ann = || Call { budget: ann.clone(), ..call_of(None, "Bearer a", &json!(1)) };
    answer(&bridge, of_ann()).await;
    for number in 0..100 {
        let response = answer(&bridge, hostile_call(&hostile, number)).await;
        assert_eq!(response["id"], json!(number));
        assert!(budget.held() <= budget.limit() / 2 + 16 * 1024, "{}", budget.held());
    }
    let handshakes = fake.received("initialize");
    assert!(handshakes.iter().all(|one| one.message.to_string().len() < 2048), "the long name is not kept");
    fake.wait("DELETE", 50).await;
    answer(&bridge, of_ann()).await;
    assert_eq!(fake.received("initialize").len(), handshakes.len(), "ann still has her session");
}

#[tokio::test]
async fn a_client_that_uses_all_of_its_share_is_told_to_come_back_and_others_are_served() {
    let (bridge, _fake) = fake::bridged(Over::Http, Era::Legacy).await;
    let budget = Budget::new(256 * 1024);
    let hostile = budget.of_client([10, 0, 0, 2].into());
    let mut open = Vec::new();
    let refused = loop {
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let call = modern(&json!(open.len()), "subscriptions/listen", &params, &json!({}));
        let call = Call { client: hostile_call(&hostile, 0).client, budget: hostile.clone(), ..modern_call(call) };
        match bridge.clone().call(call).await {
            Ok(replies) => open.push(replies),
            Err(error) => break error,
        }
        assert!(open.len() < 100, "each of them is kept");
    };
    assert!(matches!(refused, CallError::Busy(_)), "{refused}");
    let ann = Call { budget: budget.of_client([10, 0, 0, 1].into()), ..call_of(None, "Bearer a", &json!(1)) };
    answer(&bridge, ann).await;
    drop(open);
    let released = async {
        while budget.held() > budget.limit() / 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, released).await.expect("what was kept is released");
    answer(&bridge, hostile_call(&hostile, 1)).await;
}

#[tokio::test]
async fn a_handshake_that_many_calls_wait_for_is_made_once() {
    let (bridge, fake) = fake::bridged(Over::Http, Era::Legacy).await;
    let calls: Vec<_> = (0..10)
        .map(|number| {
            let bridge = bridge.clone();
            tokio::spawn(async move { answer(&bridge, call_of(Some("ann"), "Bearer a", &json!(number))).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap()["id"], json!(number));
    }
    assert_eq!(fake.received("initialize").len(), 1);
}

#[tokio::test]
async fn a_call_that_asks_for_a_log_gets_its_own_and_no_other_call_does() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
        let call = |level: Option<&str>| {
            let meta = level.map_or_else(|| json!({}), |level| json!({ format!("{META}logLevel"): level }));
            modern_call(modern(&json!(1), "tools/call", &json!({ "name": "log", "arguments": {} }), &meta))
        };
        let (_, before) = complete(&bridge, call(None)).await.unwrap();
        assert_eq!(before, Vec::<Value>::new(), "{over:?}: it did not ask for it");
        let (_, before) = complete(&bridge, call(Some("info"))).await.unwrap();
        let levels: Vec<_> = before.iter().map(|one| one["params"]["level"].clone()).collect();
        assert_eq!(levels, ["info", "error"], "{over:?}");
        assert_eq!(fake.wait("logging/setLevel", 1).await[0].message["params"]["level"], "info");
        assert_eq!(answer(&bridge, call(Some("loud"))).await["error"]["code"], -32602);
        if over == Over::Http {
            fake.wait("DELETE", 1).await;
            let sessions: BTreeSet<_> = fake.received("tools/call").into_iter().map(|seen| seen.session).collect();
            assert_eq!(sessions.len(), 2, "the log of a call is that of its session");
        }
    }
}

#[tokio::test]
async fn a_question_of_a_legacy_server_is_refused_and_ends_the_call() {
    for over in BOTH {
        for (method, capabilities, expected) in [
            ("elicitation/create", json!({}), -32021),
            ("elicitation/create", json!({ "elicitation": {} }), -32603),
            ("sampling/createMessage", json!({}), -32021),
            ("roots/list", json!({ "roots": {} }), -32603),
        ] {
            let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
            let meta = json!({ format!("{META}clientCapabilities"): capabilities });
            let call =
                modern(&json!(7), "tools/call", &json!({ "name": "ask", "arguments": { "method": method } }), &meta);
            for takes_interim in [true, false] {
                let call = Call { takes_interim, ..modern_call(call.clone()) };
                let error = complete(&bridge, call).await.unwrap_err();
                let CallError::NeedsClient(refused) = &error else { panic!("{over:?} {method} {error:?}") };
                assert_eq!(refused.code(), expected, "{over:?} {method}");
                let name = method.split('/').next().unwrap();
                let body: Value = serde_json::from_slice(&error.answer(Some(&skep_mcp::Id::number(7)))).unwrap();
                let data =
                    if expected == -32021 { json!({ "requiredCapabilities": { name: {} } }) } else { json!(null) };
                assert_eq!((&body["id"], &body["error"]["data"]), (&json!(7), &data));
            }
            assert!(fake.answered().await["error"]["code"].is_number(), "the server is told");
            assert!(fake.received("notifications/cancelled").is_empty(), "it ended the call itself");
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_legacy_server() {
    for over in BOTH {
        for meta in [json!({}), json!({ format!("{META}logLevel"): "info" })] {
            let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
            let call = modern(&json!("x"), "tools/call", &json!({ "name": "hold" }), &meta);
            let held = bridge.clone().call(modern_call(call)).await.unwrap();
            let wire = fake.wait("tools/call", 1).await.remove(0);
            drop(held);
            let cancelled = fake.wait("notifications/cancelled", 1).await.remove(0);
            assert_eq!(
                (&cancelled.message["params"]["requestId"], &cancelled.session),
                (&wire.message["id"], &wire.session),
                "{over:?}"
            );
            // A call that asks for a log has a session of its own, which ends with it.
            if over == Over::Http && meta != json!({}) {
                fake.wait("DELETE", 1).await;
                let methods = fake.methods();
                let place = |method: &str| methods.iter().position(|one| one.contains(method));
                assert!(place("notifications/cancelled") < place("DELETE"), "{methods:?}");
            }
        }
    }
}

/// A subscription of a modern client, acknowledged.
async fn subscribed(bridge: &Arc<BridgedUpstream>, filter: Value) -> (skep_upstream::Replies, Value) {
    let listen = modern(&json!("sub"), "subscriptions/listen", &json!({ "notifications": filter }), &json!({}));
    let called = tokio::time::timeout(PATIENCE, bridge.clone().call(modern_call(listen))).await.unwrap();
    let mut replies = called.unwrap();
    let first = next(replies.interim.as_mut().unwrap()).await;
    (replies, first)
}

#[tokio::test]
async fn a_subscription_of_a_modern_client_is_a_session_that_subscribes() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
        let filter =
            json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:b", "a:none"] });
        let (mut replies, first) = subscribed(&bridge, filter).await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{over:?}");
        assert_eq!(
            first["params"]["notifications"],
            json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] }),
            "what the server has"
        );
        assert_eq!(first["params"]["_meta"][format!("{META}subscriptionId")], "sub");
        let updated = |uri: &str| json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } });
        for message in [
            json!({ "jsonrpc": "2.0", "method": "notifications/resources/list_changed" }),
            updated("other:1"),
            updated("a:b"),
        ] {
            fake.say("session", message).await;
        }
        let heard = next(replies.interim.as_mut().unwrap()).await;
        assert_eq!(
            (&heard["params"]["uri"], &heard["params"]["_meta"][format!("{META}subscriptionId")]),
            (&json!("a:b"), &json!("sub")),
            "and only that"
        );
        fake.say("session", json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
        assert_eq!(next(replies.interim.as_mut().unwrap()).await["method"], "notifications/tools/list_changed");
        assert!(fake.received("resources/unsubscribe").is_empty());
        drop(replies);
        assert_eq!(fake.wait("resources/unsubscribe", 1).await[0].message["params"]["uri"], "a:b");
        if over == Over::Http {
            let closed = fake.wait("DELETE", 1).await.remove(0);
            assert_eq!(closed.session, fake.received("resources/subscribe")[0].session);
        }
    }
}

#[tokio::test]
async fn a_subscription_that_cannot_be_is_refused() {
    let (bridge, _fake) = fake::bridged(Over::Stdio, Era::Legacy).await;
    for (filter, takes_interim, code) in [
        (json!(null), true, -32602),
        (json!({ "resourceSubscriptions": [1] }), true, -32602),
        (json!({}), false, -32600),
    ] {
        let listen = modern(&json!(1), "subscriptions/listen", &json!({ "notifications": filter }), &json!({}));
        let call = Call { takes_interim, ..modern_call(listen) };
        assert_eq!(answer(&bridge, call).await["error"]["code"], code, "{filter}");
    }
}
