//! Bytes as text. What is not UTF-8 stays byte by byte, as in Go.

/// A text as characters and, where it is not UTF-8, single bytes.
pub(crate) fn runes(bytes: &[u8]) -> impl Iterator<Item = Result<char, u8>> {
    bytes
        .utf8_chunks()
        .flat_map(|chunk| chunk.valid().chars().map(Ok).chain(chunk.invalid().iter().map(|byte| Err(*byte))))
}

/// A piece of a text that is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span<'b> {
    /// Characters that stay as they are.
    Plain(&'b str),
    /// A character that does not.
    Special(char),
    /// A byte that is not UTF-8.
    Byte(u8),
}

/// A text as long pieces that stay as they are and what is between them.
pub(crate) fn spans(bytes: &[u8], is_plain: impl Fn(char) -> bool + Copy) -> impl Iterator<Item = Span<'_>> {
    bytes.utf8_chunks().flat_map(move |chunk| {
        let mut rest = chunk.valid();
        let valid = std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let is_special = |next: char| !is_plain(next);
            let length = if is_plain(first) { rest.find(is_special).unwrap_or(rest.len()) } else { first.len_utf8() };
            let (span, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(if is_plain(first) { Span::Plain(span) } else { Span::Special(first) })
        });
        valid.chain(chunk.invalid().iter().map(|byte| Span::Byte(*byte)))
    })
}

/// A text as UTF-8; each byte that does not fit becomes `�`.
pub(crate) fn to_utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        runes(error.as_bytes()).map(|rune| rune.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    })
}
