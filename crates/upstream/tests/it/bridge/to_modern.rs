//! Legacy clients in front of a modern server.

use serde_json::json;
use skep_mcp::Era;
use skep_net::Budget;
use skep_upstream::{CallError, Upstream, UpstreamState};

use super::{BOTH, META, PATIENCE, answer, complete, fake, legacy, legacy_call, next, open};
use crate::server::message;

#[tokio::test]
async fn a_legacy_client_uses_every_plain_method_of_a_modern_server() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Modern).await;
        let (ann, opened) = open(&bridge, "ann", &json!({ "roots": {}, "experimental": { "x": {} } })).await;
        let result = &opened["result"];
        assert_eq!(
            (&opened["id"], &result["protocolVersion"], &result["instructions"]),
            (&json!("open"), &json!("2025-03-26"), &json!("be kind"))
        );
        assert_eq!((&result["serverInfo"]["name"], result.get("supportedVersions")), (&json!("fake"), None));
        assert!(result["capabilities"]["logging"].is_object());
        let is_ready = |state: &UpstreamState| state.is_ready_for(Era::Legacy) && state.is_ready_for(Era::Modern);
        assert!(is_ready(&bridge.state().borrow()));
        for (method, params, member) in [
            ("tools/list", json!({ "cursor": "c" }), "tools"),
            ("tools/call", json!({ "name": "echo", "arguments": { "n": 1 } }), "echo"),
            ("resources/list", json!({}), "resources"),
            ("resources/templates/list", json!({}), "resourceTemplates"),
            ("resources/read", json!({ "uri": "a:b" }), "contents"),
            ("prompts/list", json!({}), "prompts"),
            ("prompts/get", json!({ "name": "p" }), "messages"),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "b" } }),
                "completion",
            ),
        ] {
            let response = answer(&bridge, legacy_call(&ann, legacy(&json!("mine"), method, &params))).await;
            let result = &response["result"];
            assert_eq!(response["id"], "mine", "{over:?} {method}");
            assert!(!result[member].is_null(), "{over:?} {method} {response}");
            let members = [result.get("resultType"), result["_meta"].get(format!("{META}serverInfo"))];
            assert_eq!((members, &result["_meta"]["kept"]), ([None, None], &json!(1)), "{method}");
            let seen = fake.received(method).pop().unwrap();
            let meta = &seen.message["params"]["_meta"];
            assert_eq!((&meta[format!("{META}clientInfo")]["name"], &seen.session), (&json!("ann"), &None));
            assert_eq!(
                meta[format!("{META}clientCapabilities")],
                json!({ "experimental": { "x": {} } }),
                "roots cannot be relayed"
            );
        }
        assert_eq!(
            answer(&bridge, legacy_call(&ann, legacy(&json!(1), "ping", &json!({})))).await["result"],
            json!({})
        );
        for (method, code) in [("server/discover", -32601), ("subscriptions/listen", -32601)] {
            assert_eq!(
                answer(&bridge, legacy_call(&ann, legacy(&json!(1), method, &json!({})))).await["error"]["code"],
                code
            );
        }
        let none = legacy(&json!(1), "resources/read", &json!({ "uri": "a:none" }));
        assert_eq!(answer(&bridge, legacy_call(&ann, none)).await["error"]["code"], -32002);
        assert!(fake.received("ping").is_empty() && fake.received("initialize").len() <= 1);
    }
}

#[tokio::test]
async fn progress_and_the_log_of_a_session_come_before_its_responses() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Modern).await;
        let (ann, _) = open(&bridge, "ann", &json!({})).await;
        let call =
            legacy(&json!(1), "tools/call", &json!({ "name": "progress", "_meta": { "progressToken": "mine" } }));
        let (_, before) = complete(&bridge, legacy_call(&ann, call)).await.unwrap();
        let progress: Vec<_> = before
            .iter()
            .map(|one| (one["params"]["progressToken"].clone(), one["params"]["progress"].clone()))
            .collect();
        assert_eq!(progress, [(json!("mine"), json!(1)), (json!("mine"), json!(2))], "{over:?}");
        let wrong =
            answer(&bridge, legacy_call(&ann, legacy(&json!(2), "logging/setLevel", &json!({ "level": "loud" }))))
                .await;
        assert_eq!(wrong["error"]["code"], -32602);
        let set =
            answer(&bridge, legacy_call(&ann, legacy(&json!(2), "logging/setLevel", &json!({ "level": "info" }))))
                .await;
        assert_eq!(set["result"], json!({}));
        let (bob, _) = open(&bridge, "bob", &json!({})).await;
        for (session, level) in [(&ann, json!("info")), (&bob, json!(null))] {
            answer(&bridge, legacy_call(session, legacy(&json!(3), "tools/call", &json!({ "name": "echo" })))).await;
            let seen = fake.received("tools/call").pop().unwrap().message;
            assert_eq!(seen["params"]["_meta"][format!("{META}logLevel")], level, "{session}");
        }
        let (_, before) =
            complete(&bridge, legacy_call(&ann, legacy(&json!(4), "tools/call", &json!({ "name": "log" }))))
                .await
                .unwrap();
        assert!(before.iter().any(|one| one["params"]["level"] == "error"), "{over:?} {before:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_dropped_is_cancelled_at_the_modern_server() {
    for over in BOTH {
        for is_dropped in [false, true] {
            let (bridge, fake) = fake::bridged(over, Era::Modern).await;
            let (ann, _) = open(&bridge, "ann", &json!({})).await;
            let (bob, _) = open(&bridge, "bob", &json!({})).await;
            let request = || legacy(&json!(5), "tools/call", &json!({ "name": "hold" }));
            let mut held = bridge.clone().call(legacy_call(&ann, request())).await.unwrap();
            fake.wait("tools/call", 1).await;
            if is_dropped {
                drop(held);
            } else {
                let cancelled = message(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } }),
                );
                // Ids are those of a session.
                bridge.send(Some(&bob), &cancelled).await.unwrap();
                bridge.send(Some(&ann), &cancelled).await.unwrap();
                let ended = tokio::time::timeout(PATIENCE, held.response.response()).await.unwrap();
                assert_eq!(ended, Err(CallError::Cancelled));
            }
            if over == fake::Over::Stdio {
                let wire = fake.received("tools/call")[0].message["id"].clone();
                assert_eq!(fake.wait("notifications/cancelled", 1).await[0].message["params"]["requestId"], wire);
            }
            let is_idle = async {
                while !bridge.idle_sessions(std::time::Duration::ZERO).contains(&ann) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, is_idle).await.expect("it has no call in flight");
        }
    }
}

#[tokio::test]
async fn a_session_gets_what_it_subscribes_to_and_changes_of_lists() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Modern).await;
        let (ann, _) = open(&bridge, "ann", &json!({})).await;
        assert!(fake.received("subscriptions/listen").is_empty(), "the session wants none yet");
        let mut heard = bridge.events(&ann, Budget::default());
        let first = fake.wait("subscriptions/listen", 1).await.remove(0).message;
        let lists = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
        assert_eq!(first["params"]["notifications"], lists);
        let changed = |id: &serde_json::Value| json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": { format!("{META}subscriptionId"): id } } });
        fake.say("listen", changed(&first["id"])).await;
        assert_eq!(
            next(&mut heard).await,
            json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": {} } })
        );
        let subscribe = |uri: &str| legacy_call(&ann, legacy(&json!(1), "resources/subscribe", &json!({ "uri": uri })));
        assert_eq!(answer(&bridge, subscribe("a:b")).await["result"], json!({}), "{over:?}");
        let second = fake.wait("subscriptions/listen", 2).await.pop().unwrap().message;
        assert_eq!(second["params"]["notifications"]["resourceSubscriptions"], json!(["a:b"]));
        let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "a:b", "_meta": { format!("{META}subscriptionId"): second["id"] } } });
        fake.say(r#"listen ["a:b"]"#, updated.clone()).await;
        assert_eq!(next(&mut heard).await["params"]["uri"], "a:b");
        assert_eq!(answer(&bridge, subscribe("a:none")).await["error"]["code"], -32602, "the server does not grant it");
        fake.wait("subscriptions/listen", 4).await;
        let unsubscribe = legacy_call(&ann, legacy(&json!(1), "resources/unsubscribe", &json!({ "uri": "a:b" })));
        assert_eq!(answer(&bridge, unsubscribe).await["result"], json!({}));
        let last = fake.wait("subscriptions/listen", 5).await.pop().unwrap().message;
        assert_eq!(last["params"]["notifications"], lists);
        bridge.clone().close(&ann);
        assert_eq!(tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_stream_that_the_server_ends_is_opened_again() {
    let (bridge, fake) = fake::bridged(fake::Over::Http, Era::Modern).await;
    let (ann, _) = open(&bridge, "ann", &json!({})).await;
    let mut heard = bridge.events(&ann, Budget::default());
    fake.wait("subscriptions/listen", 1).await;
    fake.end("listen null");
    fake.end("listen");
    fake.wait("subscriptions/listen", 2).await;
    fake.say("listen", json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" })).await;
    assert_eq!(next(&mut heard).await["method"], "notifications/prompts/list_changed");
}

#[tokio::test]
async fn what_a_modern_server_asks_for_during_a_call_is_an_error_of_the_legacy_era() {
    for over in BOTH {
        let (bridge, _fake) = fake::bridged(over, Era::Modern).await;
        for (name, capabilities, code) in [("bare", json!({}), -32600), ("able", json!({ "elicitation": {} }), -32603)]
        {
            let (session, _) = open(&bridge, name, &capabilities).await;
            let response =
                answer(&bridge, legacy_call(&session, legacy(&json!(7), "tools/call", &json!({ "name": "input" }))))
                    .await;
            assert_eq!((&response["id"], &response["error"]["code"]), (&json!(7), &json!(code)), "{over:?} {name}");
        }
    }
}

/// Another replica opened the session, or the server was of another era when this one did.
#[tokio::test]
async fn a_session_goes_on_where_it_was_not_opened() {
    let (bridge, fake) = fake::bridged(fake::Over::Stdio, Era::Modern).await;
    skep_upstream::admission::ready(&mut bridge.state()).await.unwrap();
    let session = skep_upstream::SessionId::from("elsewhere");
    bridge.restore(&session, legacy(&json!(1), "initialize", &json!({ "clientInfo": { "name": "far" } })).body());
    answer(&bridge, legacy_call(&session, legacy(&json!(1), "tools/list", &json!({})))).await;
    let seen = fake.received("tools/list").remove(0).message;
    assert_eq!(seen["params"]["_meta"][format!("{META}clientInfo")]["name"], "far");
    let unknown = skep_upstream::SessionId::from("unknown");
    answer(&bridge, legacy_call(&unknown, legacy(&json!(1), "tools/list", &json!({})))).await;
    let mut idle = bridge.idle_sessions(std::time::Duration::ZERO);
    idle.sort();
    assert_eq!(idle, [session.clone(), unknown]);
    bridge.clone().close(&session);
    assert_eq!(bridge.idle_sessions(std::time::Duration::ZERO).len(), 1);
}
