//! A session as JSON, member by member as ToolHive writes it, so that both can share a Redis while one replaces the other.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Kind, Session};

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("id", &self.id)?;
        members.serialize_entry("type", &self.kind)?;
        members.serialize_entry("created_at", &Time(self.created_at))?;
        members.serialize_entry("updated_at", &Time(self.updated_at))?;
        if let Some(data) = &self.data {
            members.serialize_entry("data", data)?;
        }
        if !self.metadata.is_empty() {
            members.serialize_entry("metadata", &self.metadata)?;
        }
        for (name, value) in &self.unknown {
            members.serialize_entry(name, value)?;
        }
        members.end()
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

/// Reads the members in any order.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Session;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a session")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Session, A::Error> {
        let (mut id, mut kind, mut created_at, mut updated_at) = (None, None, None, None);
        let (mut data, mut metadata) = (None, None::<BTreeMap<String, String>>);
        let mut unknown: Vec<(String, Box<RawValue>)> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "id" => id = Some(map.next_value::<String>()?),
                "type" => kind = Some(map.next_value::<Kind>()?),
                "created_at" => created_at = Some(map.next_value::<Time>()?.0),
                "updated_at" => updated_at = Some(map.next_value::<Time>()?.0),
                "data" => data = Some(map.next_value()?),
                "metadata" => metadata = map.next_value()?,
                _ => unknown.push((name, map.next_value()?)),
            }
        }
        Ok(Session {
            id: id.ok_or_else(|| Error::missing_field("id"))?,
            kind: kind.ok_or_else(|| Error::missing_field("type"))?,
            created_at: created_at.ok_or_else(|| Error::missing_field("created_at"))?,
            updated_at: updated_at.ok_or_else(|| Error::missing_field("updated_at"))?,
            data,
            metadata: metadata.unwrap_or_default(),
            unknown,
        })
    }
}

/// A time as RFC 3339, with as many fractional digits as needed, as Go prints it.
struct Time(Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(Error::custom)
    }
}
