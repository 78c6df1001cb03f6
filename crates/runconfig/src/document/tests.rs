//! The laws that every document keeps, and samples of documents to try them on.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{DocumentError, Field};
use crate::duration::GoDuration;
use crate::json::{Json, Members, Number};
use crate::{EmbeddedAuthServerConfig, RunConfig};

/// Choices to make a sample from. When they run out, the smallest sample is made.
#[derive(Debug)]
pub(crate) struct Source(std::vec::IntoIter<u8>);

impl Source {
    pub(crate) fn below(&mut self, end: u8) -> u8 {
        self.0.next().unwrap_or(0) % end
    }
}

/// Something that samples can be made of.
pub(crate) trait Sample {
    fn sample(source: &mut Source) -> Self;
}

const TEXTS: &[&str] =
    &["", "a", "two\nlines", "<&>", "\u{2028}", "true", "{x}", "\"quoted\"", " ", "1m", "null", "\u{1f600}", "\t\u{1}"];

impl Sample for String {
    fn sample(source: &mut Source) -> Self {
        TEXTS[usize::from(source.below(u8::try_from(TEXTS.len()).unwrap()))].to_owned()
    }
}

impl Sample for bool {
    fn sample(source: &mut Source) -> Self {
        source.below(2) == 1
    }
}

impl Sample for i32 {
    fn sample(source: &mut Source) -> Self {
        [0, 1, -1, 8080, i32::MAX, i32::MIN][usize::from(source.below(6))]
    }
}

impl Sample for i64 {
    fn sample(source: &mut Source) -> Self {
        [0, 1, -1, 8080, i64::MAX, i64::MIN][usize::from(source.below(6))]
    }
}

impl Sample for GoDuration {
    fn sample(source: &mut Source) -> Self {
        Self { nanoseconds: i64::sample(source) }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(source: &mut Source) -> Self {
        (source.below(2) == 1).then(|| T::sample(source))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source) -> Self {
        (0..source.below(3)).map(|_| T::sample(source)).collect()
    }
}

impl<T: Sample> Sample for BTreeMap<String, T> {
    fn sample(source: &mut Source) -> Self {
        (0..source.below(3)).map(|_| (String::sample(source), T::sample(source))).collect()
    }
}

impl Sample for Members {
    fn sample(source: &mut Source) -> Self {
        (0..source.below(3)).map(|_| (format!("x_{}", source.below(9)), Json::sample(source))).collect()
    }
}

impl Sample for Json {
    fn sample(source: &mut Source) -> Self {
        match source.below(8) {
            0 | 1 => Self::Null,
            2 => Self::Bool(bool::sample(source)),
            3 => Self::Number(Number::from(i64::sample(source))),
            4 => Self::Array(Vec::sample(source)),
            5 => Self::Object(Members::sample(source)),
            _ => Self::String(String::sample(source)),
        }
    }
}

fn sample<T: Sample>(choices: Vec<u8>) -> T {
    T::sample(&mut Source(choices.into_iter()))
}

proptest! {
    #[test]
    fn a_written_document_reads_back_unchanged(choices in vec(any::<u8>(), 0..2000)) {
        let config: RunConfig = sample(choices);
        prop_assert_eq!(&RunConfig::read(config.write()).unwrap(), &config);
        prop_assume!(!config.schema_version.is_empty());
        prop_assert_eq!(&RunConfig::from_slice(config.to_json_pretty().as_bytes()).unwrap(), &config);
        prop_assert_eq!(&RunConfig::from_slice(config.to_json_compact().as_bytes()).unwrap(), &config);
    }

    #[test]
    fn a_document_written_as_yaml_reads_back_unchanged(choices in vec(any::<u8>(), 0..1000)) {
        let config: EmbeddedAuthServerConfig = sample(choices);
        prop_assert_eq!(EmbeddedAuthServerConfig::from_yaml(&config.to_yaml()).unwrap(), config);
    }
}

document! {
    /// A document to try the rules on.
    #[expect(unreachable_pub, reason = "documents are declared for other crates")]
    pub struct Parcel {
        /// Always there.
        pub name: String = always "name",
        /// There when it is not 0.
        pub weight: i32 = if_set "weight",
        /// There when it is known, even when false.
        pub fragile: Option<bool> = if_set "fragile",
        /// Always there; `null` and `[]` differ.
        pub labels: Option<Vec<String>> = always "labels",
        /// What is inside.
        pub parts: Vec<Parcel> = if_set "parts",
        /// How long it took.
        pub took: GoDuration = if_set "took",
    }
}

fn parcel(text: &str) -> Result<Parcel, DocumentError> {
    Parcel::read(text.parse().unwrap())
}

#[test]
fn members_are_written_in_the_order_of_the_table() {
    let read = parcel(r#"{"parts":[{"name":"b"}],"weight":2,"fragile":false,"name":"a"}"#).unwrap();
    let expected = r#"{"name":"a","weight":2,"fragile":false,"labels":null,"parts":[{"name":"b","labels":null}]}"#;
    assert_eq!(read.write().to_compact(), expected);
}

#[test]
fn null_reads_like_a_member_that_is_not_there() {
    let text = r#"{"name":null,"weight":null,"fragile":null,"labels":null,"parts":null,"took":null}"#;
    assert_eq!(parcel(text).unwrap(), Parcel::default());
    assert_eq!(parcel("null").unwrap(), Parcel::default());
    assert_eq!(parcel(r#"{"labels":[]}"#).unwrap().labels, Some(Vec::new()));
}

#[test]
fn members_that_are_not_known_come_back_behind_the_others() {
    let read = parcel(r#"{"zeal":{"b":1,"a":1.50},"name":"a","labels":[],"Weight":3}"#).unwrap();
    assert_eq!(read.weight, 0);
    assert_eq!(read.write().to_compact(), r#"{"name":"a","labels":[],"zeal":{"b":1,"a":1.50},"Weight":3}"#);
}

#[test]
fn a_wrong_type_is_named_with_its_place() {
    for (text, expected) in [
        ("[]", "the document must be an object, not a list"),
        (r#"{"parts":[{},{"weight":"2"}]}"#, "`parts[1].weight` must be a whole number, not `2`"),
        (r#"{"weight":1.5}"#, "`weight` must be a whole number of 64 bits, not `1.5`"),
        (r#"{"weight":4294967296}"#, "`weight` must be a whole number of 32 bits, not `4294967296`"),
        (r#"{"fragile":"yes"}"#, "`fragile` must be true or false, not `yes`"),
        (r#"{"labels":[true]}"#, "`labels[0]` must be a string, not a boolean"),
        (r#"{"took":"5"}"#, "`took` must be a duration such as `5s`, or a number of nanoseconds, not `5`"),
    ] {
        assert_eq!(parcel(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_duration_is_read_as_text_or_as_nanoseconds() {
    for text in [r#"{"took":"1m30s"}"#, r#"{"took":90000000000}"#] {
        assert_eq!(parcel(text).unwrap().took, GoDuration::from_seconds(90));
    }
}
