//! Why bytes are not a message.

/// Bytes are not one message, or not one that every parser reads alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The first byte opens an array.
    #[error("an array of messages; send them one by one")]
    Batch,
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The text is not JSON, or goes on after the message.
    #[error("not one JSON value; see byte {at}")]
    Syntax {
        /// The position of the error.
        at: usize,
    },
    /// The text is JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// `jsonrpc` is missing or not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// The id has an invalid type or is too long.
    #[error("`id` must be a string or a number of at most 4096 bytes")]
    BadId,
    /// The method is not a string.
    #[error("`method` must be a string")]
    BadMethod,
    /// A result without the id of its request.
    #[error("a `result` needs the `id` of its request")]
    NoId,
    /// Neither a request nor a response, or both.
    #[error("a message has either a `method`, or a `result`, or an `error`")]
    NoKind,
    /// A name occurs twice in one object.
    #[error("a name occurs twice in {place}")]
    Duplicate {
        /// The object.
        place: &'static str,
    },
    /// A known name in another case. Some parsers would read it as the known one.
    #[error("a name in {place} must be written `{known}`")]
    OtherCase {
        /// The object.
        place: &'static str,
        /// The expected spelling.
        known: &'static str,
    },
    /// More members than can be checked with bounded effort.
    #[error("too many members in {place}")]
    TooManyMembers {
        /// The object.
        place: &'static str,
    },
    /// A result that may hold a list is not an object.
    #[error("`result` must be an object")]
    ResultNotAnObject,
    /// The list in a result is not an array of objects.
    #[error("`result.{key}` must be an array of objects")]
    NotAList {
        /// The member of the result.
        key: &'static str,
    },
    /// An element of a list has no name.
    #[error("an element of `result.{key}` has no `{name}`")]
    Nameless {
        /// The member of the result.
        key: &'static str,
        /// The member that should name the element.
        name: &'static str,
    },
}

impl MessageError {
    /// A short, constant name for metrics and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::NotUtf8 => "not_utf8",
            Self::Syntax { .. } => "syntax",
            Self::NotAnObject => "not_an_object",
            Self::Version => "version",
            Self::BadId => "bad_id",
            Self::BadMethod => "bad_method",
            Self::NoId => "no_id",
            Self::NoKind => "no_kind",
            Self::Duplicate { .. } => "duplicate",
            Self::OtherCase { .. } => "other_case",
            Self::TooManyMembers { .. } => "too_many_members",
            Self::ResultNotAnObject => "result_not_an_object",
            Self::NotAList { .. } => "not_a_list",
            Self::Nameless { .. } => "nameless",
        }
    }
}
