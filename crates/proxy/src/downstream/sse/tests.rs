use skep_net::drain::Grace;
use skep_store::Memory;
use skep_upstream::memory::{MemoryUpstream, Received};

use super::*;
use crate::sessions::{Kind, Store};

fn message(text: String) -> Message {
    Message::parse(text.into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_does_not_wait_behind_a_message_that_waits_for_room() {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Era::Legacy));
    let budget = Budget::new(1 << 20);
    let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
    let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(10))), Kind::Sse);
    let sse = Sse::new(upstream, sessions, Duration::from_mins(10), false, drain);
    let (answers, _answered) = mpsc::channel(QUEUE);
    let _others = budget.reserve(900_000, Purpose::Response).unwrap();
    let call = {
        let budget = budget.clone();
        tokio::spawn(async move {
            let call = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#.to_owned());
            sse.forward(call, Era::Legacy, &"s".into(), &answers, &ReplyChain::default(), &budget).await
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
