//! Whether a configuration is valid: one function per kind, for its own status and for the workloads that use it.
//!
//! The API server has already checked what a schema can say. Here is what it cannot, and once more what would be
//! dangerous if an older definition had let it in. All problems are reported at once, each with its place and what to do.

mod address;
mod auth_server;
mod authz;
mod external_auth;
mod matcher;
mod oidc;
mod problems;
mod references;
mod storage;
mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
mod tools;
mod trust;
mod upstream;
mod webhook;

use skep_api::kinds::ExternalAuthMethod;
use skep_api::resource::Resource;

pub use auth_server::{embedded_auth_server, synthesizes_identity};
pub(crate) use external_auth::matcher_tokens;
pub use problems::in_one_line;
pub(crate) use problems::{Place, Problems, clipped_to};
pub(crate) use references::problems as reference_problems;
pub(crate) use webhook::resolved_problems as webhook_problems;

use crate::canonical;
use crate::error::{NOT_SUPPORTED, PlanError};
use crate::world::World;

/// How many digits of its hash a configuration shows: enough that two never meet, few enough to read.
const HASH_DIGITS: usize = 16;

/// Validates a configuration. Resources of other kinds are valid.
pub fn validate(me: &Resource, world: &World<'_>) -> Result<(), PlanError> {
    let (reason, own) = match me {
        Resource::MCPToolConfig(object) => ("ValidationFailed", tools::problems(&object.spec)),
        Resource::MCPExternalAuthConfig(object) if object.spec.method == ExternalAuthMethod::Obo => {
            let message =
                "spec.type: `obo` is not supported by this version of Skep; exchange tokens with type `tokenExchange`";
            return Err(PlanError::InvalidConfig { reason: NOT_SUPPORTED, message: message.to_owned() });
        }
        Resource::MCPExternalAuthConfig(object) => ("ValidationFailed", external_auth::problems(&object.spec)),
        Resource::MCPOIDCConfig(object) => ("ConfigInvalid", oidc::problems(&object.spec)),
        Resource::MCPAuthzConfig(object) => ("ConfigInvalid", authz::problems(&object.spec, world.policies)),
        Resource::MCPTelemetryConfig(object) => ("ValidationFailed", telemetry::problems(&object.spec)),
        Resource::MCPWebhookConfig(object) => ("ValidationFailed", webhook::problems(&object.spec)),
        _ => return Ok(()),
    };
    let mut problems = reference_problems(me);
    problems.under("", own);
    problems.result().map_err(|error| PlanError::InvalidConfig { reason, message: error.to_string() })
}

/// A short hash of a spec. It changes when the spec says something else, and only then: neither the order of members nor
/// how this program was built matters.
pub fn config_hash(me: &Resource) -> String {
    canonical::value_hash(&me.spec_value()).chars().take(HASH_DIGITS).collect()
}

#[cfg(test)]
mod tests;
