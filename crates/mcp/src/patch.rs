//! Replacements in a text that leave everything else unchanged.

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::Span;

/// Replacements of parts of a text. They do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Patches<'a> {
    patches: Vec<(Span, Cow<'a, str>)>,
}

/// Removes items from a comma-separated sequence, together with the right commas.
///
/// An item is removed with the comma before it, or, while no item before it stays, with the comma after it.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Where the last item ends; before the first, where the sequence starts.
    end: usize,
    /// Whether an item was kept.
    kept: bool,
    /// Where the items start that are removed with the comma after them.
    cut_from: Option<usize>,
}

// === impl Patches ===

impl<'a> Patches<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    pub(crate) fn replace(&mut self, span: Span, text: impl Into<Cow<'a, str>>) {
        self.patches.push((span, text.into()));
    }

    pub(crate) fn insert(&mut self, at: usize, text: String) {
        self.replace(Span::new(at, at), text);
    }

    fn cut(&mut self, start: usize, end: usize) {
        self.replace(Span::new(start, end), "");
    }

    /// The position after all replacements. Not for positions inside replaced spans.
    pub(crate) fn shifted(&self, position: usize) -> usize {
        self.patches.iter().filter(|(span, _)| span.end() <= position).fold(position, |position, (span, text)| {
            // The span lies before the position, so the subtraction cannot underflow.
            (position + text.len()).saturating_sub(span.end() - span.start())
        })
    }

    /// The text with all replacements applied.
    pub(crate) fn apply(mut self, text: &[u8]) -> Bytes {
        self.patches.sort_by_key(|(span, _)| span.start());
        let added: usize = self.patches.iter().map(|(_, patch)| patch.len()).sum();
        let mut patched = Vec::with_capacity(text.len() + added);
        let mut copied = 0;
        for (span, patch) in &self.patches {
            patched.extend_from_slice(text.get(copied..span.start()).unwrap_or_default());
            patched.extend_from_slice(patch.as_bytes());
            copied = span.end();
        }
        patched.extend_from_slice(text.get(copied..).unwrap_or_default());
        patched.into()
    }
}

// === impl Sequence ===

impl Sequence {
    /// A sequence whose first item would start at `start`.
    pub(crate) fn new(start: usize) -> Self {
        Self { end: start, kept: false, cut_from: None }
    }

    /// Keeps the next item.
    pub(crate) fn keep(&mut self, item: Span, patches: &mut Patches<'_>) {
        if let Some(cut_from) = self.cut_from.take() {
            patches.cut(cut_from, item.start());
        }
        self.kept = true;
        self.end = item.end();
    }

    /// Removes the next item.
    pub(crate) fn drop(&mut self, item: Span, patches: &mut Patches<'_>) {
        if self.kept {
            patches.cut(self.end, item.end());
        } else if self.cut_from.is_none() {
            self.cut_from = Some(item.start());
        }
        self.end = item.end();
    }

    /// Ends the sequence, appending an item if there is one to add.
    pub(crate) fn finish(mut self, added: Option<String>, patches: &mut Patches<'_>) {
        if let Some(cut_from) = self.cut_from.take() {
            patches.cut(cut_from, self.end);
        }
        if let Some(added) = added {
            let text = if self.kept { format!(",{added}") } else { added };
            patches.insert(self.end, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drops the named ones of `[ a , b , c ]` and adds what is to be added.
    fn without(dropped: &str, added: Option<&str>) -> String {
        let text = "[ a , b , c ]";
        let mut patches = Patches::default();
        let mut sequence = Sequence::new(1);
        for (at, item) in text.match_indices(char::is_alphabetic) {
            let span = Span::new(at, at + 1);
            if dropped.contains(item) {
                sequence.drop(span, &mut patches);
            } else {
                sequence.keep(span, &mut patches);
            }
        }
        sequence.finish(added.map(str::to_owned), &mut patches);
        String::from_utf8(patches.apply(text.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn items_go_with_one_comma_each() {
        for (dropped, left) in [
            ("", "[ a , b , c ]"),
            ("a", "[ b , c ]"),
            ("b", "[ a , c ]"),
            ("c", "[ a , b ]"),
            ("ab", "[ c ]"),
            ("ac", "[ b ]"),
            ("bc", "[ a ]"),
            ("abc", "[  ]"),
        ] {
            assert_eq!(without(dropped, None), left);
        }
    }

    #[test]
    fn an_item_is_added_at_the_end() {
        assert_eq!(without("", Some("d")), "[ a , b , c,d ]");
        assert_eq!(without("c", Some("d")), "[ a , b,d ]");
        assert_eq!(without("abc", Some("d")), "[ d ]");
    }

    #[test]
    fn positions_move_with_what_stands_before_them() {
        let mut patches = Patches::default();
        patches.replace(Span::new(2, 4), "xyz");
        patches.replace(Span::new(6, 9), "");
        let moved: Vec<usize> = [0, 2, 4, 5, 9, 10].map(|position| patches.shifted(position)).to_vec();
        assert_eq!(moved, [0, 2, 5, 6, 7, 8]);
    }
}
