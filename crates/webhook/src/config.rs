//! What a RunConfig says about a webhook, checked before the first request.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use skep_auth::Secret;
use skep_runconfig::run_config::{Webhook, WebhookTls};

/// The bounds of a timeout.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// What a variable that holds a secret begins with.
const SECRET: &str = "TOOLHIVE_SECRET_";
/// The variable that allows plain HTTP, for tests of the original.
const INSECURE: &str = "INSECURE_DISABLE_URL_VALIDATION";

/// One webhook. The checks are done: it can be called.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Its name, for logs.
    pub name: String,
    /// Where it is.
    pub url: Uri,
    /// How long it may take, the body of its response included.
    pub timeout: Duration,
    /// What happens to a message when it fails.
    pub failure_policy: FailurePolicy,
    /// The key that requests are signed with; none for requests that are not signed.
    pub signing_key: Option<SigningKey>,
    /// How it is authenticated.
    pub tls: TlsFiles,
}

/// What happens to a message when a webhook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is denied.
    Fail,
    /// It goes on, as if there were no such webhook.
    Ignore,
}

/// Where the key of signatures comes from.
#[derive(Clone)]
pub enum SigningKey {
    /// A file, read for each call. Its bytes are the key, a line feed at its end included.
    File(PathBuf),
    /// A secret of the environment.
    Value(Secret),
}

/// The files that connections are authenticated by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate authorities to trust, and no others; none for those of the system.
    pub ca_bundle: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is accepted.
    pub insecure_skip_verify: bool,
}

/// What is wrong with the configuration of a webhook.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It has no name.
    #[error("a webhook has no name; set `name`")]
    Name,
    /// Its URL is not one that can be called.
    #[error("webhook `{name}`: `url` must be like `https://hooks.example.com/check`{}", .advice)]
    Url {
        /// The webhook.
        name: String,
        /// What to do.
        advice: &'static str,
    },
    /// Its timeout is out of bounds.
    #[error("webhook `{name}`: `timeout` must be between {} s and {} s", SHORTEST.as_secs(), LONGEST.as_secs())]
    Timeout {
        /// The webhook.
        name: String,
    },
    /// Its failure policy is not one.
    #[error("webhook `{name}`: `failure_policy` is `{given}`; use `fail` or `ignore`")]
    FailurePolicy {
        /// The webhook.
        name: String,
        /// What it says.
        given: String,
    },
    /// Its certificate has no key, or its key no certificate.
    #[error("webhook `{name}`: set both `client_cert_path` and `client_key_path`, or none")]
    ClientCertificate {
        /// The webhook.
        name: String,
    },
    /// Its secret does not exist.
    #[error("webhook `{name}`: the secret `{secret}` is not there or is empty; set the variable {SECRET}{secret}")]
    Secret {
        /// The webhook.
        name: String,
        /// The secret.
        secret: String,
    },
    /// A file of it cannot be used.
    #[error("webhook `{name}`: {problem}")]
    File {
        /// The webhook.
        name: String,
        /// What is wrong with which file.
        problem: String,
    },
}

// === impl WebhookConfig ===

impl WebhookConfig {
    /// Checks an entry of a RunConfig. The environment has the secrets that are not files.
    pub fn new(document: &Webhook, environment: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let name = document.name.clone();
        if name.is_empty() {
            return Err(ConfigError::Name);
        }
        let given = document.tls_config.clone().unwrap_or_default();
        let allows_http = given.insecure_skip_verify || environment.get(INSECURE).is_some_and(|on| on == "true");
        let url = url(&document.url, allows_http).map_err(|advice| ConfigError::Url { name: name.clone(), advice })?;
        let timeout = document.timeout_in_effect().to_std().unwrap_or_default();
        if !(SHORTEST..=LONGEST).contains(&timeout) {
            return Err(ConfigError::Timeout { name });
        }
        let failure_policy = FailurePolicy::parse(&document.failure_policy)
            .ok_or_else(|| ConfigError::FailurePolicy { name: name.clone(), given: document.failure_policy.clone() })?;
        let tls = TlsFiles::new(&given).ok_or_else(|| ConfigError::ClientCertificate { name: name.clone() })?;
        let signing_key = SigningKey::find(&document.hmac_secret_ref, environment)
            .map_err(|secret| ConfigError::Secret { name: name.clone(), secret })?;
        Ok(Self { name, url, timeout, failure_policy, signing_key, tls })
    }

    /// Whether it may be called over plain HTTP.
    pub fn is_plain(&self) -> bool {
        self.url.scheme_str() == Some("http")
    }
}

fn url(text: &str, allows_http: bool) -> Result<Uri, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "")?;
    let is_named = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    match uri.scheme_str() {
        _ if !is_named => Err(" and name no user"),
        Some("https") => Ok(uri),
        Some("http") if allows_http => Ok(uri),
        Some("http") => Err("; for development, `insecure_skip_verify` allows plain HTTP"),
        _ => Err(""),
    }
}

// === impl FailurePolicy ===

impl FailurePolicy {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "fail" => Some(Self::Fail),
            "ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}

// === impl SigningKey ===

impl SigningKey {
    /// Finds the key that a reference names; the error is the name of a secret that does not exist.
    fn find(reference: &str, environment: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        if reference.is_empty() {
            return Ok(None);
        }
        if reference.starts_with('/') {
            return Ok(Some(Self::File(reference.into())));
        }
        let name = reference.split_once(",target=").map_or(reference, |(name, _)| name);
        let value = environment.get(&format!("{SECRET}{name}")).filter(|value| !value.is_empty());
        value.map(|value| Some(Self::Value(Secret::new(value)))).ok_or_else(|| name.to_owned())
    }
}

/// Without the secret.
impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Value(_) => formatter.write_str("Value(..)"),
        }
    }
}

// === impl TlsFiles ===

impl TlsFiles {
    /// Nothing if a certificate has no key, or a key no certificate.
    fn new(tls: &WebhookTls) -> Option<Self> {
        let path = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        let client = match (path(&tls.client_cert_path), path(&tls.client_key_path)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return None,
        };
        let insecure_skip_verify = tls.insecure_skip_verify;
        Some(Self { ca_bundle: path(&tls.ca_bundle_path), client, insecure_skip_verify })
    }

    /// Every file.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let client = self.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.ca_bundle.iter().chain(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Result<WebhookConfig, String> {
        let text = format!(r#"{{"mutating_webhooks":[{json}]}}"#);
        let document = skep_runconfig::RunConfig::from_slice(text.as_bytes()).unwrap();
        let environment = [("TOOLHIVE_SECRET_key", "s3cret"), ("TOOLHIVE_SECRET_empty", "")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        WebhookConfig::new(&document.mutating_webhooks[0], &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn a_webhook_has_defaults() {
        let webhook = config(r#"{"name":"a","url":"https://a/b?c","failure_policy":"fail"}"#).unwrap();
        assert_eq!((webhook.timeout, webhook.failure_policy), (Duration::from_secs(10), FailurePolicy::Fail));
        assert!(webhook.signing_key.is_none());
        assert_eq!(webhook.tls, TlsFiles::default());
    }

    #[test]
    fn timeouts_are_numbers_or_durations_within_bounds() {
        for (text, seconds) in [("0", 10), ("1000000000", 1), (r#""1s""#, 1), (r#""30s""#, 30), ("30000000000", 30)] {
            let webhook = format!(r#"{{"name":"a","url":"https://a","failure_policy":"ignore","timeout":{text}}}"#);
            assert_eq!(config(&webhook).unwrap().timeout, Duration::from_secs(seconds), "{text}");
        }
        for text in [r#""999ms""#, r#""30.001s""#, "-1", "31000000000"] {
            let webhook = format!(r#"{{"name":"a","url":"https://a","failure_policy":"ignore","timeout":{text}}}"#);
            assert!(config(&webhook).unwrap_err().contains("between 1 s and 30 s"), "{text}");
        }
    }

    #[test]
    fn webhooks_that_cannot_be_called_are_refused_before_the_first_request() {
        for (json, text) in [
            (r#"{"url":"https://a","failure_policy":"fail"}"#, "has no name"),
            (r#"{"name":"a","url":"http://a","failure_policy":"fail"}"#, "allows plain HTTP"),
            (r#"{"name":"a","url":"/check","failure_policy":"fail"}"#, "`url`"),
            (r#"{"name":"a","url":"https://u:p@a","failure_policy":"fail"}"#, "name no user"),
            (r#"{"name":"a","url":"ftp://a","failure_policy":"fail"}"#, "`url`"),
            (r#"{"name":"a","url":"https://a","failure_policy":"maybe"}"#, "use `fail` or `ignore`"),
            (r#"{"name":"a","url":"https://a"}"#, "use `fail` or `ignore`"),
            (
                r#"{"name":"a","url":"https://a","failure_policy":"fail","tls_config":{"client_cert_path":"/c"}}"#,
                "both",
            ),
            (
                r#"{"name":"a","url":"https://a","failure_policy":"fail","hmac_secret_ref":"other"}"#,
                "TOOLHIVE_SECRET_other",
            ),
            (
                r#"{"name":"a","url":"https://a","failure_policy":"fail","hmac_secret_ref":"empty"}"#,
                "TOOLHIVE_SECRET_empty",
            ),
        ] {
            let error = config(json).unwrap_err();
            assert!(error.contains(text), "{json}: {error}");
        }
    }

    #[test]
    fn keys_are_files_or_secrets_and_never_shown() {
        let with = |reference: &str| {
            let json =
                format!(r#"{{"name":"a","url":"https://a","failure_policy":"fail","hmac_secret_ref":"{reference}"}}"#);
            config(&json).unwrap()
        };
        assert!(matches!(with("/etc/key").signing_key, Some(SigningKey::File(path)) if path.ends_with("key")));
        for reference in ["key", "key,target=x"] {
            let webhook = with(reference);
            assert!(matches!(&webhook.signing_key, Some(SigningKey::Value(key)) if key.expose() == "s3cret"));
            assert!(!format!("{webhook:?}").contains("s3cret"));
        }
    }
}
