//! Token exchange (RFC 8693): the client's token for one that the server accepts.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use skep_net::client::Schemes;
use skep_net::tls::Trust;
use skep_net::{Addresses, Client};
use url::form_urlencoded;

use crate::Secret;
use crate::credentials::{CredentialCache, Issued};
use crate::fetch::{self, Answer, Ask, FetchError, Fetcher};
use crate::introspection::basic;
use crate::jwt;
use crate::verified::{CacheSize, Digest, of_token};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const TOKEN_TYPES: &str = "urn:ietf:params:oauth:token-type:";
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
/// The longest response, in bytes.
const LONGEST: usize = 1024 * 1024;
/// The longest token that is kept and sent, in bytes. Servers refuse longer headers.
pub(crate) const LONGEST_TOKEN: usize = 16 * 1024;
/// The longest error code of a provider that is repeated in the log.
const LONGEST_CODE: usize = 64;

/// What is exchanged, and where.
#[derive(Clone, Debug)]
pub struct ExchangeOptions {
    /// The token endpoint.
    pub token_url: String,
    /// Our client.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// The audience of the new token.
    pub audience: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The type of the client's token, as a URN or its last part; an access token if empty.
    pub subject_token_type: String,
    /// What the token endpoint may resolve to.
    pub addresses: Addresses,
    /// How much is kept of the tokens.
    pub cache: CacheSize,
}

/// Exchanges the tokens of clients.
#[derive(Debug)]
pub struct TokenExchange {
    fetcher: Fetcher,
    options: ExchangeOptions,
    /// The id and the secret of our client, if it has both.
    client: Option<HeaderValue>,
    tokens: CredentialCache<Secret>,
}

/// A token of the exchange, and what it was exchanged for.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// The token.
    pub token: Secret,
    subject: Digest,
}

/// Why a token cannot be exchanged. No text holds a token or what a provider wrote, except for the code of its error.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The endpoint cannot be reached, or its response cannot be read.
    #[error("token exchange failed: {0}")]
    Fetch(#[from] FetchError),
    /// The endpoint refuses.
    #[error("token exchange failed: the token endpoint answered {status} with the error `{code}`")]
    Refused {
        /// The status.
        status: u16,
        /// The code of the error; empty if there is none.
        code: String,
    },
    /// The response lacks a member, or it cannot be used.
    #[error("token exchange failed: the response of the token endpoint has no usable `{0}`")]
    Incomplete(&'static str),
    /// The token is too long for a header.
    #[error("token exchange failed: the new token has {0} bytes, and {LONGEST_TOKEN} are the most")]
    TooLong(usize),
    /// A request for the same token, which ran when this one came, failed.
    #[error("token exchange failed: so did the request for the same token that was in flight")]
    Shared,
}

// === impl TokenExchange ===

impl TokenExchange {
    /// One that sends no request before the first token.
    pub fn new(mut options: ExchangeOptions) -> Self {
        let client = Client::new(skep_net::client::Options {
            addresses: options.addresses,
            // The endpoint is often a Service of the same cluster.
            schemes: Schemes::Any,
            trust: Trust::System,
            ..Default::default()
        });
        options.subject_token_type = token_type(&options.subject_token_type);
        let secret = options.client_secret.as_ref().filter(|_| !options.client_id.is_empty());
        let client_header = secret.and_then(|secret| basic(&options.client_id, secret));
        let fetcher = Fetcher::new(client, None, fetch::TIMEOUT);
        let tokens = CredentialCache::within(options.cache);
        Self { fetcher, options, client: client_header, tokens }
    }

    /// The token that was exchanged before for a client's, if it is still good.
    pub fn known(&self, subject_token: &str, now: i64) -> Option<Exchanged> {
        let subject = of_token(subject_token);
        self.tokens.known(&subject, now).map(|token| Exchanged { token, subject })
    }

    /// The token for a client's.
    pub async fn exchange(&self, subject_token: &str, now: i64) -> Result<Exchanged, ExchangeError> {
        let subject = of_token(subject_token);
        let token = self.tokens.get(subject, now, self.request(subject_token, now), || ExchangeError::Shared).await?;
        Ok(Exchanged { token, subject })
    }

    /// The server refused a token: another one is obtained, once.
    pub fn refused(&self, exchanged: &Exchanged) {
        self.tokens.refused(&exchanged.subject, &exchanged.token);
    }

    async fn request(&self, subject_token: &str, now: i64) -> Result<Issued<Secret>, ExchangeError> {
        let body = Some((self.form(subject_token), FORM));
        let authorization = self.client.clone();
        let ask = Ask { url: &self.options.token_url, body, authorization, limit: LONGEST };
        let mut issued = read(&self.fetcher.ask(ask).await?, now)?;
        // Where clients are not authenticated, this is all that ends the use of a token.
        issued.expire_by(jwt::unverified_expiry(subject_token), now);
        Ok(issued)
    }

    /// The request of section 2.1. A client without a secret is public, and named in the form.
    fn form(&self, subject_token: &str) -> Bytes {
        let options = &self.options;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", GRANT)
            .append_pair("subject_token", subject_token)
            .append_pair("subject_token_type", &options.subject_token_type)
            .append_pair("requested_token_type", ACCESS_TOKEN);
        let scope = options.scopes.join(" ");
        let public = if self.client.is_none() { options.client_id.as_str() } else { "" };
        for (name, value) in [("audience", options.audience.as_str()), ("scope", &scope), ("client_id", public)] {
            if !value.is_empty() {
                form.append_pair(name, value);
            }
        }
        form.finish().into()
    }
}

/// The code of an error, as far as it is one (RFC 6749, section 5.2).
fn code_of(error: &Value) -> String {
    let code = error.as_str().unwrap_or_default();
    let is_code = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_code && code.len() <= LONGEST_CODE { code.to_owned() } else { String::new() }
}

/// The full name of a type of token.
fn token_type(text: &str) -> String {
    match text {
        "" => ACCESS_TOKEN.to_owned(),
        "access_token" | "id_token" | "jwt" => format!("{TOKEN_TYPES}{text}"),
        full => full.to_owned(),
    }
}

/// The response of the endpoint.
pub(crate) fn read(answer: &Answer, now: i64) -> Result<Issued<Secret>, ExchangeError> {
    let said = answer.json();
    let code = said.as_ref().ok().and_then(|said| said.get("error")).map(code_of);
    if !answer.status.is_success() || code.is_some() {
        return Err(ExchangeError::Refused { status: answer.status.as_u16(), code: code.unwrap_or_default() });
    }
    issued(&said?, now)
}

/// The response of section 2.2.1.
fn issued(said: &Value, now: i64) -> Result<Issued<Secret>, ExchangeError> {
    let text = |name: &'static str| {
        let text = said.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or(ExchangeError::Incomplete(name))
    };
    let token = text("access_token")?;
    if token.len() > LONGEST_TOKEN {
        return Err(ExchangeError::TooLong(token.len()));
    }
    let token = Secret::new(token);
    fetch::bearer(&token).map_err(|_| ExchangeError::Incomplete("access_token"))?;
    text("token_type")?;
    text("issued_token_type")?;
    let seconds = match said.get("expires_in") {
        Some(Value::String(seconds)) => seconds.parse().ok(),
        Some(seconds) => seconds.as_i64(),
        None => None,
    };
    let expires = seconds.filter(|seconds: &i64| *seconds > 0).map(|seconds| now.saturating_add(seconds));
    Ok(Issued { credential: token, expires })
}

/// Sets the token as `name: Bearer <token>`. The client's own token stays behind.
pub fn set_header(headers: &mut HeaderMap, name: &HeaderName, token: &Secret) {
    headers.remove(http::header::AUTHORIZATION);
    // It was found to be one when it was issued.
    if let Ok(value) = fetch::bearer(token) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exchange(client_id: &str, secret: Option<&str>) -> TokenExchange {
        TokenExchange::new(ExchangeOptions {
            token_url: "https://idp.example/token".into(),
            client_id: client_id.into(),
            client_secret: secret.map(Secret::new),
            audience: "tools".into(),
            scopes: vec!["a".into(), "b:c".into()],
            subject_token_type: "jwt".into(),
            addresses: Addresses::PublicOnly,
            cache: CacheSize::default(),
        })
    }

    #[test]
    fn the_request_is_that_of_the_rfc() {
        let form = exchange("id", Some("s")).form("t&k");
        let pairs: Vec<(String, String)> = form_urlencoded::parse(&form).into_owned().collect();
        let expected = [
            ("grant_type", GRANT),
            ("subject_token", "t&k"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("requested_token_type", ACCESS_TOKEN),
            ("audience", "tools"),
            ("scope", "a b:c"),
        ];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_client_with_a_secret_authenticates_and_one_without_is_named() {
        let confidential = exchange("a b", Some("p:%"));
        // Both are URL-escaped (RFC 6749, section 2.3.1): `a+b:p%3A%25`.
        assert_eq!(confidential.client.as_ref().unwrap(), "Basic YStiOnAlM0ElMjU=");
        assert!(!String::from_utf8_lossy(&confidential.form("t")).contains("client_id"));
        let public = exchange("id", None);
        assert!(public.client.is_none() && String::from_utf8_lossy(&public.form("t")).contains("&client_id=id"));
        assert!(exchange("", Some("s")).client.is_none());
    }

    #[test]
    fn types_of_tokens_may_be_shortened() {
        for (text, expected) in [
            ("", ACCESS_TOKEN),
            ("access_token", ACCESS_TOKEN),
            ("id_token", "urn:ietf:params:oauth:token-type:id_token"),
            ("urn:example:t", "urn:example:t"),
        ] {
            assert_eq!(token_type(text), expected);
        }
    }

    #[test]
    fn a_response_must_be_complete() {
        let complete = json!({ "access_token": "t", "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN });
        let expires = |value: Value| {
            let mut said = complete.clone();
            said["expires_in"] = value;
            issued(&said, 100).unwrap().expires
        };
        assert_eq!(expires(json!(60)), Some(160));
        assert_eq!(expires(json!("60")), Some(160));
        for useless in [json!(null), json!("soon"), json!(-5), json!(0), json!([]), json!(1e300)] {
            assert_eq!(expires(useless), None);
        }
        assert_eq!(expires(json!(i64::MAX)), Some(i64::MAX));
        for missing in ["access_token", "token_type", "issued_token_type"] {
            for value in [json!(null), json!(""), json!(7)] {
                let mut said = complete.clone();
                said[missing] = value;
                assert!(matches!(issued(&said, 0), Err(ExchangeError::Incomplete(name)) if name == missing));
            }
        }
        let mut said = complete;
        said["access_token"] = json!("a\r\nX-Other: b");
        let error = issued(&said, 0).unwrap_err().to_string();
        assert!(error.contains("access_token") && !error.contains("X-Other"), "{error}");
    }

    #[test]
    fn a_token_that_is_too_long_for_a_header_is_refused() {
        let said = |length: usize| json!({ "access_token": "t".repeat(length), "token_type": "Bearer", "issued_token_type": ACCESS_TOKEN });
        assert!(issued(&said(LONGEST_TOKEN), 0).is_ok());
        let error = issued(&said(LONGEST_TOKEN + 1), 0).unwrap_err();
        assert_eq!(error.to_string(), "token exchange failed: the new token has 16385 bytes, and 16384 are the most");
    }

    #[test]
    fn what_a_provider_writes_is_not_repeated() {
        assert_eq!(code_of(&json!("invalid_grant")), "invalid_grant");
        for other in [json!("a token: abc"), json!("x".repeat(65)), json!({}), json!("a\nb")] {
            assert_eq!(code_of(&other), "");
        }
    }

    #[test]
    fn the_token_of_the_client_stays_behind() {
        for (name, strips) in [("authorization", false), ("x-token", true)] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_static("Bearer client"));
            set_header(&mut headers, &HeaderName::from_static(name), &Secret::new("new"));
            assert_eq!(headers[name], "Bearer new");
            assert_eq!(headers.get("authorization").is_none(), strips);
        }
    }
}
