//! Members of a group as backends: with what they are called with, wherever that is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_plan::key::ObjectKind;
use skep_plan::virtual_server::{DiscoveredMember, Variable};

use super::{Config, Where};
use crate::backend::BackendSpec;

/// What gives the value of a key of a Secret or ConfigMap, by kind, name and key; or says why there is none.
pub type Values<'a> = &'a dyn Fn(ObjectKind, &str, &str) -> Result<Arc<[u8]>, String>;

// === impl Config ===

impl Config {
    /// The backend that a member comes to; or why it cannot be called.
    pub fn found(&self, member: &DiscoveredMember, value: Values<'_>, place: Where<'_>) -> Result<BackendSpec, String> {
        let name = &member.backend.name;
        let (strategy, variables, reference) = match &member.strategy {
            Ok(None) => (self.configured(name), None, None),
            _ if !self.takes_own(name) => (self.configured(name), None, None),
            // Only now is it of any concern whether its own can be resolved.
            own => {
                let own = own.as_ref().map_err(ToString::to_string)?.as_ref();
                (own, Some(&member.strategy_variables), member.auth_config_ref.as_ref())
            }
        };
        let mut own = BTreeMap::new();
        for (name, variable) in member.variables.iter().chain(variables.into_iter().flatten()) {
            let text = match variable {
                Variable::Value(text) => text.clone(),
                Variable::Secret(secret, key) => String::from_utf8(value(ObjectKind::Secret, secret, key)?.to_vec())
                    .map_err(|_| format!("key `{key}` of Secret `{secret}` is not text"))?,
            };
            own.insert(name.clone(), text);
        }
        let ca_bundle = member.ca_bundle.as_ref();
        let ca_bundle = ca_bundle.map(|(map, key)| value(ObjectKind::ConfigMap, map, key)).transpose()?;
        let mut spec = self.backend(&member.backend, strategy, ca_bundle, Where { own: Some(&own), ..place })?;
        spec.refer_to(reference.cloned());
        Ok(spec)
    }
}
