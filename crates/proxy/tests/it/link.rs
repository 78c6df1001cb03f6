//! The connection to a stdio server, without other clients.

use anyhow::{Context as _, Result};
use skep_testkit::{Seen, eventually};
use skep_upstream::stdio::{Connect, ConnectionEvent, Limits, StdioUpstream, Supervision};
use skep_workload::pipe::Pipe;
use skep_workload::process::Process;
use skep_workload::server::Server;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, watch};

use crate::client::PATIENCE;

/// A server that writes before it reads would wait for us to read, while we wait for it to read what we answer.
#[tokio::test]
async fn a_server_that_asks_and_does_not_read_is_read_on() -> Result<()> {
    let (over, mut is_over) = mpsc::channel(1);
    let connect = Box::new(move || -> std::pin::Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> {
        let over = over.clone();
        Box::pin(async move {
            let (stdin, unread) = tokio::io::duplex(64);
            let (mut output, stdout) = tokio::io::duplex(64);
            tokio::spawn(async move {
                for id in 0..1000 {
                    let ping = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
                    output.write_all(ping.as_bytes()).await.expect("the proxy reads");
                }
                over.send((output, unread)).await.expect("the test waits");
            });
            Ok(Pipe {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                stderr: Box::new(tokio::io::empty()),
                held: Box::new(()),
            })
        })
    });
    let (_upstream, talk) = StdioUpstream::start(connect, Limits::default());
    tokio::spawn(talk);
    tokio::time::timeout(PATIENCE, is_over.recv()).await?;
    Ok(())
}

/// A process that runs this script.
fn shell(script: &str) -> Connect {
    let server = Server {
        name: "s".to_owned(),
        image: "exec://sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..Server::default()
    };
    Box::new(move || {
        let process = Process::start(&server).map_err(|error| error.to_string());
        let pipe = process.and_then(|process| process.pipe().ok_or_else(|| "it has no streams".to_owned()));
        Box::pin(std::future::ready(pipe))
    })
}

#[tokio::test]
async fn a_process_that_ends_is_started_again_though_another_one_holds_its_streams() -> Result<()> {
    // The one that stays behind writes its number to the log, which is among the last lines.
    let connect = shell("sleep 1000 & echo $! >&2; exit 3");
    let ((events, mut reply), (_never, ending)) = (mpsc::channel(16), watch::channel(false));
    let (_upstream, talk) = StdioUpstream::start_for(
        connect,
        Limits::default(),
        Supervision { events, ending, shared: None, outage: watch::channel(None).1 },
    );
    let talk = tokio::spawn(talk);
    let mut next = async || tokio::time::timeout(PATIENCE, reply.recv()).await?.context("it is not supervised");
    assert_eq!(next().await?, ConnectionEvent::Connected);
    let ConnectionEvent::Lost(why) = next().await? else { anyhow::bail!("it did not go away") };
    let (why, left) = why.split_once('\n').context("it said nothing")?;
    assert_eq!(why, "the server ended: exit status: 3");
    eventually("what it left behind ends", PATIENCE, || async {
        let state = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
        let is_over = state.is_empty() || state.contains(") Z ");
        Ok(if is_over { Seen::Yes(()) } else { Seen::NotYet(state) })
    })
    .await?;
    assert_eq!(next().await?, ConnectionEvent::Connected, "it is started again");
    talk.abort();
    Ok(())
}

/// What it said before it ended is on its way when its end is known.
#[tokio::test]
async fn the_last_words_of_a_process_are_heard() -> Result<()> {
    let connect = shell(
        r#"read -r line; id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'); echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}""#,
    );
    let ((events, mut reply), (_never, ending)) = (mpsc::channel(16), watch::channel(false));
    let (_upstream, talk) = StdioUpstream::start_for(
        connect,
        Limits::default(),
        Supervision { events, ending, shared: None, outage: watch::channel(None).1 },
    );
    let talk = tokio::spawn(talk);
    for wanted in [
        ConnectionEvent::Connected,
        ConnectionEvent::Initialized,
        ConnectionEvent::Lost("the server ended: exit status: 0".to_owned()),
    ] {
        assert_eq!(tokio::time::timeout(PATIENCE, reply.recv()).await?, Some(wanted));
    }
    talk.abort();
    Ok(())
}
