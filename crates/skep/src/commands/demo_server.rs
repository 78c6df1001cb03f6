//! `skep demo-server`: the demo server on standard input and output.

use std::io::{self, Read as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use skep_demo::{Server, Surroundings};
use skep_mcp::{answer, lines};

/// The maximum length of a line, in bytes.
const LONGEST: usize = 8 * 1024 * 1024;
/// The size of a read, in bytes.
const CHUNK: usize = 64 * 1024;

/// Responds line by line until the input ends, or its output has no reader any more.
pub(super) fn run() -> Result<ExitCode> {
    let server = Server::new(Surroundings { now: jiff::Timestamp::now, uuid: uuid::Uuid::new_v4 });
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut reader = lines::Reader::new(LONGEST);
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = input.read(&mut chunk).context("cannot read standard input")?;
        reader.feed(chunk.get(..read).unwrap_or_default());
        let mut answers = Vec::new();
        loop {
            match reader.next_line() {
                Ok(Some(line)) => add(&mut answers, server.answer(&line).as_deref()),
                Ok(None) => break,
                Err(too_long) => {
                    add(&mut answers, Some(&answer::error(None, answer::INVALID_REQUEST, &too_long.to_string(), None)));
                }
            }
        }
        if read == 0 {
            add(&mut answers, reader.finish().and_then(|line| server.answer(&line)).as_deref());
            send(&mut output, &answers)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !send(&mut output, &answers)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn add(answers: &mut Vec<u8>, answer: Option<&[u8]>) {
    if let Some(answer) = answer {
        answers.extend_from_slice(answer);
        answers.push(b'\n');
    }
}

/// Whether the output still has a reader.
fn send(output: &mut impl io::Write, answers: &[u8]) -> Result<bool> {
    match output.write_all(answers).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
