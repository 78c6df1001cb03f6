//! Writing events.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;

/// The maximum length of data that is copied: up to here a copy costs less than sending in parts.
const COPIED: usize = 4 * 1024;

/// Writes an event. Data of several lines is split as the format requires.
pub fn event(name: Option<&str>, id: Option<&str>, data: &[u8]) -> Bytes {
    let mut text = BytesMut::with_capacity(data.len() + 48);
    put_head(&mut text, name, id);
    let mut rest = data;
    while let Some(end) = memchr2(b'\n', b'\r', rest) {
        put(&mut text, "data", rest.get(..end).unwrap_or_default());
        let length = if rest.get(end..).is_some_and(|end| end.starts_with(b"\r\n")) { 2 } else { 1 };
        rest = rest.get(end + length..).unwrap_or_default();
    }
    put(&mut text, "data", rest);
    text.put_u8(b'\n');
    text.freeze()
}

/// An event in the parts that are sent: long data that need not be split is not copied.
pub fn parts(name: Option<&str>, id: Option<&str>, data: Bytes) -> [Bytes; 3] {
    if data.len() <= COPIED || memchr2(b'\n', b'\r', &data).is_some() {
        return [event(name, id, &data), Bytes::new(), Bytes::new()];
    }
    let mut start = BytesMut::with_capacity(48);
    put_head(&mut start, name, id);
    start.put_slice(b"data: ");
    [start.freeze(), data, Bytes::from_static(b"\n\n")]
}

/// A comment, which keeps a connection alive and has no content.
pub fn comment(text: &str) -> Bytes {
    let text = String::from_utf8_lossy(&one_line(text)).into_owned();
    format!(": {text}\n\n").into()
}

/// The reconnection delay for clients.
pub fn retry(milliseconds: u64) -> Bytes {
    format!("retry: {milliseconds}\n\n").into()
}

fn put_head(text: &mut BytesMut, name: Option<&str>, id: Option<&str>) {
    for (field, value) in [("event", name), ("id", id)] {
        if let Some(value) = value {
            put(text, field, &one_line(value));
        }
    }
}

fn put(text: &mut BytesMut, field: &str, value: &[u8]) {
    text.put_slice(field.as_bytes());
    text.put_slice(b": ");
    text.put_slice(value);
    text.put_u8(b'\n');
}

/// A value without the bytes that would end its line or make parsers ignore it.
fn one_line(value: &str) -> Vec<u8> {
    value.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\0')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_as_clients_expect_it() {
        assert_eq!(event(Some("message"), None, b"{}"), "event: message\ndata: {}\n\n");
        assert_eq!(event(None, Some("7"), b""), "id: 7\ndata: \n\n");
        assert_eq!(comment("keep-alive"), ": keep-alive\n\n");
        assert_eq!(retry(1500), "retry: 1500\n\n");
    }

    #[test]
    fn every_line_of_the_data_gets_a_field() {
        assert_eq!(event(None, None, b"a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    }

    #[test]
    fn the_parts_of_an_event_are_the_event() {
        for data in ["{}".to_owned(), "x".repeat(COPIED), "x".repeat(COPIED + 1), "x\r\n".repeat(COPIED)] {
            for (name, id) in [(None, None), (Some("message"), Some("7"))] {
                let whole = event(name, id, data.as_bytes());
                assert_eq!(parts(name, id, data.clone().into()).concat(), whole);
            }
        }
        let data = Bytes::from(vec![b'x'; COPIED + 1]);
        assert_eq!(parts(None, None, data.clone())[1].as_ptr(), data.as_ptr(), "long data is not copied");
    }

    #[test]
    fn a_name_cannot_inject_a_field() {
        assert_eq!(event(Some("a\ndata: b"), Some("1\r\n\n"), b"c"), "event: adata: b\nid: 1\ndata: c\n\n");
        assert_eq!(comment("a\n\ndata: b"), ": adata: b\n\n");
    }
}
