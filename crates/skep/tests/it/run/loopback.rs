//! HTTP servers on loopback, one request for each connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The method and the path.
    pub(crate) line: String,
    /// Header lines; names in small letters.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A server, and what it received. It runs until the test ends.
pub(crate) struct Loopback {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

// === impl Received ===

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(other, value)| (other == name).then_some(value.as_str()))
    }

    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut received = Self { line: line.trim().to_owned(), headers, body: Vec::new() };
        let length = received.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        received.body = vec![0; length];
        reader.read_exact(&mut received.body).ok()?;
        Some(received)
    }
}

// === impl Loopback ===

impl Loopback {
    /// Starts a server that answers with JSON.
    pub(crate) fn start(answer: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, received) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (answer, kept) = (Arc::new(answer), received.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, kept) = (answer.clone(), kept.clone());
                std::thread::spawn(move || serve(stream, &*answer, &kept));
            }
        });
        Self { address, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Received) -> String, kept: &Mutex<Vec<Received>>) {
    let Some(received) = Received::read(&stream) else { return };
    let body = answer(&received);
    kept.lock().unwrap().push(received);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The client may have left.
    let _gone = stream.write_all(format!("{head}{body}").as_bytes());
}
