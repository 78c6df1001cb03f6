//! A client that writes HTTP/1.1 by hand, from an address of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a refusal may take that comes before a body was sent.
const REFUSAL: Duration = Duration::from_millis(200);

/// One connection.
pub(super) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(number: u8, port: u16) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), 0)))?;
        let stream = socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Opens a session, and returns its id.
    pub(super) async fn initialize(&mut self) -> Result<String> {
        let params =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        let (status, head) = self.ask("initialize", params, "").await?;
        ensure!(status == 200, "initialize returned {status}");
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        id.map(|id| id.trim().to_owned()).context("no session")
    }

    /// Calls a small tool in a session.
    pub(super) async fn call(&mut self, session: &str) -> Result<()> {
        let params = r#"{"name":"calculate","arguments":{"expression":"6 * 7"}}"#;
        let (status, _) = self.ask("tools/call", params, &format!("Mcp-Session-Id: {session}\r\n")).await?;
        ensure!(status == 200, "a call returned {status}");
        Ok(())
    }

    /// Sends half of a body. Returns whether it was admitted.
    pub(super) async fn send_half(&mut self, length: usize) -> Result<bool> {
        let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await?;
        if let Ok(refused) = tokio::time::timeout(REFUSAL, self.response()).await {
            let (status, _) = refused?;
            ensure!(status == 503, "half a body returned {status}");
            return Ok(false);
        }
        self.stream.write_all(&vec![b' '; length / 2]).await?;
        Ok(true)
    }

    /// Sends a request whose response is as long as this, and does not read it.
    pub(super) async fn ask_for(&mut self, length: usize) -> Result<()> {
        let document = "x".repeat(length);
        let params = format!(r#"{{"name":"json_query","arguments":{{"document":"{document}","pointer":""}}}}"#);
        self.send("tools/call", &params, "").await
    }

    async fn ask(&mut self, method: &str, params: &str, headers: &str) -> Result<(u16, String)> {
        self.send(method, params, headers).await?;
        tokio::time::timeout(PATIENCE, self.response()).await.context("no response in time")?
    }

    async fn send(&mut self, method: &str, params: &str, headers: &str) -> Result<()> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let length = body.len();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {length}\r\n\r\n{body}"
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// The status and the head of the next response. Its body is read and dropped.
    async fn response(&mut self) -> Result<(u16, String)> {
        let end = loop {
            if let Some(place) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break place + 4;
            }
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection was closed");
        };
        let head = String::from_utf8(self.read.drain(..end).collect())?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or_default();
        while self.read.len() < length {
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the connection was closed");
        }
        self.read.drain(..length);
        Ok((status, head))
    }
}
