//! Sessions of roles: `AssumeRoleWithWebIdentity` of AWS STS, with the client's token.

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value};
use skep_net::client::Schemes;
use skep_net::{Addresses, Client};
use url::form_urlencoded;

use super::{AwsCredentials, Roles};
use crate::Secret;
use crate::credentials::{CredentialCache, Issued};
use crate::fetch::{self, Answer, Ask, FetchError, Fetcher};
use crate::verified::{CacheSize, Digest, of_token};

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
/// The longest response, in bytes.
const LONGEST: usize = 64 * 1024;
/// How long a session lasts unless the configuration says otherwise, in seconds.
const DURATION: i32 = 3600;

/// How sessions are obtained.
#[derive(Debug)]
pub struct StsOptions {
    /// The region, whose endpoint is asked.
    pub region: String,
    /// Another endpoint, if not empty.
    pub endpoint: String,
    /// Which role a client gets.
    pub roles: Roles,
    /// How long a session lasts, in seconds; 0 for the usual time.
    pub duration: i32,
    /// The claim that names a session; `sub` if empty.
    pub session_name_claim: String,
    /// What the endpoint may resolve to.
    pub addresses: Addresses,
    /// How much is kept of sessions.
    pub cache: CacheSize,
}

/// Obtains sessions, and keeps them.
#[derive(Debug)]
pub struct Sts {
    fetcher: Fetcher,
    options: StsOptions,
    url: String,
    sessions: CredentialCache<AwsCredentials>,
}

/// The session of a client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its credentials.
    pub credentials: AwsCredentials,
    token: Digest,
}

/// Why a client gets no session.
#[derive(Debug, thiserror::Error)]
pub enum StsError {
    /// No role is for it.
    #[error("no role fits the claims of the client")]
    NoRole,
    /// Its token lacks the claim that names the session.
    #[error("the token has no claim to name the session with")]
    NoSessionName,
    /// That claim cannot name a session.
    #[error("the claim that names the session must have 2 to 64 letters, digits or characters of _+=,.@-")]
    SessionName,
    /// The endpoint cannot be reached, or its response cannot be read.
    #[error("AWS STS failed: {0}")]
    Fetch(#[from] FetchError),
    /// The endpoint refuses.
    #[error("AWS STS answered {status} with the error `{code}`")]
    Refused {
        /// The status.
        status: u16,
        /// The code of the error; empty if there is none.
        code: String,
    },
    /// The response lacks a member.
    #[error("the response of AWS STS has no `{0}`")]
    Incomplete(&'static str),
    /// A request for the same session, which ran when this one came, failed.
    #[error("AWS STS failed: so did the request for the same session that was in flight")]
    Shared,
}

// === impl Sts ===

impl Sts {
    /// One that sends no request before the first client.
    pub fn new(options: StsOptions) -> Self {
        let schemes = if options.endpoint.starts_with("http://") { Schemes::Any } else { Schemes::HttpsOnly };
        let client =
            Client::new(skep_net::client::Options { addresses: options.addresses, schemes, ..Default::default() });
        let url = if options.endpoint.is_empty() { regional(&options.region) } else { options.endpoint.clone() };
        let fetcher = Fetcher::new(client, None, fetch::TIMEOUT);
        let sessions = CredentialCache::within(options.cache);
        Self { fetcher, options, url, sessions }
    }

    /// The session that was obtained before for a client, if it is still good.
    pub fn known(&self, token: &Secret, now: i64) -> Option<Session> {
        let token = of_token(token.expose());
        self.sessions.known(&token, now).map(|credentials| Session { credentials, token })
    }

    /// The session for a client.
    pub async fn session(&self, token: &Secret, claims: &Map<String, Value>, now: i64) -> Result<Session, StsError> {
        let role = self.options.roles.choose(claims).ok_or(StsError::NoRole)?;
        let name = self.session_name(claims)?;
        let key = of_token(token.expose());
        let obtain = self.assume(role, name, token, now);
        let credentials = self.sessions.get(key, now, obtain, || StsError::Shared).await?;
        Ok(Session { credentials, token: key })
    }

    /// The server refused a session: another one is obtained, once.
    pub fn refused(&self, session: &Session) {
        self.sessions.refused(&session.token, &session.credentials);
    }

    fn session_name<'a>(&self, claims: &'a Map<String, Value>) -> Result<&'a str, StsError> {
        let claim = match self.options.session_name_claim.as_str() {
            "" => "sub",
            claim => claim,
        };
        let name = claims.get(claim).and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or(StsError::NoSessionName)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
        let fits = (2..=64).contains(&name.len()) && name.bytes().all(is_allowed);
        if fits { Ok(name) } else { Err(StsError::SessionName) }
    }

    async fn assume(
        &self,
        role: &str,
        name: &str,
        token: &Secret,
        now: i64,
    ) -> Result<Issued<AwsCredentials>, StsError> {
        let duration = if self.options.duration > 0 { self.options.duration } else { DURATION };
        let body = form(role, name, token, duration);
        let ask = Ask { url: &self.url, body: Some((body, FORM)), authorization: None, limit: LONGEST };
        let answer = self.fetcher.ask(ask).await?;
        let text = String::from_utf8_lossy(&answer.body);
        if !answer.status.is_success() {
            let code = element(&text, "Code").filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            return Err(StsError::Refused {
                status: answer.status.as_u16(),
                code: code.unwrap_or_default().chars().take(64).collect(),
            });
        }
        issued(&answer, &text, now)
    }
}

fn form(role: &str, name: &str, token: &Secret, duration: i32) -> Bytes {
    let pairs = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", name),
        ("WebIdentityToken", token.expose()),
        ("DurationSeconds", &duration.to_string()),
    ];
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into()
}

/// The endpoint of a region.
fn regional(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://sts.{region}.{suffix}/")
}

/// The credentials in a response, which is XML, or JSON for clients that accept that.
pub(crate) fn issued(answer: &Answer, text: &str, now: i64) -> Result<Issued<AwsCredentials>, StsError> {
    let json = answer.json().ok();
    let json = json.as_ref().and_then(|said| said.get("AssumeRoleWithWebIdentityResponse"));
    let json = json.and_then(|said| said.get("AssumeRoleWithWebIdentityResult")?.get("Credentials"));
    let member = |name: &'static str| match json {
        Some(credentials) => credentials.get(name).and_then(Value::as_str),
        None => element(text, name),
    };
    let required = |name: &'static str| member(name).filter(|text| !text.is_empty()).ok_or(StsError::Incomplete(name));
    let credentials = AwsCredentials {
        access_key_id: required("AccessKeyId")?.to_owned(),
        secret_access_key: Secret::new(required("SecretAccessKey")?),
        session_token: Secret::new(required("SessionToken")?),
    };
    let seconds = json.and_then(|credentials| credentials.get("Expiration")?.as_f64());
    #[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest number")]
    let expires = match seconds {
        Some(seconds) => Some(seconds as i64),
        None => {
            member("Expiration").and_then(|text| text.parse::<jiff::Timestamp>().ok()).map(jiff::Timestamp::as_second)
        }
    };
    Ok(Issued { credential: credentials, expires: expires.filter(|expires| *expires > now) })
}

/// The text of the first element of a name. Values that need escapes, or hold elements, are none of those that are read here.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim()).filter(|text| !text.contains(['<', '&']))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::*;

    const XML: &str = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t+/==</SessionToken>
        <SecretAccessKey>s</SecretAccessKey><Expiration>2026-11-18T12:00:00Z</Expiration><AccessKeyId>ASIA</AccessKeyId>
      </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"#;

    fn read(body: &str, now: i64) -> Result<Issued<AwsCredentials>, StsError> {
        let answer = Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: body.to_owned().into() };
        issued(&answer, body, now)
    }

    #[test]
    fn both_forms_of_a_response_are_read() {
        let xml = read(XML, 0).unwrap();
        assert_eq!((xml.credential.access_key_id.as_str(), xml.credential.session_token.expose()), ("ASIA", "t+/=="));
        let expires = "2026-11-18T12:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
        assert_eq!(xml.expires, Some(expires));
        let credentials =
            json!({ "AccessKeyId": "ASIA", "SecretAccessKey": "s", "SessionToken": "t+/==", "Expiration": 1.5e9 });
        let result = json!({ "AssumeRoleWithWebIdentityResult": { "Credentials": credentials } });
        let json = read(&json!({ "AssumeRoleWithWebIdentityResponse": result }).to_string(), 0).unwrap();
        assert_eq!((json.credential, json.expires), (xml.credential, Some(1_500_000_000)));
        assert_eq!(read(XML, expires).unwrap().expires, None, "it is in the past, by our clock");
    }

    #[test]
    fn a_response_must_be_complete() {
        for name in ["AccessKeyId", "SecretAccessKey", "SessionToken"] {
            for replaced in ["Other", "X"] {
                let body = XML.replace(&format!("<{name}>"), &format!("<{replaced}>"));
                assert!(matches!(read(&body, 0), Err(StsError::Incomplete(missing)) if missing == name));
            }
        }
        for body in
            ["", "<", "{}", "<AccessKeyId><b/></AccessKeyId>", "<AccessKeyId>&lt;</AccessKeyId>", "</AccessKeyId>"]
        {
            assert!(read(body, 0).is_err(), "{body}");
        }
    }

    #[test]
    fn a_session_is_named_by_a_claim() {
        let roles = Roles::new(&[], "arn:aws:iam::123456789012:role/r", "").unwrap();
        let sts = Sts::new(StsOptions {
            region: "cn-north-1".into(),
            endpoint: String::new(),
            roles,
            duration: 0,
            session_name_claim: String::new(),
            addresses: Addresses::PublicOnly,
            cache: CacheSize::default(),
        });
        assert_eq!(sts.url, "https://sts.cn-north-1.amazonaws.com.cn/");
        let named = |sub: Value| {
            let claims = Map::from_iter([("sub".to_owned(), sub)]);
            sts.session_name(&claims).map(str::to_owned).map_err(|error| error.to_string())
        };
        assert_eq!(named(json!("ada@example.com")), Ok("ada@example.com".to_owned()));
        for wrong in [json!("a"), json!("x".repeat(65)), json!("auth0|7"), json!("a b"), json!("ä1")] {
            assert!(named(wrong.clone()).unwrap_err().contains("2 to 64"), "{wrong}");
        }
        for missing in [json!(""), json!(7), json!(null)] {
            assert!(named(missing).unwrap_err().contains("no claim"));
        }
    }
}
