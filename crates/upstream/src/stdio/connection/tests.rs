use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::upstream::QUEUE;
use super::*;
use crate::error::CallError;
use bytes::Bytes;
use skep_mcp::Message;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// A server that ends on request, and that needs some time to start again. How often it was started is counted.
fn slow_to_start_again(time: Duration, starts: Arc<AtomicUsize>) -> Connect {
    Box::new(move || {
        let is_first = starts.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            let (stdin, input) = tokio::io::duplex(1 << 16);
            let (mut output, stdout) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                tokio::time::sleep(if is_first { Duration::ZERO } else { time }).await;
                let mut lines = BufReader::new(input).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
                    if message["method"] == "end" {
                        return;
                    }
                    let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n", message["id"]);
                    output.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            let (stderr, held) = (Box::new(tokio::io::empty()), Box::new(()));
            Ok(Pipe { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr, held })
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_to_start_again_is_waited_for() {
    let starts: Arc<AtomicUsize> = Arc::default();
    let (upstream, talk) =
        StdioUpstream::start(slow_to_start_again(Duration::from_secs(70), starts.clone()), Limits::default());
    tokio::spawn(talk);
    let message = |text: &'static [u8]| Message::parse(Bytes::from_static(text)).unwrap();
    let mut last = upstream
        .forward(&message(br#"{"jsonrpc":"2.0","id":2,"method":"end"}"#), Era::Legacy, None, None)
        .await
        .unwrap();
    assert_eq!(last.response().await.unwrap_err(), CallError::Disconnected);
    let mut ping = upstream
        .forward(&message(br#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#), Era::Legacy, None, None)
        .await
        .unwrap();
    assert!(ping.response().await.is_ok());
    assert_eq!(starts.load(Ordering::SeqCst), 2);
}

/// A server whose responses to some methods are too long.
fn talkative() -> Connect {
    Box::new(|| {
        Box::pin(async move {
            let (stdin, input) = tokio::io::duplex(1 << 16);
            let (mut output, stdout) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let mut lines = BufReader::new(input).lines();
                let long = "x".repeat(1 << 16);
                while let Ok(Some(line)) = lines.next_line().await {
                    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
                    let id = &message["id"];
                    let answer = match message["method"].as_str() {
                        Some("first") => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":"{long}"}}}}"#),
                        Some("last") => format!(r#"{{"result":{{"a":"{long}"}},"jsonrpc":"2.0","id":{id}}}"#),
                        Some("hidden") => format!(r#"{{"result":["{long}"],"id":{id},"b":["{long}"]}}"#),
                        Some("silent") => continue,
                        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
                    };
                    output.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                }
            });
            let (stderr, held) = (Box::new(tokio::io::empty()), Box::new(()));
            Ok(Pipe { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr, held })
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_a_response_that_is_too_long() {
    let (upstream, talk) = StdioUpstream::start(talkative(), Limits { message: 1000 });
    tokio::spawn(talk);
    let call = async |method: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        upstream.forward(&Message::parse(text.into()).unwrap(), Era::Legacy, None, None).await.unwrap()
    };
    for method in ["first", "last", "hidden"] {
        let response = tokio::time::timeout(AGAIN, async { call(method).await.response().await }).await;
        assert_eq!(
            response.expect("it is not waited for").unwrap_err(),
            CallError::TooLarge { limit: 1000 },
            "{method}"
        );
        assert!(call("ping").await.response().await.is_ok());
    }
    // Which of two it responds to is not known: neither fails.
    let mut silent = call("silent").await;
    assert!(tokio::time::timeout(AGAIN, async { call("hidden").await.response().await }).await.is_err());
    assert!(tokio::time::timeout(AGAIN, silent.response()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_behind_still_gets_every_cancellation() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let call = Message::parse(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#)).unwrap();
    let with_server = upstream.forward(&call, Era::Legacy, None, None).await.unwrap();
    let sent: serde_json::Value = serde_json::from_slice(&queued.try_recv().unwrap().render().unwrap()).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..QUEUE {
        waiting.push(upstream.forward(&call, Era::Legacy, None, None).await.unwrap());
    }
    drop((with_server, waiting));
    let (mut stdin, server) = tokio::io::duplex(1 << 16);
    let (_replies, mut replied) = mpsc::channel(1);
    tokio::spawn(async move { write(&upstream, &mut stdin, &mut queued, &mut replied).await });
    let mut lines = BufReader::new(server).lines();
    let line = tokio::time::timeout(AGAIN, lines.next_line()).await.unwrap().unwrap().unwrap();
    let sent_last: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&sent_last["method"], &sent_last["params"]["requestId"]),
        (&"notifications/cancelled".into(), &sent["id"])
    );
}

#[tokio::test(start_paused = true)]
async fn item_8_a_line_counts_until_the_server_has_read_it() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let budget = skep_net::Budget::new(16 << 20);
    let notify = |bytes: usize| {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":"{}"}}"#, "x".repeat(bytes));
        Message::parse(budget.hold(text.into(), skep_net::budget::Purpose::Request).unwrap()).unwrap()
    };
    // The second one is written together with the first.
    for message in [notify(2000), notify(100_000)] {
        upstream.forward_notification(&message, None).await.unwrap();
    }
    let (mut stdin, server) = tokio::io::duplex(1 << 10);
    let (_replies, mut replied) = mpsc::channel(1);
    tokio::spawn(async move { write(&upstream, &mut stdin, &mut queued, &mut replied).await });
    tokio::time::sleep(AGAIN).await;
    assert!(budget.held() > 102_000, "{}", budget.held());
    let mut lines = BufReader::new(server).lines();
    for _ in 0..2 {
        assert!(lines.next_line().await.unwrap().is_some());
    }
    tokio::time::sleep(AGAIN).await;
    assert_eq!(budget.held(), 0);
}
