//! Secrets by their names. In a pod they are variables of the environment; they never stand in a RunConfig.

use std::collections::BTreeMap;

use skep_runconfig::RunConfig;

use crate::settings::SettingsError;

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
pub(crate) fn resolve(config: &RunConfig, environment: &BTreeMap<String, String>) -> Result<Secrets, SettingsError> {
    let look = |field: &'static str, name: &str| {
        environment.get(&format!("{PREFIX}{name}")).cloned().ok_or_else(|| SettingsError::Field {
            field,
            problem: format!("the secret `{name}` is not there; set the variable {PREFIX}{name}"),
        })
    };
    let mut secrets = Secrets::default();
    for entry in &config.secrets {
        let (name, target) = entry.split_once(",target=").ok_or_else(|| SettingsError::Field {
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
            let text = read.map_err(|error| SettingsError::Field {
                field: "remote_auth_config.bearer_token_file",
                problem: format!("cannot read {}: {error}", auth.bearer_token_file),
            })?;
            text.trim().to_owned()
        } else if auth.bearer_token.is_empty() {
            return Err(SettingsError::Field {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(json: &str) -> Result<Secrets, String> {
        let environment = [("TOOLHIVE_SECRET_a", "one"), ("TOOLHIVE_SECRET_b", "two"), ("b", "not this one")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        resolve(&RunConfig::from_slice(json.as_bytes()).unwrap(), &environment).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn secrets_become_variables_of_the_server_and_headers_of_requests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from a file\n").unwrap();
        let by_file = format!(r#"{{"remote_auth_config":{{"bearer_token_file":"{}"}}}}"#, file.path().display());
        let pair = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        for (json, variables, headers) in [
            ("{}", BTreeMap::new(), BTreeMap::new()),
            (r#"{"secrets":["a,target=KEY"]}"#, pair("KEY", "one"), BTreeMap::new()),
            (r#"{"header_forward":{"add_headers_from_secret":{"X-Key":"b"}}}"#, BTreeMap::new(), pair("X-Key", "two")),
            (
                r#"{"remote_auth_config":{"bearer_token":"a,target=bearer_token"}}"#,
                BTreeMap::new(),
                pair("authorization", "Bearer one"),
            ),
            (
                r#"{"remote_auth_config":{"bearer_token":"plain"}}"#,
                BTreeMap::new(),
                pair("authorization", "Bearer plain"),
            ),
            (&by_file, BTreeMap::new(), pair("authorization", "Bearer from a file")),
        ] {
            let secrets = resolved(json).unwrap();
            assert_eq!((&secrets.variables, &secrets.headers), (&variables, &headers), "{json}");
            assert!(!format!("{secrets:?}").contains("one"), "values are not shown");
        }
    }

    #[test]
    fn a_secret_that_is_not_there_is_named() {
        for (json, part) in [
            (r#"{"secrets":["c,target=KEY"]}"#, "TOOLHIVE_SECRET_c"),
            (r#"{"secrets":["c"]}"#, "name,target=VARIABLE"),
            (r#"{"header_forward":{"add_headers_from_secret":{"X-Key":"c"}}}"#, "TOOLHIVE_SECRET_c"),
            (r#"{"remote_auth_config":{"bearer_token":"c,target=bearer_token"}}"#, "TOOLHIVE_SECRET_c"),
            (r#"{"remote_auth_config":{"bearer_token_file":"/no/such/file"}}"#, "/no/such/file"),
            (r#"{"remote_auth_config":{"client_id":"c"}}"#, "use a bearer token"),
        ] {
            let wrong = resolved(json).unwrap_err();
            assert!(wrong.contains(part), "{json}: {wrong}");
        }
    }
}
