//! The ends of a line that is too long to be read, and what they tell of it: servers write the id of a response before
//! its result or after it.

use memchr::{memchr, memrchr};

use crate::json::Cursor;
use crate::message_error::MessageError;

/// How much is kept of each end.
const END: usize = 4 * 1024;
/// How many members are read from the end, at most.
const MEMBERS: usize = 8;

/// A line exceeds the limit. It is skipped; the lines after it can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {limit} bytes")]
pub struct LineError {
    /// The maximum length of a line.
    pub limit: usize,
    pub(super) ends: Ends,
}

/// What a line that was skipped responds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responded {
    /// To this request.
    Request(u64),
    /// To one that its ends do not name.
    Unknown,
    /// To none: it is a request or a notification.
    None,
}

/// The first and the last bytes of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

// === impl LineError ===

impl LineError {
    /// What the line responds to.
    pub fn responded(&self) -> Responded {
        let mut responded = Responded::Unknown;
        for (name, value) in first_members(&self.ends.head).into_iter().chain(last_members(&self.ends.tail)) {
            match name.as_str() {
                "method" => return Responded::None,
                "id" => responded = value.parse().map_or(responded, Responded::Request),
                _ => {}
            }
        }
        responded
    }
}

// === impl Ends ===

impl Ends {
    pub(super) fn of(line: &[u8]) -> Self {
        let mut ends = Self { head: line.get(..END).unwrap_or(line).to_vec(), tail: Vec::new() };
        ends.extend(line);
        ends
    }

    /// More of the line.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let last = bytes.get(bytes.len().saturating_sub(END)..).unwrap_or_default();
        let dropped = (self.tail.len() + last.len()).saturating_sub(END);
        self.tail.drain(..dropped);
        self.tail.extend_from_slice(last);
    }
}

/// The members at the start of a message that is cut off.
fn first_members(head: &[u8]) -> Vec<(String, String)> {
    let mut members = Vec::new();
    let text = memchr(b'{', head).and_then(|start| head.get(start..)).unwrap_or_default();
    // A character may be cut as well.
    let whole = text.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default();
    let Ok(mut cursor) = Cursor::new(whole) else { return members };
    let _cut: Result<_, MessageError> = cursor.object(|cursor, key| {
        let value = cursor.skip()?;
        // Without anything behind it, a number may be cut.
        if cursor.peek().is_some() {
            members.push((key.name.into_owned(), cursor.text(value).to_owned()));
        }
        Ok(())
    });
    members
}

/// The members at the end of a message whose start is cut off, from the last one to the first whose value is a list, an object
/// or a string with escapes. No bracket is between them and the end, so they are those of the message itself.
fn last_members(tail: &[u8]) -> Vec<(String, String)> {
    let mut members = Vec::new();
    let mut rest = memrchr(b'}', tail).and_then(|end| tail.get(..end)).unwrap_or_default();
    while members.len() < MEMBERS
        && let Some((member, before)) = last_member(rest)
    {
        members.push(member);
        rest = before;
    }
    members
}

/// The last member in a text, and what is before the comma in front of it.
fn last_member(text: &[u8]) -> Option<((String, String), &[u8])> {
    let text = text.trim_ascii_end();
    let start = match text.split_last()? {
        (b'"', inner) => opening_quote(inner)?,
        _ => text.iter().rposition(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)))? + 1,
    };
    let (before, value) = text.split_at_checked(start)?;
    let (b':', before) = before.trim_ascii_end().split_last()? else { return None };
    let (b'"', inner) = before.trim_ascii_end().split_last()? else { return None };
    let (before, name) = inner.split_at_checked(opening_quote(inner)?)?;
    let (b',' | b'{', before) = before.trim_ascii_end().split_last()? else { return None };
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    Some(((text(name.get(1..)?)?, text(value)?), before))
}

/// Where the string begins that ends with a text. Nothing if it has escapes.
fn opening_quote(inner: &[u8]) -> Option<usize> {
    let start = memrchr(b'"', inner)?;
    let has_escapes = inner.get(start..)?.contains(&b'\\') || inner.get(..start)?.ends_with(b"\\");
    (!has_escapes).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responded(line: &str) -> Responded {
        LineError { limit: 0, ends: Ends::of(line.as_bytes()) }.responded()
    }

    #[test]
    fn the_ends_of_a_line_tell_what_it_responds_to() {
        let long = format!(r#"{{"content":[{{"id":3,"text":"{}"}}]}}"#, "ä\\\"".repeat(5_000));
        for (line, expected) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{long}}}"#), Responded::Request(7)),
            (format!(r#"INFO {{"id": 7 ,"jsonrpc":"2.0","result":{long}}}"#), Responded::Request(7)),
            (format!(r#"{{"result":{long},"jsonrpc":"2.0","id":7}}"#), Responded::Request(7)),
            (format!(r#"{{"result":{long} , "id" : 7 , "jsonrpc" : "2.0" }} done"#), Responded::Request(7)),
            (format!(r#"{{"result":{long},"id":7,"x":[1]}}"#), Responded::Unknown),
            (format!(r#"{{"result":{long},"id":"7"}}"#), Responded::Unknown),
            (format!(r#"{{"result":{long}}}"#), Responded::Unknown),
            (format!(r#"{{"result":{{"a":{long},"id":7}}}}"#), Responded::Unknown),
            (format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{long}}}"#), Responded::None),
            (format!(r#"{{"id":7,"method":"sampling/createMessage","params":{long}}}"#), Responded::None),
            (format!(r#"{{"params":{long},"id":7,"method":"sampling/createMessage"}}"#), Responded::None),
            (format!(r#"{{"id":7,"params":{long},"method":"sampling/createMessage"}}"#), Responded::None),
            (format!(r#"{{"result":"{}\",\"id\":7}}"#, "x".repeat(5_000)), Responded::Unknown),
            ("x".repeat(10_000), Responded::Unknown),
            (String::new(), Responded::Unknown),
        ] {
            let shown: String = line.chars().take(60).collect();
            assert_eq!(responded(&line), expected, "{shown}");
        }
    }

    #[test]
    fn an_id_that_is_cut_is_no_id() {
        let before = " ".repeat(END - r#"{"id":12"#.len());
        assert_eq!(responded(&format!(r#"{{"id":{before}123,"result":"{}"}}"#, "x".repeat(END))), Responded::Unknown);
    }

    #[test]
    fn the_ends_of_a_line_are_the_same_in_whatever_pieces_it_comes() {
        let line: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut ends = Ends::of(&line[..10]);
        ends.head.clone_from(&line[..END].to_vec());
        for piece in line[10..].chunks(777) {
            ends.extend(piece);
        }
        assert_eq!(ends, Ends::of(&line));
        assert_eq!(ends.tail, line[line.len() - END..]);
    }
}
