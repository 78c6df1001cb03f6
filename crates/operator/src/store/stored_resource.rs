//! How a readable resource is held between reconciles: an ordinary one as plans read it, a large one as the text it was sent in.
//!
//! A tree of values takes up to 140 times its text, and any client may create objects of 20,000 values. As text a thousand of them take
//! what they take in etcd, so that one namespace cannot exhaust the operator's memory. A large one is parsed anew for each reconcile.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use skep_api::resource::{KindName, Resource};

/// The longest text, in bytes, whose object is held parsed. Most objects have less than half of it.
const LONGEST_PARSED: usize = 8 * 1024;

/// A readable resource. A clone shares it.
#[derive(Clone, Debug)]
pub struct StoredResource(Form);

#[derive(Clone, Debug)]
enum Form {
    Parsed(Arc<Resource>),
    Text(Arc<Text>),
}

#[derive(Debug)]
struct Text {
    kind: KindName,
    metadata: ObjectMeta,
    /// The whole object as JSON.
    json: Box<str>,
    /// How many values it has.
    values: usize,
}

// === impl StoredResource ===

impl StoredResource {
    /// Reads an object, and holds it in the form that its size asks for.
    pub(super) fn read(kind: KindName, value: &Value) -> Result<Self, String> {
        let resource = parse(kind, value)?;
        let json = value.to_string();
        if json.len() <= LONGEST_PARSED {
            return Ok(Self(Form::Parsed(Arc::new(resource))));
        }
        let (metadata, values) = (resource.metadata().clone(), skep_bounds::count_json_values(&json));
        Ok(Self(Form::Text(Arc::new(Text { kind, metadata, json: json.into(), values }))))
    }

    /// What every object has.
    pub fn metadata(&self) -> &ObjectMeta {
        match &self.0 {
            Form::Parsed(resource) => resource.metadata(),
            Form::Text(text) => &text.metadata,
        }
    }

    /// The resource, parsed if it is held as text.
    pub fn resource(&self) -> Result<Arc<Resource>, String> {
        match &self.0 {
            Form::Parsed(resource) => Ok(Arc::clone(resource)),
            Form::Text(text) => {
                let value: Value = serde_json::from_str(&text.json).map_err(|error| error.to_string())?;
                parse(text.kind, &value).map(Arc::new)
            }
        }
    }

    /// How many values are parsed for [`Self::resource`]; none of an object that is held parsed.
    pub fn values_to_parse(&self) -> usize {
        match &self.0 {
            Form::Parsed(_) => 0,
            Form::Text(text) => text.values,
        }
    }
}

/// Reads an object. A panic of the reader is a problem of this object alone.
fn parse(kind: KindName, value: &Value) -> Result<Resource, String> {
    let read = std::panic::catch_unwind(|| Resource::from_ref(kind, value).map_err(|problem| problem.to_string()));
    read.unwrap_or_else(|_panic| Err("reading it failed; this is a bug".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(variables: usize) -> Value {
        let template =
            json!({ "spec": { "containers": [{ "name": "mcp", "args": vec!["a"; variables], "weight": 0.1 }] } });
        json!({
            "kind": "MCPServer",
            "metadata": { "name": "s", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3 },
            "spec": { "image": "i", "podTemplateSpec": template },
            "status": { "phase": "Ready" },
        })
    }

    /// One that was parsed took 140 times as much.
    #[test]
    fn a_large_object_is_held_as_text_and_read_as_it_was() {
        for (arguments, is_text) in [(1, false), (10_000, true)] {
            let value = server(arguments);
            let held = StoredResource::read(KindName::MCPServer, &value).unwrap();
            assert_eq!(matches!(held.0, Form::Text(_)), is_text);
            assert_eq!(held.values_to_parse() > 10_000, is_text);
            let expected = Resource::from_ref(KindName::MCPServer, &value).unwrap();
            let resource = held.resource().unwrap();
            assert_eq!(held.metadata(), expected.metadata());
            assert_eq!(resource.metadata(), expected.metadata());
            assert_eq!(resource.spec_value(), expected.spec_value());
            assert_eq!(resource.status_value(), expected.status_value());
        }
    }
}
