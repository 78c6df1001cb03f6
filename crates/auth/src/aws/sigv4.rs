//! Signature Version 4 of AWS, over headers.
//!
//! Signed are the headers that a proxy does not change on the way: `host`, `content-type` and those of the signature itself.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::AwsCredentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// What a signature is for.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The region, such as `eu-central-1`.
    pub region: String,
    /// The service, such as `aws-mcp`.
    pub service: String,
}

/// A request to be signed, as it will be sent.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// The method.
    pub method: &'a Method,
    /// Where it goes, with scheme and authority.
    pub uri: &'a Uri,
    /// The body.
    pub body: &'a [u8],
}

/// Why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// Its URI has no host.
    #[error("the URL of the server has no host")]
    NoHost,
    /// The time cannot be written.
    #[error("the clock is out of range")]
    Time,
    /// A credential or a header cannot be sent.
    #[error("a header of the signature cannot be sent")]
    Header,
}

/// Signs a request at `now`, in seconds since 1970: sets `Authorization`, `X-Amz-Date` and `X-Amz-Security-Token`, and removes what a
/// client wrote into these.
pub fn sign(
    scope: &Scope,
    credentials: &AwsCredentials,
    request: Unsigned<'_>,
    headers: &mut HeaderMap,
    now: i64,
) -> Result<(), SignError> {
    let time = jiff::Timestamp::from_second(now).map_err(|_| SignError::Time)?;
    let time = time.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = time.get(..8).ok_or(SignError::Time)?;
    headers.remove(AUTHORIZATION);
    headers.insert(DATE, HeaderValue::from_str(&time).map_err(|_| SignError::Header)?);
    headers.insert(SECURITY_TOKEN, sensitive(credentials.session_token.expose())?);
    let (canonical, signed) = canonical_request(request, headers)?;
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!("{ALGORITHM}\n{time}\n{place}\n{}", sha256(canonical.as_bytes()));
    let mut key = hmac_of(format!("AWS4{}", credentials.secret_access_key.expose()).as_bytes(), date);
    for part in [&scope.region, &scope.service, "aws4_request"] {
        key = hmac_of(key.as_ref(), part);
    }
    let signature = hex(hmac_of(key.as_ref(), &text).as_ref());
    let id = &credentials.access_key_id;
    let value = format!("{ALGORITHM} Credential={id}/{place}, SignedHeaders={signed}, Signature={signature}");
    headers.insert(AUTHORIZATION, sensitive(&value)?);
    Ok(())
}

/// The canonical request, and the names of the headers in it.
fn canonical_request(request: Unsigned<'_>, headers: &HeaderMap) -> Result<(String, String), SignError> {
    let host = host(request.uri).ok_or(SignError::NoHost)?;
    let mut lines = String::new();
    let mut names = Vec::new();
    // In the order of their names.
    for name in [CONTENT_TYPE, HOST, DATE, SECURITY_TOKEN] {
        let value =
            if name == HOST { Some(host.as_str()) } else { headers.get(&name).and_then(|value| value.to_str().ok()) };
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let _infallible = writeln!(lines, "{name}:{value}");
        names.push(name.as_str().to_owned());
    }
    let (path, query) = (canonical_path(request.uri.path()), canonical_query(request.uri.query().unwrap_or_default()));
    let names = names.join(";");
    let hash = sha256(request.body);
    Ok((format!("{}\n{path}\n{query}\n{lines}\n{names}\n{hash}", request.method), names))
}

/// The `Host` header of a request to a URI: without the default port.
fn host(uri: &Uri) -> Option<String> {
    let host = uri.host()?;
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    Some(match uri.port_u16().filter(|port| *port != default) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The path without dot segments, its percent signs escaped once more.
fn canonical_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let mut canonical = format!("/{}", segments.join("/"));
    if path.ends_with('/') && canonical.len() > 1 {
        canonical.push('/');
    }
    escape(&canonical)
}

fn escape(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _infallible = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The parameters in the order of their names and values.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn sensitive(text: &str) -> Result<HeaderValue, SignError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| SignError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

fn hmac_of(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::Secret;

    /// Made by botocore, the signer of AWS's own SDK for Python: `sigv4/vectors.py`.
    const VECTORS: &str = include_str!("sigv4/vectors.json");

    #[test]
    fn requests_are_signed_as_by_the_sdk_of_aws() {
        let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
        assert!(vectors.len() >= 12);
        for vector in vectors {
            let text = |name: &str| vector[name].as_str().unwrap();
            let scope = Scope { region: text("region").into(), service: text("service").into() };
            let credentials = AwsCredentials {
                access_key_id: text("access_key").into(),
                secret_access_key: Secret::new(text("secret_key")),
                session_token: Secret::new(text("token")),
            };
            let (method, uri) = (text("method").parse().unwrap(), text("url").parse().unwrap());
            let request = Unsigned { method: &method, uri: &uri, body: text("body").as_bytes() };
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_static("Bearer of-the-client"));
            if let Some(media_type) = vector["content_type"].as_str() {
                headers.insert("content-type", media_type.parse().unwrap());
            }
            sign(&scope, &credentials, request, &mut headers, vector["now"].as_i64().unwrap()).unwrap();
            assert_eq!(headers["authorization"], text("authorization"), "{vector}");
            assert_eq!(headers["x-amz-date"], text("date"));
            assert_eq!(headers["x-amz-security-token"], text("token"));
        }
    }

    /// `get-vanilla` of AWS's published test suite, by its own intermediate result.
    #[test]
    fn the_canonical_request_of_the_published_suite() {
        let uri = "https://example.amazonaws.com/".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("20150830T123600Z"));
        let request = Unsigned { method: &Method::GET, uri: &uri, body: b"" };
        let (canonical, signed) = canonical_request(request, &headers).unwrap();
        assert_eq!(signed, "host;x-amz-date");
        assert_eq!(sha256(canonical.as_bytes()), "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63");
    }

    /// The published test suite of AWS: its credentials, its time, its service.
    #[test]
    fn requests_are_signed_as_in_the_published_suite() {
        let unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let same = format!("/?{unreserved}={unreserved}");
        let session = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        let form = Some(("application/x-www-form-urlencoded", "Param1=value1"));
        for (name, method, path, token, body, signature) in [
            ("get-vanilla", "GET", "/", "", None, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("post-vanilla", "POST", "/", "", None, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/?Param2=value2&Param1=value1",
                "",
                None,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-vanilla-empty-query-key",
                "GET",
                "/?Param1=value1",
                "",
                None,
                "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
            ),
            (
                "get-vanilla-query-unreserved",
                "GET",
                &same,
                "",
                None,
                "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
            ),
            (
                "post-sts-header-before",
                "POST",
                "/",
                session,
                None,
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
            (
                "post-x-www-form-urlencoded",
                "POST",
                "/",
                "",
                form,
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let scope = Scope { region: "us-east-1".into(), service: "service".into() };
            let credentials = AwsCredentials {
                access_key_id: "AKIDEXAMPLE".into(),
                secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
                session_token: Secret::new(token),
            };
            let (method, uri) =
                (method.parse().unwrap(), format!("https://example.amazonaws.com{path}").parse().unwrap());
            let mut headers = HeaderMap::new();
            headers.extend(form.filter(|_| body.is_some()).map(|(media, _)| (CONTENT_TYPE, media.parse().unwrap())));
            let body = body.map_or("", |(_, body)| body);
            sign(
                &scope,
                &credentials,
                Unsigned { method: &method, uri: &uri, body: body.as_bytes() },
                &mut headers,
                1_440_938_160,
            )
            .unwrap();
            let signed = headers["authorization"].to_str().unwrap();
            assert!(signed.ends_with(&format!("Signature={signature}")), "{name}: {signed}");
        }
    }

    #[test]
    fn paths_and_queries_have_one_form() {
        for (path, canonical) in [
            ("/", "/"),
            ("", "/"),
            ("/a/./b/../c//d", "/a/c/d"),
            ("/../..", "/"),
            ("/a/", "/a/"),
            ("/a%20b/é", "/a%2520b/%C3%A9"),
            ("/mcp~x_y.z-1", "/mcp~x_y.z-1"),
        ] {
            assert_eq!(canonical_path(path), canonical, "{path}");
        }
        assert_eq!(canonical_query("b=2&a=2&a=1&c&&d="), "a=1&a=2&b=2&c=&d=");
    }

    #[test]
    fn nothing_of_a_credential_is_shown() {
        let uri = "https://a.example/".parse().unwrap();
        let credentials = AwsCredentials {
            access_key_id: "id".into(),
            secret_access_key: Secret::new("hidden"),
            session_token: Secret::new("hidden too"),
        };
        let scope = Scope { region: "r".into(), service: "s".into() };
        let mut headers = HeaderMap::new();
        let request = Unsigned { method: &Method::GET, uri: &uri, body: b"" };
        sign(&scope, &credentials, request, &mut headers, 0).unwrap();
        assert!(headers["authorization"].is_sensitive() && headers["x-amz-security-token"].is_sensitive());
        assert!(!format!("{credentials:?}").contains("hidden"));
        let relative = "/path".parse().unwrap();
        let request = Unsigned { uri: &relative, ..request };
        assert!(matches!(sign(&scope, &credentials, request, &mut headers, 0), Err(SignError::NoHost)));
        assert!(matches!(
            sign(&scope, &credentials, Unsigned { uri: &uri, ..request }, &mut headers, i64::MAX),
            Err(SignError::Time)
        ));
    }
}
