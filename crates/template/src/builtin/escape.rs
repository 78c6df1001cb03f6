//! Texts inside of other languages: `html`, `js`, `urlquery`.

use crate::error::EvaluationError;
use crate::meter::Sink;
use crate::print::quote::is_printable;
use crate::utf8::{Span, spans};

/// Writes a text so that it means nothing in HTML.
pub(super) fn html(sink: &mut Sink<'_>, text: &[u8]) -> Result<(), EvaluationError> {
    for span in spans(text, |next| !matches!(next, '\0' | '"' | '\'' | '&' | '<' | '>')) {
        match span {
            Span::Plain(text) => sink.write(text)?,
            Span::Special('"') => sink.write("&#34;")?,
            Span::Special('\'') => sink.write("&#39;")?,
            Span::Special('&') => sink.write("&amp;")?,
            Span::Special('<') => sink.write("&lt;")?,
            Span::Special('>') => sink.write("&gt;")?,
            Span::Special(_) => sink.write("\u{fffd}")?,
            Span::Byte(byte) => sink.write([byte])?,
        }
    }
    Ok(())
}

/// Writes a text so that it can stand in a string of JavaScript.
pub(super) fn js(sink: &mut Sink<'_>, text: &[u8]) -> Result<(), EvaluationError> {
    let is_plain = |next: char| {
        let is_special = next < ' ' || matches!(next, '\\' | '\'' | '"' | '<' | '>' | '&' | '=');
        !is_special && (next.is_ascii() || is_printable(next))
    };
    for span in spans(text, is_plain) {
        match span {
            Span::Plain(text) => sink.write(text)?,
            Span::Special('\\') => sink.write("\\\\")?,
            Span::Special('\'') => sink.write("\\'")?,
            Span::Special('"') => sink.write("\\\"")?,
            Span::Special('<') => sink.write("\\u003C")?,
            Span::Special('>') => sink.write("\\u003E")?,
            Span::Special('&') => sink.write("\\u0026")?,
            Span::Special('=') => sink.write("\\u003D")?,
            Span::Special(next) => sink.write(format!("\\u{:04X}", u32::from(next)))?,
            Span::Byte(byte) => sink.write([byte])?,
        }
    }
    Ok(())
}

/// Writes a text so that it can stand in the query of a URL.
pub(super) fn url_query(sink: &mut Sink<'_>, text: &[u8]) -> Result<(), EvaluationError> {
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => sink.write([*byte])?,
            b' ' => sink.write("+")?,
            _ => {
                sink.write("%")?;
                sink.hexadecimal(*byte, true)?;
            }
        }
    }
    Ok(())
}
