use skep_net::Drain;
use skep_net::drain::Grace;
use skep_store::Memory;
use skep_upstream::UpstreamState;
use skep_upstream::memory::{MemoryUpstream, Received};

use super::*;
use crate::sessions::{Kind, Sessions, Store};

fn message(text: String) -> Message {
    Message::parse(text.into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_does_not_wait_behind_a_message_that_waits_for_room() {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Era::Legacy));
    let budget = Budget::new(1 << 20);
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Sse);
    let sse = Sse::new(Endpoint::new(upstream, sessions, Duration::from_mins(10), drain), false);
    let (answers, _answered) = mpsc::channel(QUEUE);
    let _others = budget.reserve(900_000, Purpose::Response).unwrap();
    let call = {
        let budget = budget.clone();
        tokio::spawn(async move {
            let call = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#.to_owned());
            let call = Call { session: Some("s".into()), takes_interim: true, budget, ..Call::new(call, Era::Legacy) };
            sse.forward(call, &answers, &ReplyChain::default()).await
        })
    };
    let Some(Received::Call(called)) = received.recv().await else { panic!("no call") };
    let long = "x".repeat(200_000);
    let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"message":"{long}"}}}}"#);
    called.interim.unwrap().send(progress.into()).await.unwrap();
    while budget.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    let response = message(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"text":"{long}"}}}}"#));
    called.response.send(Ok(Box::new(response))).unwrap();
    assert!(call.await.unwrap().unwrap().len() > 200_000);
    assert_eq!((budget.refused(), budget.waiters()), (0, 0), "it is counted from here on");
}

#[tokio::test]
async fn requests_in_flight_count_however_short_they_are() {
    use crate::exchange::{Content, Head};
    let (upstream, _received) = MemoryUpstream::new(UpstreamState::ready(Era::Legacy));
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Sse);
    let sse = Sse::new(Endpoint::new(upstream, sessions, Duration::from_mins(10), drain), false);
    let budget = Budget::new(1 << 20);
    let peer = skep_net::Peer { address: ([127, 0, 0, 1], 1).into(), tls: false };
    let exchange = |method: Method, uri: &str, content| {
        let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        let mut exchange = Exchange::new(Head::new(parts, peer), content);
        exchange.head.budget = budget.of_client([192, 0, 2, 1].into());
        exchange
    };
    let (mut streams, mut statuses) = (Vec::new(), Vec::new());
    for number in 0..3 {
        use http_body_util::BodyExt as _;
        let mut stream = sse.open(&exchange(Method::GET, "/sse", Content::Opaque(Bytes::new()))).await.into_body();
        let endpoint = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        let endpoint = String::from_utf8(endpoint.to_vec()).unwrap();
        let uri = format!("/messages{}", endpoint.trim_end().rsplit_once("/messages").unwrap().1);
        for id in 0..30 {
            let call = format!(r#"{{"jsonrpc":"2.0","id":"{number}-{id}","method":"tools/call","params":{{}}}}"#);
            let mut post = exchange(Method::POST, &uri, Content::Message(message(call)));
            statuses.push(sse.message(&mut post).await.status().as_u16());
        }
        streams.push(stream);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 202).count(), budget.limit() / 2 / IN_FLIGHT);
    assert_eq!(statuses.last(), Some(&503));
}

/// As behind streamable HTTP: what is behind the upstream may need to know who calls.
#[tokio::test]
async fn the_upstream_is_told_which_client_calls() {
    use http_body_util::BodyExt as _;

    use crate::caller::Caller;
    use crate::exchange::{Content, Head};
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Era::Legacy));
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Sse);
    let sse = Sse::new(Endpoint::new(upstream, sessions, Duration::from_mins(10), drain), false);
    let peer = skep_net::Peer { address: ([127, 0, 0, 1], 1).into(), tls: false };
    let caller = Caller::local("ann", 0);
    let exchange = |method: Method, uri: &str, content| {
        let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        let mut exchange = Exchange::new(Head::new(parts, peer), content);
        exchange.head.caller = Some(caller.clone());
        exchange
    };
    let mut stream = sse.open(&exchange(Method::GET, "/sse", Content::Opaque(Bytes::new()))).await.into_body();
    let endpoint = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    let endpoint = String::from_utf8(endpoint.to_vec()).unwrap();
    let uri = format!("/messages{}", endpoint.trim_end().rsplit_once("/messages").unwrap().1);
    let call = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#.to_owned());
    let accepted = sse.message(&mut exchange(Method::POST, &uri, Content::Message(call))).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    let Some(Received::Call(request)) = received.recv().await else { panic!("no call") };
    assert_eq!(request.client.caller.map(|caller| caller.identity), Some(caller.identity));
}
