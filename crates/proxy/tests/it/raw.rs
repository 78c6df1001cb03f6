//! A client that writes HTTP/1.1 by hand, from an address of its choice: it can do what no proper client does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::PATIENCE;

/// One connection.
pub(crate) struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A response, as it was written.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// The address of a client on this machine.
pub(crate) fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

impl Raw {
    pub(crate) async fn connect(from: Ipv4Addr, to: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
        let stream = tokio::time::timeout(PATIENCE, socket.connect(to)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    pub(crate) async fn write(&mut self, text: &[u8]) -> Result<()> {
        Ok(tokio::time::timeout(PATIENCE, self.stream.write_all(text)).await??)
    }

    /// Sends a message and reads the response.
    pub(crate) async fn post(&mut self, headers: &str, body: &Value) -> Result<RawResponse> {
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n{headers}\r\n"
        );
        self.write(format!("{head}{body}").as_bytes()).await?;
        self.response().await
    }

    /// Opens a session, and gives its id.
    pub(crate) async fn initialize(&mut self) -> Result<String> {
        let params = crate::client::initialize_request();
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let response = self.post("", &message).await?;
        ensure!(response.status == 200, "{response:?}");
        response.header("mcp-session-id").context("no session")
    }

    /// Calls a tool in a session.
    pub(crate) async fn echo(&mut self, session: &str, id: u64) -> Result<RawResponse> {
        let params = json!({ "name": "echo", "arguments": { "id": id } });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.post(&format!("Mcp-Session-Id: {session}\r\n"), &message).await
    }

    /// The next response, whose length must be known.
    pub(crate) async fn response(&mut self) -> Result<RawResponse> {
        tokio::time::timeout(PATIENCE, self.read_response()).await?
    }

    async fn read_response(&mut self) -> Result<RawResponse> {
        let end = loop {
            if let Some(place) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break place + 4;
            }
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "closed");
        };
        let head = String::from_utf8(self.read.drain(..end).collect())?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let mut response = RawResponse { status, head, body: Vec::new() };
        let length: usize = response.header("content-length").unwrap_or_default().parse().unwrap_or_default();
        while self.read.len() < length {
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "closed");
        }
        response.body = self.read.drain(..length).collect();
        Ok(response)
    }

    /// Whether the peer closed the connection, waiting for that.
    async fn is_closed(&mut self) -> Result<bool> {
        let mut rest = [0; 1024];
        Ok(matches!(tokio::time::timeout(PATIENCE, self.stream.read(&mut rest)).await?, Ok(0) | Err(_)))
    }

    /// Whether the connection was refused: it is answered before anything is asked, and closed.
    pub(crate) async fn is_refused(&mut self) -> Result<bool> {
        let response = self.response().await?;
        let is_busy = response.status == 503 && response.header("retry-after").is_some();
        Ok(is_busy && self.is_closed().await?)
    }
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(|value| value.trim().to_owned())
    }
}
