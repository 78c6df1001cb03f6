//! Decisions about one caller.
//!
//! The entities of the configuration are taken over once for all of them: an entity of a request is added, and removed before the next one.
//! Each decision sees what a decision about that one thing alone would see.

use cedar_policy::{
    Authorizer, Context, Decision as Effect, Entities, Entity, EntityUid, Request, RestrictedExpression,
};
use serde_json::Value;

use super::{Attribute, Cedar, Principal, failure, shown, values};
use crate::decision::Decision;
use crate::query::Query;

/// Decides about what one caller may do.
#[derive(Debug)]
pub struct Evaluation<'a> {
    cedar: &'a Cedar,
    principal: &'a Principal,
    server: &'a str,
    authorizer: Authorizer,
    /// The entities of the configuration and the caller, and of the request before this one.
    entities: Option<Entities>,
    /// What is of the request before this one.
    added: Vec<EntityUid>,
}

// === impl Evaluation ===

impl<'a> Evaluation<'a> {
    pub(super) fn new(cedar: &'a Cedar, principal: &'a Principal, server: &'a str) -> Self {
        Self { cedar, principal, server, authorizer: Authorizer::new(), entities: None, added: Vec::new() }
    }

    /// Decides.
    pub fn decide(&mut self, query: &Query<'_>) -> Decision {
        self.try_decide(query).unwrap_or_else(|failed| failed)
    }

    fn try_decide(&mut self, query: &Query<'_>) -> Result<Decision, Decision> {
        let cedar = self.cedar;
        let arguments = self.arguments(query)?;
        let action = cedar.action(query)?;
        let resource = cedar.resource(query, &arguments, self.server)?;
        let context = self.principal.context.iter().cloned().chain(arguments);
        let context = Context::from_pairs(context).map_err(|_| Decision::failed("two attributes have one name"))?;
        let request = Request::new(self.principal.uid.clone(), action.uid(), resource.uid(), context, None);
        let request = request.map_err(|_| Decision::failed("there is no valid request for Cedar"))?;
        let entities = self.entities_with([action, resource])?;
        let response = self.authorizer.is_authorized(&request, &cedar.policies, &entities);
        self.entities = Some(entities);
        let diagnostics = response.diagnostics();
        let mut policies: Vec<_> = diagnostics.reason().map(|policy| cedar.place(policy)).collect();
        policies.sort();
        // One that fails may be the one that would have forbidden it.
        let mut errors: Vec<_> =
            diagnostics.errors().map(|error| failure::describe(error, |policy| cedar.place(policy))).collect();
        errors.sort();
        let is_allowed = response.decision() == Effect::Allow && errors.is_empty();
        Ok(Decision { is_allowed, policies, errors })
    }

    /// The arguments of a call that policies refer to, as attributes. Of an object or a list, policies see only its presence.
    fn arguments(&self, query: &Query<'_>) -> Result<Vec<Attribute>, Decision> {
        let mut attributes = Vec::new();
        for (name, value) in query.arguments.into_iter().flatten() {
            let (attribute, value) = match value {
                Value::String(_) | Value::Bool(_) | Value::Number(_) => (format!("arg_{name}"), values::of_json(value)),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    (format!("arg_{name}_present"), Ok(Some(RestrictedExpression::new_bool(true))))
                }
            };
            if !self.cedar.mentions.has(&attribute) {
                continue;
            }
            // Without its attribute, a policy about it would not apply.
            let value = value.map_err(|error| Decision::failed(format!("{} {error}", shown(&attribute))))?;
            attributes.extend(value.map(|value| (attribute, value)));
        }
        Ok(attributes)
    }

    /// The entities with those of a request.
    fn entities_with(&mut self, own: [Entity; 2]) -> Result<Entities, Decision> {
        let failed = |_| Decision::failed("the entities contradict each other");
        let (cedar, principal) = (self.cedar, &self.principal.entity);
        let added = own.iter().map(Entity::uid).collect();
        let before = std::mem::replace(&mut self.added, added);
        if cedar.known.is_empty() {
            return Entities::from_entities(own.into_iter().chain([principal.clone()]), None).map_err(failed);
        }
        let is_unchanged = |uid: &EntityUid| !cedar.known.contains_key(uid);
        let base = match self.entities.take().filter(|_| before.iter().all(is_unchanged)) {
            Some(entities) => entities.remove_entities(before).map_err(failed)?,
            None => cedar.entities.clone().upsert_entities([principal.clone()], None).map_err(failed)?,
        };
        base.upsert_entities(own, None).map_err(failed)
    }
}
