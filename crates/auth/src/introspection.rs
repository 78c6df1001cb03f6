//! Introspection of opaque tokens by their issuer: RFC 7662, and the two providers with an API of their own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use url::Url;
use url::form_urlencoded;

use crate::Secret;
use crate::claims::Claims;
use crate::fetch::{Answer, Ask, FetchError, Fetcher};

/// The longest response, in bytes.
const LONGEST: usize = 64 * 1024;
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Where Google introspects tokens. It accepts those of every Google client, so an audience must be configured.
pub(crate) const GOOGLE: &str = "https://oauth2.googleapis.com/tokeninfo";
const GOOGLE_ISSUER: &str = "https://accounts.google.com";
const GITHUB_ISSUER: &str = "https://github.com";

/// Introspects opaque tokens at their issuer.
#[derive(Debug)]
pub(crate) struct Introspection {
    fetcher: Fetcher,
    url: String,
    provider: Provider,
    /// The id and the secret of our client, if it has both.
    client: Option<HeaderValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Google,
    GitHub,
    Rfc7662,
}

/// Why an opaque token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum IntrospectionError {
    /// The request to the issuer failed.
    #[error("failed to introspect opaque token: {0}")]
    Fetch(#[from] FetchError),
    /// It failed a moment ago, and is not sent again yet.
    #[error("failed to introspect opaque token: it failed a moment ago")]
    Recent,
    /// The issuer reports it as not valid.
    #[error("invalid token")]
    Inactive,
    /// The response lacks what identifies the client.
    #[error("failed to introspect opaque token: the response has no `{0}`")]
    Incomplete(&'static str),
}

// === impl Introspection ===

impl Introspection {
    pub(crate) fn new(fetcher: Fetcher, url: &str, client_id: &str, client_secret: Option<&Secret>) -> Self {
        let client = client_secret.filter(|_| !client_id.is_empty()).and_then(|secret| basic(client_id, secret));
        Self { fetcher, url: url.to_owned(), provider: Provider::of_url(url), client }
    }

    /// The claims that the issuer reports for a token, at `now`.
    pub(crate) async fn introspect(&self, token: &str, now: i64) -> Result<Claims, IntrospectionError> {
        let (url, body) = self.request(token);
        let ask = Ask { url: &url, body, authorization: self.client.clone(), limit: LONGEST };
        let answer = self.fetcher.ask(ask).await?;
        match self.provider {
            Provider::Google => google(&answer),
            Provider::GitHub => github(&answer, now),
            Provider::Rfc7662 => rfc7662(&answer, now),
        }
    }

    /// Where a request goes, and the body and its media type if it is a POST.
    fn request(&self, token: &str) -> (String, Option<(Bytes, HeaderValue)>) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        match self.provider {
            Provider::Google => (format!("{}?{}", self.url, form.append_pair("access_token", token).finish()), None),
            Provider::GitHub => (self.url.clone(), Some((json!({ "access_token": token }).to_string().into(), JSON))),
            Provider::Rfc7662 => {
                let pairs = [("token", token), ("token_type_hint", "access_token")];
                (self.url.clone(), Some((form.extend_pairs(pairs).finish().into(), FORM)))
            }
        }
    }
}

// === impl Provider ===

impl Provider {
    fn of_url(url: &str) -> Self {
        if url == GOOGLE {
            return Self::Google;
        }
        let is_github = Url::parse(url).is_ok_and(|url| {
            let path: Vec<_> = url.path_segments().into_iter().flatten().collect();
            url.scheme() == "https"
                && url.host_str() == Some("api.github.com")
                && matches!(*path, ["applications", _, "token"])
        });
        if is_github { Self::GitHub } else { Self::Rfc7662 }
    }
}

/// Reads one body as each provider would have sent it, for fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_as_each(answer: &Answer, now: i64) -> Vec<Claims> {
    [google(answer), github(answer, now), rfc7662(answer, now)].into_iter().flatten().collect()
}

/// The response of Google: 400 for an invalid token.
fn google(answer: &Answer) -> Result<Claims, IntrospectionError> {
    if answer.status == StatusCode::BAD_REQUEST {
        return Err(IntrospectionError::Inactive);
    }
    let mut claims = object(answer)?;
    for name in ["sub", "aud"] {
        if claims.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(IntrospectionError::Incomplete(name));
        }
    }
    claims.insert("iss".to_owned(), GOOGLE_ISSUER.into());
    Ok(Claims::new(claims))
}

/// The response of GitHub: 404 for a token of another application. Its tokens need not expire; a response is used for a minute.
fn github(answer: &Answer, now: i64) -> Result<Claims, IntrospectionError> {
    if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY) {
        return Err(IntrospectionError::Inactive);
    }
    let said = object(answer)?;
    let user = said.get("user").and_then(Value::as_object);
    let of_user = |name: &str| user.and_then(|user| user.get(name)).filter(|value| !value.is_null()).cloned();
    let subject = of_user("id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
    let subject = subject.filter(|subject| !subject.is_empty()).ok_or(IntrospectionError::Incomplete("user.id"))?;
    let scopes = said.get("scopes").cloned().unwrap_or_else(|| json!([]));
    let names = scopes.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut claims = Map::from_iter([
        ("iss".to_owned(), json!(GITHUB_ISSUER)),
        ("aud".to_owned(), json!(GITHUB_ISSUER)),
        ("active".to_owned(), json!(true)),
        ("sub".to_owned(), json!(subject)),
        ("scope".to_owned(), json!(names.collect::<Vec<_>>().join(" "))),
        ("scopes".to_owned(), scopes.clone()),
        ("exp".to_owned(), json!(now + WITHOUT_EXPIRY)),
    ]);
    let of_user = [
        ("preferred_username", of_user("login")),
        ("login", of_user("login")),
        ("email", of_user("email")),
        ("name", of_user("name")),
        ("user_type", of_user("type")),
        ("site_admin", of_user("site_admin")),
        ("app_name", said.get("app").and_then(|app| app.get("name")).cloned()),
    ];
    claims.extend(of_user.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Ok(Claims::new(claims))
}

/// How long a token is valid whose issuer does not report an expiry, in seconds.
const WITHOUT_EXPIRY: i64 = 60;

/// A response of RFC 7662. All claims are kept: policies may be about any of them.
fn rfc7662(answer: &Answer, now: i64) -> Result<Claims, IntrospectionError> {
    let mut claims = object(answer)?;
    if claims.get("active") != Some(&Value::Bool(true)) {
        return Err(IntrospectionError::Inactive);
    }
    claims.entry("exp").or_insert_with(|| json!(now + WITHOUT_EXPIRY));
    Ok(Claims::new(claims))
}

fn object(answer: &Answer) -> Result<Map<String, Value>, FetchError> {
    if answer.status != StatusCode::OK {
        return Err(FetchError::Status(answer.status));
    }
    match answer.json()? {
        Value::Object(object) => Ok(object),
        _ => Err(FetchError::NotJson),
    }
}

/// The header with the credentials of a client, encoded as RFC 6749 has it.
pub(crate) fn basic(id: &str, secret: &Secret) -> Option<HeaderValue> {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret.expose())));
    let mut header = HeaderValue::from_str(&format!("Basic {pair}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &Value) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: http::HeaderMap::new(), body: body.to_string().into() }
    }

    #[test]
    fn a_provider_is_known_by_its_url() {
        for (url, provider) in [
            (GOOGLE, Provider::Google),
            ("https://oauth2.googleapis.com/tokeninfo2", Provider::Rfc7662),
            ("https://api.github.com/applications/abc/token", Provider::GitHub),
            ("http://api.github.com/applications/abc/token", Provider::Rfc7662),
            ("https://api.github.com.evil/applications/abc/token", Provider::Rfc7662),
            ("https://api.github.com/applications/abc/token/x", Provider::Rfc7662),
        ] {
            assert_eq!(Provider::of_url(url), provider, "{url}");
        }
    }

    fn introspection(url: &str, id: &str, secret: Option<&str>) -> Introspection {
        let client = skep_net::Client::new(skep_net::client::Options::default());
        let fetcher = Fetcher::new(client, None, crate::fetch::TIMEOUT);
        Introspection::new(fetcher, url, id, secret.map(Secret::new).as_ref())
    }

    #[test]
    fn each_provider_is_asked_as_it_documents() {
        let google = introspection(GOOGLE, "", None);
        let url = "https://oauth2.googleapis.com/tokeninfo?access_token=ya29.a%2Bb%26c".to_owned();
        assert_eq!(google.request("ya29.a+b&c"), (url, None));
        let url = "https://api.github.com/applications/Iv1.abc/token";
        let github = introspection(url, "Iv1.abc", Some("s3cret"));
        let body = (Bytes::from_static(br#"{"access_token":"gho_\"x"}"#), JSON);
        assert_eq!(github.request("gho_\"x"), (url.to_owned(), Some(body)));
        assert_eq!(github.client.unwrap(), "Basic SXYxLmFiYzpzM2NyZXQ=");
        let other = introspection("https://idp.example/introspect?tenant=a", "id", None);
        let body = (Bytes::from_static(b"token=a+b&token_type_hint=access_token"), FORM);
        assert_eq!(other.request("a b"), ("https://idp.example/introspect?tenant=a".to_owned(), Some(body)));
    }

    #[test]
    fn a_client_authenticates_only_with_an_id_and_a_secret() {
        for (id, secret, is_sent) in
            [("id", Some("s"), true), ("id", None, false), ("", Some("s"), false), ("", None, false)]
        {
            assert_eq!(introspection("https://idp.example", id, secret).client.is_some(), is_sent, "{id} {secret:?}");
        }
    }

    #[test]
    fn a_token_of_github_has_an_expiry() {
        let said =
            json!({"scopes": ["repo", "user"], "user": {"id": 7, "login": "ada", "email": null}, "app": {"name": "x"}});
        let claims = github(&answer(200, &said), 100).unwrap();
        assert_eq!((claims.get("sub").unwrap(), claims.expiry()), (&json!("7"), Some(160)));
        assert_eq!((claims.get("scope").unwrap(), claims.get("login").unwrap()), (&json!("repo user"), &json!("ada")));
        assert!(claims.get("email").is_none());
        assert!(matches!(github(&answer(404, &json!({})), 100), Err(IntrospectionError::Inactive)));
        assert!(matches!(github(&answer(200, &json!({})), 100), Err(IntrospectionError::Incomplete("user.id"))));
    }

    #[test]
    fn all_claims_of_an_active_token_are_kept() {
        let said = json!({"active": true, "sub": "ada", "groups": ["a"], "username": "ada"});
        let claims = rfc7662(&answer(200, &said), 100).unwrap();
        assert_eq!((claims.get("groups").unwrap(), claims.expiry()), (&json!(["a"]), Some(160)));
        for inactive in [json!({"active": false}), json!({}), json!({"active": "true"})] {
            assert!(matches!(rfc7662(&answer(200, &inactive), 0), Err(IntrospectionError::Inactive)), "{inactive}");
        }
        assert!(matches!(rfc7662(&answer(500, &said), 0), Err(IntrospectionError::Fetch(_))));
    }

    #[test]
    fn google_names_its_issuer_and_must_name_an_audience() {
        let claims = google(&answer(200, &json!({"sub": "1", "aud": "me", "exp": "200"}))).unwrap();
        assert_eq!((claims.get("iss").unwrap(), claims.expiry()), (&json!("https://accounts.google.com"), Some(200)));
        assert!(matches!(google(&answer(200, &json!({"sub": "1"}))), Err(IntrospectionError::Incomplete("aud"))));
        assert!(matches!(google(&answer(400, &json!({}))), Err(IntrospectionError::Inactive)));
    }

    #[test]
    fn credentials_of_a_client_are_encoded_twice() {
        let header = basic("a b", &Secret::new("s:é")).unwrap();
        let decoded = STANDARD.decode(header.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(decoded, b"a+b:s%3A%C3%A9");
        assert!(header.is_sensitive());
    }
}
