//! What clients hear outside of their calls: changed lists, changed resources and logs, in both eras.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use skep_auth::token_exchange::{ExchangeOptions, TokenExchange};
use skep_net::{Addresses, Budget};
use skep_upstream::{BoxFuture, Call, ClientContext, SessionId, SessionKeeper, Upstream as _};
use skep_vmcp::backend::{Backend, BackendSpec};
use skep_vmcp::credentials::Strategy;
use tokio::sync::mpsc;

use crate::live::{Live, PATIENCE, client, listen_legacy, listen_modern, next, over, quiet, until};
use crate::rig::{INITIALIZE, Rig, request, responded, spec};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const LISTEN: &str = "subscriptions/listen";

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": TOOLS_CHANGED })
}

/// A backend that is called in the name of each client.
pub(crate) fn in_the_name_of_clients(spec: &mut BackendSpec) {
    spec.strategy = Strategy::TokenExchange(Arc::new(TokenExchange::new(ExchangeOptions {
        token_url: "https://issuer.example/token".to_owned(),
        client_id: String::new(),
        client_secret: None,
        audience: String::new(),
        scopes: Vec::new(),
        subject_token_type: String::new(),
        addresses: Addresses::Machine,
        cache: skep_auth::CacheSize::default(),
    })));
}

/// Waits until a client sees a tool, and nothing is on its way that would report it later.
async fn sees(rig: &Rig, who: &str, tool: &str) {
    let client = client(who);
    let seen = async {
        while rig.upstream.view(&client).await.view.tool(tool).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("`{who}` never sees {tool}"));
}

/// What is reported of the tools of one client, after a change that concerns it.
async fn is_told(stream: &mut mpsc::Receiver<Bytes>) -> Value {
    let told = next(stream).await;
    assert_eq!(told["method"], TOOLS_CHANGED, "{told}");
    told
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_reported_to_clients_of_both_eras() {
    let live = Live::new(&[("", "one")]);
    let rig = over(&live, |_| {});
    sees(&rig, "", "a_one").await;
    let session = rig.open("s").await;
    let mut legacy = listen_legacy(&rig, &session, "").await;
    let mut modern = listen_modern(&rig.upstream, "", &json!({ "toolsListChanged": true })).await;
    let modern = modern.interim.as_mut().unwrap();
    live.holds(LISTEN, "").await;
    // What is known when a client begins to listen is not reported to it.
    quiet().await;
    live.add("", "two");
    live.before(LISTEN, "", &changed());
    is_told(&mut legacy).await;
    assert_eq!(is_told(modern).await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    sees(&rig, "", "a_two").await;
    // A backend that says so while nothing changed.
    live.before(LISTEN, "", &changed());
    quiet().await;
    assert!(legacy.try_recv().is_err() && modern.try_recv().is_err(), "each was told once");
}

#[tokio::test(start_paused = true)]
async fn what_changes_for_one_client_is_reported_to_that_client_alone() {
    // Of a backend that is called in the name of clients, and of one that gets their headers.
    for change in [in_the_name_of_clients as fn(&mut BackendSpec), |_| {}] {
        let live = Live::new(&[("", "one"), ("ann", "anns"), ("bob", "bobs")]);
        let rig = over(&live, change);
        let of_client = spec_of(&rig).strategy.is_of_client();
        if !of_client {
            // What is listed to all clients is known, and stays as it is.
            sees(&rig, "", "a_one").await;
        }
        let mut streams = BTreeMap::new();
        for who in ["ann", "bob"] {
            sees(&rig, who, &format!("a_{who}s")).await;
            let session = rig.open(who).await;
            let legacy = listen_legacy(&rig, &session, who).await;
            let modern = listen_modern(&rig.upstream, who, &json!({ "toolsListChanged": true })).await;
            live.holds(LISTEN, if of_client { who } else { "" }).await;
            streams.insert(who, (legacy, modern));
        }
        if of_client {
            assert_eq!(live.held(LISTEN, ""), 0, "without a client, it is not listened to");
            until("each client is listened for once", || live.held(LISTEN, "ann") == 1).await;
        }
        // What is known when a client begins to listen is not reported to it.
        quiet().await;
        for (who, new) in [("ann", "new"), ("bob", "newer")] {
            live.add(who, new);
            live.before(LISTEN, if of_client { who } else { "" }, &changed());
            let (legacy, modern) = streams.get_mut(who).unwrap();
            is_told(legacy).await;
            is_told(modern.interim.as_mut().unwrap()).await;
            sees(&rig, who, &format!("a_{new}")).await;
        }
        for (who, (mut legacy, mut modern)) in streams {
            assert!(legacy.try_recv().is_err(), "`{who}` was told once");
            assert!(modern.interim.as_mut().unwrap().try_recv().is_err(), "`{who}` was told once");
            drop((legacy, modern));
        }
        if of_client {
            until("nothing is listened to for clients that left", || {
                live.held(LISTEN, "ann") + live.held(LISTEN, "bob") == 0
            })
            .await;
        }
    }
}

fn spec_of(rig: &Rig) -> BackendSpec {
    rig.backends.get("a").unwrap().spec.clone()
}

/// A backend that is called in the name of clients reports it in the session of one of them, too.
#[tokio::test(start_paused = true)]
async fn a_change_that_comes_in_the_session_of_a_client_is_reported_to_it() {
    let live = Live::new(&[("", "quick")]);
    let rig = over(&live, in_the_name_of_clients);
    sees(&rig, "ann", "a_quick").await;
    let session = rig.open("s").await;
    let call = request(&session, 1, "tools/call", &json!({ "name": "a_quick" }));
    responded(&rig.upstream, Call { client: client("ann"), ..call }).await;
    let mut legacy = listen_legacy(&rig, &session, "ann").await;
    quiet().await;
    live.add("ann", "new");
    live.event(&session, &changed()).await;
    is_told(&mut legacy).await;
    sees(&rig, "ann", "a_new").await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_resources_reach_clients_of_both_eras() {
    let live = Live::new(&[]);
    let rig = over(&live, |_| {});
    resource(&rig).await;
    let session = rig.open("s").await;
    let mut legacy = rig.upstream.events(&session, Budget::default());
    let subscribe = request(&session, 1, "resources/subscribe", &json!({ "uri": "file:///r" }));
    assert_eq!(responded(&rig.upstream, subscribe).await["result"], json!({}));
    assert_eq!(live.called("resources/subscribe").await["params"]["uri"], "file:///r");
    let updated =
        json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "file:///r" } });
    live.event(&session, &updated).await;
    assert_eq!(next(&mut legacy).await, updated);
    let unsubscribe = request(&session, 2, "resources/unsubscribe", &json!({ "uri": "file:///r" }));
    assert_eq!(responded(&rig.upstream, unsubscribe).await["result"], json!({}));
    live.called("resources/unsubscribe").await;

    let wanted = json!({ "resourceSubscriptions": ["file:///r", "file:///unknown"] });
    let mut modern = listen_modern(&rig.upstream, "ann", &wanted).await;
    live.holds(LISTEN, "ann").await;
    live.before(LISTEN, "ann", &updated);
    let told = next(modern.interim.as_mut().unwrap()).await;
    assert_eq!((&told["method"], &told["params"]["uri"]), (&updated["method"], &updated["params"]["uri"]));
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    drop(modern);
    until("the stream at the backend ends with that of the client", || live.held(LISTEN, "ann") == 0).await;
}

/// Waits until the resource of the backend is known.
async fn resource(rig: &Rig) {
    let known = async {
        while rig.upstream.view(&ClientContext::default()).await.view.resource("file:///r").is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("the resource is listed");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_backend_ends_with_the_stream_of_the_client() {
    let live = Live::new(&[("", "quick")]);
    let rig = over(&live, |_| {});
    sees(&rig, "", "a_quick").await;
    let session = rig.open("s").await;
    responded(&rig.upstream, request(&session, 1, "tools/call", &json!({ "name": "a_quick" }))).await;
    let legacy = rig.upstream.events(&session, Budget::default());
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    live.event(&session, &log).await;
    drop(legacy);
    // Nothing is sent to it meanwhile that it could notice it by.
    until("the backend is not listened to", || live.upstream.listeners() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn the_log_of_backends_has_the_level_that_the_client_asks_for() {
    let live = Live::new(&[("", "quick")]);
    let rig = over(&live, |_| {});
    sees(&rig, "", "a_quick").await;
    let session = rig.open("s").await;
    for level in ["verbose", "DEBUG", ""] {
        let set = request(&session, 1, "logging/setLevel", &json!({ "level": level }));
        assert_eq!(responded(&rig.upstream, set).await["error"]["code"], -32602, "{level}");
    }
    assert_eq!(
        responded(&rig.upstream, request(&session, 1, "logging/setLevel", &json!({}))).await["error"]["code"],
        -32602
    );
    let set = request(&session, 1, "logging/setLevel", &json!({ "level": "warning" }));
    assert_eq!(responded(&rig.upstream, set).await["result"], json!({}));
    // One that is used later gets it then.
    responded(&rig.upstream, request(&session, 2, "tools/call", &json!({ "name": "a_quick" }))).await;
    assert_eq!(live.called("logging/setLevel").await["params"]["level"], "warning");
    for level in ["debug", "info", "notice", "error", "critical", "alert", "emergency"] {
        let set = request(&session, 3, "logging/setLevel", &json!({ "level": level }));
        assert_eq!(responded(&rig.upstream, set).await["result"], json!({}));
        live.wait(level, |one| one["call"]["params"]["level"] == level).await;
    }
    let mut legacy = rig.upstream.events(&session, Budget::default());
    let log =
        json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "emergency", "data": 1 } });
    live.event(&session, &log).await;
    assert_eq!(next(&mut legacy).await, log);
}

/// What keeps sessions for replicas.
#[derive(Debug, Default)]
struct Store(Mutex<HashMap<SessionId, String>>);

impl SessionKeeper for Store {
    fn keep<'a>(&'a self, session: &'a SessionId, kept: String) -> BoxFuture<'a, ()> {
        self.0.lock().unwrap().insert(session.clone(), kept);
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn another_replica_goes_on_with_log_level_and_subscriptions() {
    let store = Arc::new(Store::default());
    let live = Live::new(&[("", "quick")]);
    let rig = over(&live, |_| {});
    rig.upstream.keep_sessions_by(store.clone());
    resource(&rig).await;
    let session = rig.open("s").await;
    let kept = |expected: &str| store.0.lock().unwrap().get("s").is_some_and(|kept| kept.contains(expected));
    for (method, params, expected) in [
        ("logging/setLevel", json!({ "level": "debug" }), r#""level":"debug""#),
        ("resources/subscribe", json!({ "uri": "file:///r" }), r#"["file:///r"]"#),
        ("resources/unsubscribe", json!({ "uri": "file:///r" }), r#""resources":[]"#),
        ("resources/subscribe", json!({ "uri": "file:///r" }), r#"["file:///r"]"#),
    ] {
        responded(&rig.upstream, request(&session, 1, method, &params)).await;
        assert!(kept(expected), "{method}: {:?}", store.0);
    }

    let other_live = Live::new(&[("", "quick")]);
    let other = over(&other_live, |_| {});
    let before = store.0.lock().unwrap()["s"].clone();
    for _request in 0..2 {
        other.upstream.restore(&session, INITIALIZE.as_bytes());
        other.upstream.restore_kept(&session, &before);
    }
    let mut legacy = other.upstream.events(&session, Budget::default());
    assert_eq!(other_live.called("resources/subscribe").await["params"]["uri"], "file:///r");
    assert_eq!(other_live.called("logging/setLevel").await["params"]["level"], "debug");
    let updated =
        json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "file:///r" } });
    other_live.event(&session, &updated).await;
    assert_eq!(next(&mut legacy).await, updated);

    // So it is when the backend is replaced by another one of its name.
    let third = Live::new(&[]);
    let replaced = Backend::over(BackendSpec { digest: [1; 32], ..spec("a") }, third.upstream.clone());
    other.backends.replace(BTreeMap::from([("a".into(), replaced)]));
    assert_eq!(third.called("resources/subscribe").await["params"]["uri"], "file:///r");
    let subscribed =
        |live: &Live| live.all().iter().filter(|one| one["call"]["method"] == "resources/subscribe").count();
    assert_eq!((subscribed(&other_live), subscribed(&third)), (1, 1));
}
