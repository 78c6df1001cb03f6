//! Any serialisable value as [`Json`]: the members of a struct in the order of its fields, those of a map sorted by name.
//!
//! serde distinguishes a struct from a map, which is what makes the order independent of the map's own. A struct with a flattened
//! field is a map to serde: bring its members into order with [`Members::arrange`].

use std::fmt::Display;

use serde::ser::{self, Serialize, Serializer};

use super::{Json, JsonError, Members, Number};

impl Json {
    /// The value as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        value.serialize(ToJson)
    }
}

impl ser::Error for JsonError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Unwritable(message.to_string())
    }
}

struct ToJson;

/// A list that is being written, and the variant that it belongs to.
struct List {
    variant: Option<&'static str>,
    items: Vec<Json>,
}

/// An object that is being written, and the variant that it belongs to.
struct Object {
    variant: Option<&'static str>,
    sorted: bool,
    name: Option<String>,
    members: Vec<(String, Json)>,
}

impl Serializer for ToJson {
    type Ok = Json;
    type Error = JsonError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Object;
    type SerializeStruct = Object;
    type SerializeStructVariant = Object;

    fn serialize_bool(self, bool: bool) -> Result<Json, JsonError> {
        Ok(Json::Bool(bool))
    }

    fn serialize_i8(self, number: i8) -> Result<Json, JsonError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<Json, JsonError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<Json, JsonError> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<Json, JsonError> {
        Ok(Json::Number(number.into()))
    }

    fn serialize_u8(self, number: u8) -> Result<Json, JsonError> {
        self.serialize_u64(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<Json, JsonError> {
        self.serialize_u64(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<Json, JsonError> {
        self.serialize_u64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<Json, JsonError> {
        Ok(Json::Number(number.into()))
    }

    fn serialize_f32(self, number: f32) -> Result<Json, JsonError> {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<Json, JsonError> {
        let finite = Number::from_f64(number).map(Json::Number);
        finite.ok_or_else(|| JsonError::Unwritable(format!("the number `{number}` is not finite")))
    }

    fn serialize_char(self, character: char) -> Result<Json, JsonError> {
        Ok(Json::String(character.to_string()))
    }

    fn serialize_str(self, text: &str) -> Result<Json, JsonError> {
        Ok(Json::from(text))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Json, JsonError> {
        Ok(Json::Array(bytes.iter().map(|byte| Json::Number(u64::from(*byte).into())).collect()))
    }

    fn serialize_none(self) -> Result<Json, JsonError> {
        Ok(Json::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Json, JsonError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Json, JsonError> {
        Ok(Json::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Json, JsonError> {
        Ok(Json::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Json, JsonError> {
        Ok(Json::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Json, JsonError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Json, JsonError> {
        Ok(inside(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, JsonError> {
        Ok(List { variant: None, items: Vec::new() })
    }

    fn serialize_tuple(self, _: usize) -> Result<List, JsonError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, JsonError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List, JsonError> {
        Ok(List { variant: Some(variant), items: Vec::new() })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object, JsonError> {
        Ok(Object { variant: None, sorted: true, name: None, members: Vec::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object, JsonError> {
        Ok(Object { variant: None, sorted: false, name: None, members: Vec::new() })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object, JsonError> {
        Ok(Object { variant: Some(variant), sorted: false, name: None, members: Vec::new() })
    }
}

/// The value of a variant is the only member of an object.
fn inside(variant: Option<&'static str>, value: Json) -> Json {
    match variant {
        Some(variant) => Json::Object(Members::from_iter([(variant.to_owned(), value)])),
        None => value,
    }
}

// === impl List ===

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.items.push(Json::of(value)?);
        Ok(())
    }

    fn finish(self) -> Json {
        inside(self.variant, Json::Array(self.items))
    }
}

impl ser::SerializeSeq for List {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.push(value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

impl ser::SerializeTuple for List {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.push(value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

impl ser::SerializeTupleStruct for List {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.push(value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

impl ser::SerializeTupleVariant for List {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.push(value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

// === impl Object ===

impl Object {
    fn push<T: Serialize + ?Sized>(&mut self, name: String, value: &T) -> Result<(), JsonError> {
        self.members.push((name, Json::of(value)?));
        Ok(())
    }

    fn finish(self) -> Json {
        let mut members = Members::from_iter(self.members);
        if self.sorted {
            members.arrange(&[]);
        }
        inside(self.variant, Json::Object(members))
    }
}

impl ser::SerializeMap for Object {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), JsonError> {
        self.name = Some(match Json::of(key)? {
            Json::String(name) => name,
            Json::Number(number) => number.as_str().to_owned(),
            other => return Err(JsonError::Unwritable(format!("the name of a member is {}", other.kind()))),
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        let name = self.name.take().ok_or_else(|| JsonError::Unwritable("a member has no name".into()))?;
        self.push(name, value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

impl ser::SerializeStruct for Object {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), JsonError> {
        self.push(name.to_owned(), value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}

impl ser::SerializeStructVariant for Object {
    type Ok = Json;
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), JsonError> {
        self.push(name.to_owned(), value)
    }

    fn end(self) -> Result<Json, JsonError> {
        Ok(self.finish())
    }
}
