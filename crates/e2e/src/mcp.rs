//! A small MCP server with a few tools that tests need: one that returns the name of its pod, one that sleeps, one that crashes.
//!
//! It reads messages by looking for what the tests write, and knows no more JSON than that.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const TOOLS: &str = r#"{"tools":[{"name":"who","inputSchema":{"type":"object"}},{"name":"sleep","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}}]}"#;

/// Serves on standard input and output. It accepts one handshake, as servers on the Go SDK do.
pub(crate) fn stdio() -> io::Result<()> {
    let mut initialized = false;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if method(&line) == "initialize" && std::mem::replace(&mut initialized, true) {
            let id = id(&line).unwrap_or("null");
            let error = r#"{"code":0,"message":"duplicate \"initialize\" received"}"#;
            writeln!(io::stdout().lock(), r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)?;
            continue;
        }
        if text(&line, "name") == Some("die") {
            io::stdout().write_all(b"{\"jsonrpc\":\"2.0\",\"id\":")?;
            io::stdout().flush()?;
            return Err(io::Error::other("asked to exit"));
        }
        // Each call has its own thread, so that a slow one blocks no other.
        thread::spawn(move || {
            if let Some(answer) = answer(&line, initialized) {
                let _closed = writeln!(io::stdout().lock(), "{answer}");
            }
        });
    }
    Ok(())
}

/// Serves streamable HTTP, with sessions.
pub(crate) fn http(port: &str) -> io::Result<()> {
    let port: u16 = port.parse().map_err(|_| io::Error::other(format!("`{port}` is not a port")))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    let sessions = Arc::new(Mutex::new(BTreeSet::new()));
    for connection in listener.incoming() {
        let (connection, sessions) = (connection?, sessions.clone());
        thread::spawn(move || drop(converse(connection, &sessions)));
    }
    Ok(())
}

/// The listening clients, by stream number.
type Streams = Arc<Mutex<Vec<Sender<String>>>>;

/// Serves HTTP+SSE: one event stream for each client, and messages beside it.
pub(crate) fn sse(port: &str) -> io::Result<()> {
    let port: u16 = port.parse().map_err(|_| io::Error::other(format!("`{port}` is not a port")))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    let streams = Streams::default();
    for connection in listener.incoming() {
        let (connection, streams) = (connection?, streams.clone());
        thread::spawn(move || drop(listen(connection, &streams)));
    }
    Ok(())
}

fn listen(mut connection: TcpStream, streams: &Streams) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    loop {
        let Some((head, body)) = request(&mut reader)? else { return Ok(()) };
        let line = head.first().cloned().unwrap_or_default();
        if line.starts_with("GET /sse") {
            let (sender, answers) = channel();
            let number = {
                let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
                streams.push(sender);
                streams.len() - 1
            };
            write!(
                connection,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
                 event: endpoint\ndata: /messages?session_id={number}\n\n"
            )?;
            for answer in answers {
                write!(connection, "event: message\ndata: {answer}\n\n")?;
            }
            return Ok(());
        }
        let number = line.split("session_id=").nth(1).and_then(|rest| rest.split([' ', '&']).next()?.parse().ok());
        let known = streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = number.and_then(|number: usize| known.get(number).cloned());
        drop(known);
        let status = if stream.is_some() { "202 Accepted" } else { "404 Not Found" };
        write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
        if let Some(stream) = stream {
            thread::spawn(move || answer(&body, true).map(|answer| drop(stream.send(answer))));
        }
    }
}

fn converse(mut connection: TcpStream, sessions: &Mutex<BTreeSet<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    loop {
        let Some((head, body)) = request(&mut reader)? else { return Ok(()) };
        let named = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        let mut known = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_post = head.first().is_some_and(|line| line.starts_with("POST"));
        let is_greeting = method(&body) == "initialize";
        let is_unknown = named.as_ref().is_some_and(|name| !known.contains(name));
        let (status, session, answered) = if !is_post {
            ("405 Method Not Allowed", None, String::new())
        } else if is_unknown && !is_greeting {
            ("404 Not Found", None, String::new())
        } else {
            let session = is_greeting.then(|| format!("{}-{}", host(), known.len()));
            known.extend(session.clone());
            drop(known);
            match answer(&body, true) {
                Some(answer) => ("200 OK", session, answer),
                None => ("202 Accepted", session, String::new()),
            }
        };
        let session = session.map(|name| format!("Mcp-Session-Id: {name}\r\n")).unwrap_or_default();
        write!(
            connection,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{session}Content-Length: {}\r\n\r\n{answered}",
            answered.len()
        )?;
    }
}

/// One request: its head, line by line, and its body.
fn request(reader: &mut impl io::BufRead) -> io::Result<Option<(Vec<String>, String)>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
    });
    let mut body = String::new();
    reader.take(length.unwrap_or(0)).read_to_string(&mut body)?;
    Ok(Some((head, body)))
}

fn answer(message: &str, initialized: bool) -> Option<String> {
    let id = id(message)?;
    let result = match method(message) {
        "initialize" => concat!(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"#,
            r#""serverInfo":{"name":"skep-fixture","version":"1"}}"#
        )
        .to_owned(),
        _ if !initialized => {
            return Some(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32002,"message":"not initialized"}}}}"#
            ));
        }
        "ping" => "{}".to_owned(),
        "tools/list" => TOOLS.to_owned(),
        "tools/call" => {
            if text(message, "name") == Some("sleep") {
                let _unread = writeln!(io::stderr(), "a call sleeps");
                let seconds = text(message, "seconds").and_then(|text| text.parse().ok()).unwrap_or(1);
                thread::sleep(Duration::from_secs(seconds));
            }
            // What a webhook put into the arguments.
            let limit = match (text(message, "name"), message.split_once(r#""limit":"#)) {
                (Some("search"), Some((_, after))) => {
                    format!(" limit {}", after.split([',', '}']).next().unwrap_or(""))
                }
                _ => String::new(),
            };
            let version = std::env::var("FIXTURE_VERSION").unwrap_or_default();
            // Clients of 2026-07-28, and no others, get a `resultType`.
            let is_modern = text(message, "io.modelcontextprotocol/protocolVersion") == Some("2026-07-28");
            let complete = if is_modern { r#""resultType":"complete","# } else { "" };
            format!(r#"{{{complete}"content":[{{"type":"text","text":"{} {version}{limit}"}}]}}"#, host())
        }
        other => {
            return Some(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no method {other}"}}}}"#
            ));
        }
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn host() -> String {
    std::env::var("HOSTNAME").unwrap_or_default()
}

fn method(message: &str) -> &str {
    text(message, "method").unwrap_or_default()
}

/// The string value of a member, wherever it occurs.
fn text<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = message.split_once(&format!("\"{name}\":\""))?;
    after.split('"').next()
}

/// The id as written: a number, or a string with its quotes.
fn id(message: &str) -> Option<&str> {
    let (_, after) = message.split_once("\"id\":")?;
    after.split([',', '}']).next()
}
