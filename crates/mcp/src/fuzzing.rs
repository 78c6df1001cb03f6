//! Invariants for arbitrary input: the bodies of the fuzz targets in `fuzz/`.
//!
//! Tests drive the same functions with seeds and with generated input, so every test run checks them; a fuzzer only
//! runs longer.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::bridge::{self, Filter, LegacyClient, ModernClient, RequestKind, RequiredCapability};
use crate::era::{Era, MODERN};
use crate::headers;
use crate::lines;
use crate::list::{self, List, Verdict};
use crate::message::{Kind, Message};
use crate::method;
use crate::splice::{self, Edit};
use crate::sse;
use crate::{Id, Raw, answer};

/// Valid and nearly valid input.
pub const SEEDS: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,{"b":null}]},"_meta":{"progressToken":"t"}}}"#,
    br#" { "jsonrpc" : "2.0" , "id" : "a\u0062" , "method" : "tools\/call" , "params" : { "name" : "\u00e9" } } "#,
    br#"{"jsonrpc":"2.0","id":12345678901234567890123,"result":{"tools":[{"name":"a"},{"name":"b","description":"c"}],"nextCursor":null}}"#,
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e400}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.5}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"modelPreferences":{"hints":[{"name":"m"}]}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"c"}}}"#,
    br#"{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}}}"#,
    br#"{"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"_meta":{"io.modelcontextprotocol/serverInfo":{}}}}"#,
    br#"{"jsonrpc":"2.0","id":4,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"x","params":null}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1,2]}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","n\u0061me":"b"}}"#,
    b"[]",
    b"",
    b"\xef\xbb\xbfevent: message\r\ndata: {}\r\n\r\n: keep-alive\n\ndata: a\rdata: b\r\rid: 7\nretry: 10\n\n\n",
    b"{\"a\":1}\n\nnoise {\"b\":2} noise\nunfinished",
    b"=?base64?SGVsbG8sIOS4lueVjA==?=",
    b"echo",
];

/// Parsing never panics, and what the parser reports is true of the bytes.
pub fn message(data: &[u8]) {
    let read = match Message::parse(Bytes::copy_from_slice(data)) {
        Ok(read) => read,
        Err(why) => {
            let refusal = Message::parse(answer::malformed(why));
            assert!(refusal.is_ok_and(|refusal| refusal.kind() == Kind::Error), "a refusal is a message");
            return;
        }
    };
    assert_eq!(read.body(), data, "bytes stay as they are");
    let has_method = matches!(read.kind(), Kind::Request | Kind::Notification);
    assert_eq!(read.method().is_some(), has_method);
    assert!(read.kind() != Kind::Request || read.id().is_some());
    assert_eq!(read.result().is_some(), read.kind() == Kind::Response);
    assert_eq!(read.error().is_some(), read.kind() == Kind::Error);
    for part in [read.params(), read.result(), read.error(), read.meta(), method::arguments(&read)] {
        assert!(part.is_none_or(is_json), "a part is a value");
    }
    for id in [read.id(), read.progress_token(), read.cancels()].into_iter().flatten() {
        assert_eq!(Id::parse(id.raw()), Ok(id));
    }
    let _ = (method::resource(&read), crate::era::classify(Some(crate::era::MODERN), &read));
    let line = lines::frame(read.clone());
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "a message is one line");
    let again = lines::message(&line).map(Bytes::copy_from_slice).map(Message::parse);
    assert!(again.is_some_and(|again| again.is_ok_and(|again| again.kind() == read.kind())));
    lists(&read);
}

/// Edits change what they name, and the result equals a fresh parse. The input is a message, a zero byte, and the value
/// to insert.
pub fn splice(data: &[u8]) {
    let (body, value) = halves(data);
    let (Ok(message), Ok(value)) = (Message::parse(Bytes::copy_from_slice(body)), std::str::from_utf8(value)) else {
        return;
    };
    let Ok(value) = Raw::parse(value) else { return };
    let paths: [&[&str]; 8] = [
        &["id"],
        &["params"],
        &["params", "name"],
        &["params", "requestId"],
        &["params", "_meta", "progressToken"],
        &["params", "_meta", "other"],
        &["result"],
        &["other", "deep"],
    ];
    for path in paths {
        let set = [Edit::set(path, value.clone())];
        let Ok(changed) = splice::apply(&message, &set) else { continue };
        assert_eq!(Message::parse(changed.body().clone()).as_ref(), Ok(&changed), "the head matches the body");
        assert_eq!(splice::apply(&changed, &set).as_ref(), Ok(&changed), "the same value changes nothing");
        if let Ok(removed) = splice::apply(&changed, &[Edit::remove(path)]) {
            assert_eq!(Message::parse(removed.body().clone()).as_ref(), Ok(&removed));
            assert_eq!(splice::apply(&removed, &[Edit::remove(path)]).as_ref(), Ok(&removed));
        }
    }
}

/// A stream yields the same events in whatever chunks it arrives, and no byte of it is lost. The first byte of the
/// input is the chunk length.
pub fn sse(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let limits = sse::Limits { line: 256, event: 512 };
    let (whole, whole_raw) = items(limits, [stream].into_iter());
    let (pieces, pieces_raw) = items(limits, stream.chunks(usize::from(*length).max(1)));
    assert_eq!(whole, pieces, "events do not depend on the pieces");
    assert_eq!(whole_raw, stream, "every byte is handed out");
    assert_eq!(pieces_raw, stream, "every byte is handed out");
}

/// Lines are the same in whatever chunks they arrive. The first byte of the input is the chunk length.
pub fn lines(data: &[u8]) {
    const LIMIT: usize = 64;
    let Some((length, stream)) = data.split_first() else { return };
    let mut reader = lines::Reader::new(LIMIT);
    let mut read = Vec::new();
    for piece in stream.chunks(usize::from(*length).max(1)) {
        reader.feed(piece);
        loop {
            match reader.next_line() {
                Ok(Some(line)) => read.push(line.to_vec()),
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }
    read.extend(reader.finish().map(|line| line.to_vec()));
    let expected: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').filter(|line| line.len() <= LIMIT).collect();
    let ended = stream.is_empty() || stream.ends_with(b"\n");
    let count = if ended { expected.len().saturating_sub(1) } else { expected.len() };
    assert_eq!(read.iter().map(Vec::as_slice).collect::<Vec<_>>(), expected.get(..count).unwrap_or_default());
}

/// Checking headers never panics, and headers agree with the body after `renew`. The input is the value of a header, a
/// zero byte, and a message.
pub fn headers(data: &[u8]) {
    let (value, body) = halves(data);
    if let Ok(text) = std::str::from_utf8(value) {
        let encoded = headers::encode(text);
        assert!(HeaderValue::from_str(&encoded).is_ok(), "what is encoded can be sent");
        assert_eq!(headers::decode(&encoded).as_deref(), Some(text));
        let _ = headers::decode(text);
    }
    let Ok(message) = Message::parse(Bytes::copy_from_slice(body)) else { return };
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let mut held = HeaderMap::from_iter([(headers::METHOD, value.clone()), (headers::NAME, value)]);
    let _ = headers::check(&held, &message);
    headers::renew(&mut held, &message);
    // A method is sent as it is: no method of the protocol needs encoding.
    if message.method().is_some_and(|method| headers::encode(method) == method) {
        assert_eq!(headers::check(&held, &message), Ok(()));
    }
}

/// Translations never panic, and yield messages of the other era under the same id. The input is a request of a client, a zero byte, and
/// what a server sends.
pub fn bridge(data: &[u8]) {
    let (request, sent) = halves(data);
    let parsed = |bytes: &[u8]| Message::parse(Bytes::copy_from_slice(bytes)).ok();
    let (Some(request), sent) = (parsed(request), parsed(sent)) else { return };
    let (client, kind) = (LegacyClient::of(&request), RequestKind::of(&request));
    let number = Id::number(7);
    if let (Kind::Request, Ok(modern)) = (request.kind(), client.request(&request, Some("info"))) {
        assert_eq!(modern.id(), request.id(), "the id keeps its bytes");
        assert_eq!(crate::era::classify(Some(MODERN), &modern), Ok(Era::Modern));
        let legacy = ModernClient::of(&modern).and_then(|client| client.request(&modern, &number).ok());
        assert!(legacy.is_some(), "what was translated can be translated back");
        let back = legacy.map(|legacy| (legacy.id(), crate::era::classify(None, &legacy)));
        assert_eq!(back, Some((Some(number.clone()), Ok(Era::Legacy))));
    }
    let _ = (Filter::of(&request), RequiredCapability::of(&request), bridge::log_level(&request));
    let Some(sent) = sent else { return };
    if let Ok(response) = client.response(kind, &sent) {
        assert_eq!(response.id(), sent.id(), "the id keeps its bytes");
    }
    if let Some(modern) = ModernClient::of(&request) {
        if let Ok(response) = modern.response(&sent, None) {
            assert_eq!(response.id(), request.id(), "the client's own id");
            let complete = response
                .result()
                .is_none_or(|result| crate::value::find_text(result, &["resultType"]).as_deref() == Some("complete"));
            assert!(complete, "no other type of result");
        }
        let _ = modern.progress(&sent);
    }
    for changed in
        [bridge::notification(&sent).ok(), bridge::of_subscription(&sent, &number).ok()].into_iter().flatten()
    {
        assert!(Message::parse(changed).is_ok_and(|changed| changed.kind() == sent.kind()));
    }
    if let (Ok(opened), Ok(found)) =
        (bridge::initialize_result(&request, &sent), bridge::discover_result(&request, &sent))
    {
        assert!(opened.kind() == sent.kind() && found.kind() == sent.kind());
    }
}

/// Keeping every element changes nothing; dropping every element leaves a message with an empty list.
fn lists(message: &Message) {
    for list in [List::Tools, List::Prompts, List::Resources, List::ResourceTemplates] {
        let kept = list::rewrite(message, list, |element| {
            let _ = headers::parameters::of(element);
            Verdict::Keep
        });
        let Ok(kept) = kept else { continue };
        assert_eq!(kept, None);
        let Ok(Some(body)) = list::rewrite(message, list, |_| Verdict::Drop) else { continue };
        let mut visited = 0;
        let left = Message::parse(body).and_then(|left| {
            list::rewrite(&left, list, |_| {
                visited += 1;
                Verdict::Drop
            })
        });
        assert_eq!((left, visited), (Ok(None), 0));
    }
}

/// The events of a stream, and all its bytes.
fn items<'a>(limits: sse::Limits, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<sse::Event>, Vec<u8>) {
    let mut reader = sse::Reader::new(limits);
    let (mut events, mut raw) = (Vec::new(), Vec::new());
    for piece in pieces {
        reader.feed(piece);
        while let Ok(Some(item)) = reader.next_item() {
            match item {
                sse::Item::Quiet(bytes) => raw.extend_from_slice(&bytes),
                sse::Item::Event(event) => {
                    raw.extend_from_slice(&event.raw);
                    // A line end that is split across two chunks is handed out in two.
                    events.push(sse::Event { raw: Bytes::new(), ..event });
                }
            }
        }
    }
    raw.extend_from_slice(&reader.into_rest());
    (events, raw)
}

/// The bytes before the first zero byte, and those after it.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    (data.get(..at).unwrap_or_default(), data.get(at + 1..).unwrap_or_default())
}

fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| Raw::parse(text).is_ok())
}

#[cfg(test)]
mod tests;
