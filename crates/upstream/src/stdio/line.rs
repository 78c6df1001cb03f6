//! A line on its way to the server. While it waits in the queue, it is the message of its client, which the memory budget counts, and what
//! will be changed in it: the text is made when its turn comes, so that no second copy of it waits.

use bytes::Bytes;
use skep_mcp::{Edit, Id, Message, lines, splice};

/// A line on its way to the server.
#[derive(Debug)]
pub(super) struct Line {
    /// The request in it, if it is one: it may be cancelled before its turn comes.
    pub(super) request: Option<u64>,
    pub(super) text: LineText,
}

/// What is written.
#[derive(Debug)]
pub(super) enum LineText {
    /// This.
    Whole(Bytes),
    /// A message with other ids in it.
    Message(Box<EditedMessage>),
}

#[derive(Debug)]
pub(super) struct EditedMessage {
    message: Message,
    ids: Vec<NewId>,
}

/// The place of an id, and its value.
pub(super) type NewId = (&'static [&'static str], Id);

// === impl Line ===

impl Line {
    /// One without a response.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { request: None, text: LineText::Whole(bytes) }
    }

    /// About how many bytes will be written.
    pub(super) fn len(&self) -> usize {
        match &self.text {
            LineText::Whole(bytes) => bytes.len(),
            LineText::Message(edited) => edited.message.body().len(),
        }
    }

    /// The bytes that are written. Nothing if the message cannot be edited.
    pub(super) fn render(&self) -> Option<Bytes> {
        match &self.text {
            LineText::Whole(bytes) => Some(bytes.clone()),
            LineText::Message(edited) => {
                let edits: Vec<_> = edited.ids.iter().map(|(path, id)| Edit::set(path, id)).collect();
                Some(lines::frame(splice::apply(&edited.message, &edits).ok()?))
            }
        }
    }
}

// === impl LineText ===

impl LineText {
    /// A message with other ids in it.
    pub(super) fn of(message: &Message, ids: Vec<NewId>) -> Self {
        Self::Message(Box::new(EditedMessage { message: message.clone(), ids }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_waits_is_no_second_copy_of_its_message() {
        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
        let message = Message::parse(body.clone()).unwrap();
        let line = Line { request: Some(7), text: LineText::of(&message, vec![(&["id"], Id::number(7))]) };
        let LineText::Message(edited) = &line.text else { panic!("it is written before its turn") };
        assert_eq!((edited.message.body().as_ptr(), line.len()), (body.as_ptr(), body.len()));
        assert_eq!(line.render().unwrap(), "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}\n");
    }
}
