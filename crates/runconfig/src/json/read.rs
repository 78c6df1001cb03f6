//! Reading JSON and YAML text. Only serde's parsers read characters; order and digits are kept here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use skep_bounds::{MANIFEST_ALIASES, MANIFEST_BYTES, MANIFEST_DEPTH, MANIFEST_EXPANSION, MANIFEST_NODES};

use super::{Json, JsonError, MOST_LEVELS, Members, Number};

/// What a small YAML document may have in any case: values, and bytes of them.
const SMALL_NODES: usize = 4 * 1024;
const SMALL_BYTES: usize = 64 * 1024;

impl Json {
    /// Reads the first JSON value of a text. What stands behind it is ignored, and invalid UTF-8 is replaced.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, JsonError> {
        let text = String::from_utf8_lossy(bytes);
        let mut parser = serde_json::Deserializer::from_str(&text);
        read(<&RawValue>::deserialize(&mut parser).map_err(syntax)?, MOST_LEVELS)
    }

    /// Reads a YAML document within the limits of a file of manifests: with its aliases written out, it may have four times its size.
    pub fn from_yaml(text: &str) -> Result<Self, JsonError> {
        skep_bounds::size(text, MANIFEST_BYTES).map_err(|error| JsonError::Yaml(error.to_string()))?;
        // Without aliases, no text has more values than bytes.
        let nodes = MANIFEST_NODES.min(SMALL_NODES + text.len());
        let scalar_bytes = SMALL_BYTES + MANIFEST_EXPANSION * text.len();
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: MANIFEST_DEPTH,
                max_aliases: MANIFEST_ALIASES,
                max_nodes: nodes,
                max_total_scalar_bytes: scalar_bytes,
                // What is kept of anchors, for their aliases.
                max_recorded_anchor_events: nodes,
                max_recorded_anchor_bytes: scalar_bytes,
            },
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| JsonError::Yaml(error.to_string()))
    }
}

impl std::str::FromStr for Json {
    type Err = JsonError;

    fn from_str(text: &str) -> Result<Self, JsonError> {
        Self::from_slice(text.as_bytes())
    }
}

/// One level of a value is parsed at a time; its parts are texts until they are read.
fn read(raw: &RawValue, levels: usize) -> Result<Json, JsonError> {
    let text = raw.get();
    let levels = levels.checked_sub(1).ok_or(JsonError::TooDeep)?;
    Ok(match text.as_bytes().first() {
        Some(b'n') => Json::Null,
        Some(b't') => Json::Bool(true),
        Some(b'f') => Json::Bool(false),
        Some(b'"') => Json::String(serde_json::from_str(text).map_err(syntax)?),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(syntax)?;
            Json::Array(items.into_iter().map(|item| read(item, levels)).collect::<Result<_, _>>()?)
        }
        Some(b'{') => {
            let Pairs(pairs) = serde_json::from_str(text).map_err(syntax)?;
            let members = pairs.into_iter().map(|(name, value)| Ok((name, read(value, levels)?)));
            Json::Object(members.collect::<Result<Members, JsonError>>()?)
        }
        _ => Json::Number(Number::from_digits(text)),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of `map_err`")]
fn syntax(error: serde_json::Error) -> JsonError {
    JsonError::Syntax(error.to_string())
}

/// The members of an object, still as texts.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// For formats other than JSON; their numbers are read before we see them.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Json, E> {
        Ok(Json::Bool(bool))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Json, E> {
        Number::from_f64(number).map(Json::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members.into_iter().collect()))
    }
}
