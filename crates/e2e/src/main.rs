//! The fixture that end-to-end tests run in pods beside the product: a program that idles, serves HTTP, or sends HTTP
//! requests.
//!
//! ```text
//! skep-fixture              idle for ever (it holds a pod's network namespace open)
//! skep-fixture serve PORT   answer every request with a line of JSON
//! skep-fixture get URL      print the body behind an http:// address, retrying for half a minute
//! skep-fixture mcp-stdio    be an MCP server on standard input and output
//! skep-fixture mcp-http PORT  be an MCP server over HTTP
//! skep-fixture mcp-sse PORT   be an MCP server over HTTP with a stream of events
//! skep-fixture --model-id MODEL --port PORT …   answer as `serve` does, when called as embedding servers are
//! ```
//!
//! It uses only the standard library, so that its image is small and built in seconds. It is not a web server: it reads
//! only as much of a request as it needs.

mod mcp;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long `get` retries, and the interval.
const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => idle(),
        ["serve", port] | ["--model-id", _, "--port", port, ..] => serve(port),
        ["get", url] => get_patiently(url),
        ["mcp-stdio"] => mcp::stdio(),
        ["mcp-http", port] => mcp::http(port),
        ["mcp-sse", port] => mcp::sse(port),
        _ => {
            Err(io::Error::other("use: skep-fixture [serve PORT | get URL | mcp-stdio | mcp-http PORT | mcp-sse PORT]"))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _unread = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn idle() -> io::Result<()> {
    loop {
        thread::park();
    }
}

fn serve(port: &str) -> io::Result<()> {
    let port: u16 = port.parse().map_err(|_| io::Error::other(format!("`{port}` is not a port")))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    for connection in listener.incoming() {
        let connection = connection?;
        // A client that disconnects affects no other.
        thread::spawn(move || drop(answer(connection)));
    }
    Ok(())
}

/// Responds to one request with its own path and the name of this pod.
fn answer(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or("/");
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    // Debug output of plain text is valid JSON.
    let body = format!("{{\"fixture\":\"skep\",\"host\":{host:?},\"path\":{path:?}}}\n");
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Asks until it is answered: names and addresses of a Service take a moment to work.
fn get_patiently(url: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match get(url) {
            Ok(body) => return io::stdout().write_all(body.as_bytes()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}

fn get(url: &str) -> io::Result<String> {
    let address = url.strip_prefix("http://").ok_or_else(|| io::Error::other(format!("`{url}` is not http://")))?;
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let mut connection = TcpStream::connect(authority)?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(connection, "GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("`{url}` answered: {}", response.lines().next().unwrap_or("nothing")))),
    }
}
