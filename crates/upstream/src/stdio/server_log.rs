//! The server's stderr: it becomes part of our log, and its last lines say why the server ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// How much of a line of the server's log is forwarded, in bytes.
const LOG_LINE: usize = 2048;
/// How many of the last lines are kept.
const LAST_LINES: usize = 5;
/// How long they are at most together, in bytes.
const LAST_BYTES: usize = 2048;

/// The last lines of a server's stderr.
#[derive(Debug, Default)]
pub struct LastLines(VecDeque<String>);

impl LastLines {
    fn push(&mut self, line: &str) {
        self.0.push_back(line.chars().filter(|character| !character.is_control()).collect());
        let length = |lines: &VecDeque<String>| lines.iter().map(String::len).sum::<usize>();
        while self.0.len() > LAST_LINES || (self.0.len() > 1 && length(&self.0) > LAST_BYTES) {
            self.0.pop_front();
        }
    }

    /// All of them.
    pub fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Forwards a server's stderr to our log, line by line, and keeps its last lines.
pub async fn forward_log(stderr: impl AsyncRead + Unpin, last: Arc<Mutex<LastLines>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(LOG_LINE as u64);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end();
                if !text.is_empty() {
                    tracing::info!(target: "server", "{text}");
                    last.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
            }
        }
    }
}
