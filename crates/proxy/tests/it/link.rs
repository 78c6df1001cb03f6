//! The way to a stdio server, with nobody else on it.

use anyhow::Result;
use skep_proxy::stdio::{Bridge, Limits};
use skep_workload::pipe::Pipe;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

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
    let (_bridge, talk) = Bridge::start(connect, Limits::default());
    tokio::spawn(talk);
    tokio::time::timeout(PATIENCE, is_over.recv()).await?;
    Ok(())
}
