//! Secrets by their names. In a pod they are variables of the environment; they never stand in a RunConfig.

use std::collections::BTreeMap;

use skep_runconfig::RunConfig;

use crate::settings::Wrong;

/// What a variable that holds a secret begins with.
const PREFIX: &str = "TOOLHIVE_SECRET_";

/// What the secrets of a RunConfig come to.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    /// Variables of the server.
    pub(crate) variables: BTreeMap<String, String>,
    /// Headers of every request to a remote server.
    pub(crate) headers: BTreeMap<String, String>,
}

/// Without the values.
impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Secrets");
        debug.field("variables", &self.variables.keys()).field("headers", &self.headers.keys()).finish()
    }
}

/// Looks up every secret that a RunConfig names.
pub(crate) fn resolve(config: &RunConfig, environment: &BTreeMap<String, String>) -> Result<Secrets, Wrong> {
    let look = |field: &'static str, name: &str| {
        environment.get(&format!("{PREFIX}{name}")).cloned().ok_or_else(|| Wrong::Field {
            field,
            problem: format!("the secret `{name}` is not there; set the variable {PREFIX}{name}"),
        })
    };
    let mut secrets = Secrets::default();
    for entry in &config.secrets {
        let (name, target) = entry.split_once(",target=").ok_or_else(|| Wrong::Field {
            field: "secrets",
            problem: format!("`{entry}` must be written like name,target=VARIABLE"),
        })?;
        secrets.variables.insert(target.to_owned(), look("secrets", name)?);
    }
    if let Some(forward) = &config.header_forward {
        for (header, name) in &forward.add_headers_from_secret {
            secrets.headers.insert(header.clone(), look("header_forward.add_headers_from_secret", name)?);
        }
    }
    if let Some(auth) = &config.remote_auth_config {
        let token = if !auth.bearer_token_file.is_empty() {
            let read = std::fs::read_to_string(&auth.bearer_token_file);
            let text = read.map_err(|error| Wrong::Field {
                field: "remote_auth_config.bearer_token_file",
                problem: format!("cannot read {}: {error}", auth.bearer_token_file),
            })?;
            text.trim().to_owned()
        } else if auth.bearer_token.is_empty() {
            return Err(Wrong::Field {
                field: "remote_auth_config",
                problem: "signing in by OAuth is not in this version of skep; use a bearer token".to_owned(),
            });
        } else {
            match auth.bearer_token.split_once(",target=") {
                Some((name, _)) => look("remote_auth_config.bearer_token", name)?,
                None => auth.bearer_token.clone(),
            }
        };
        secrets.headers.insert("authorization".to_owned(), format!("Bearer {token}"));
    }
    Ok(secrets)
}
