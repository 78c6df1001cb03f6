//! Whether a value is a pod template, as an API server would see it: unknown fields are ignored, a value of the
//! wrong type is an error that says where.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Deserialize as _;
use serde_json::Value;
use skep_api::plain::plain;

use crate::error::PlanError;
use crate::text::Quantity;
use crate::validate::Place;

/// Objects whose members are all quantities.
const QUANTITIES: &[&str] = &["limits", "requests", "overhead"];
/// Members that are quantities.
const QUANTITY: &[&str] = &["sizeLimit", "divisor"];

/// Refuses a value that is not a pod template.
pub fn check_pod_template(template: &Value) -> Result<(), PlanError> {
    let mut track = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(template, &mut track);
    if let Err(error) = PodTemplateSpec::deserialize(reader) {
        let place = track.path().to_string();
        return Err(PlanError::template(format_args!("{}: {}", shown(&place), plain(&error.to_string()))));
    }
    template.get("spec").map_or(Ok(()), |spec| check_quantities(spec, Place::Root("spec")))
}

/// The types take any text for a quantity; an API server does not.
fn check_quantities(value: &Value, place: Place<'_>) -> Result<(), PlanError> {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let place = Place::Member(&place, name);
                match value {
                    Value::Object(amounts) if QUANTITIES.contains(&name.as_str()) => {
                        for (resource, amount) in amounts {
                            check_quantity(amount, Place::Member(&place, resource))?;
                        }
                    }
                    amount if QUANTITY.contains(&name.as_str()) => check_quantity(amount, place)?,
                    other => check_quantities(other, place)?,
                }
            }
            Ok(())
        }
        Value::Array(elements) => {
            let mut elements = elements.iter().enumerate();
            elements.try_for_each(|(index, element)| check_quantities(element, Place::Element(&place, index)))
        }
        _ => Ok(()),
    }
}

fn check_quantity(amount: &Value, place: Place<'_>) -> Result<(), PlanError> {
    match amount {
        Value::String(text) => {
            let quantity = text.parse::<Quantity>().map(drop);
            quantity.map_err(|error| PlanError::template(format_args!("{place}: {error}")))
        }
        _ => Ok(()),
    }
}

/// The path of the whole template is empty.
fn shown(path: &str) -> &str {
    if path == "." { "podTemplateSpec" } else { path }
}
