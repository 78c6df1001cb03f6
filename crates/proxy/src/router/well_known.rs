//! Documents below `/.well-known/`: what clients without a token read to get one (RFC 9728).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    HeaderValue, ORIGIN,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use skep_auth::metadata::ProtectedResource;
use skep_net::Body;

use crate::http::{empty, json};

/// The response to a request for a document.
pub(super) fn response(parts: &Parts, resource: Option<&ProtectedResource>) -> Response<Body> {
    let resource = resource.filter(|_| ProtectedResource::is_at(parts.uri.path()));
    let Some(resource) = resource else {
        return json(StatusCode::NOT_FOUND, Bytes::from_static(br#"{"error":"not_found"}"#));
    };
    let mut response = match resource.document() {
        None => return empty(StatusCode::NOT_FOUND),
        Some(_) if parts.method == Method::OPTIONS => empty(StatusCode::NO_CONTENT),
        Some(document) => json(StatusCode::OK, document.into()),
    };
    allow_pages(&parts.headers, response.headers_mut());
    response
}

/// Pages of any origin may read it: it is public, and clients in browsers need it first.
fn allow_pages(request: &HeaderMap, response: &mut HeaderMap) {
    let origin = request.get(ORIGIN).cloned().unwrap_or(HeaderValue::from_static("*"));
    response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, OPTIONS"));
    let headers = HeaderValue::from_static("mcp-protocol-version, Content-Type, Authorization");
    response.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers);
    response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(method: &str, path: &str, resource: Option<&ProtectedResource>) -> Response<Body> {
        let request = http::Request::builder().method(method).uri(path).header(ORIGIN, "https://app.example");
        response(&request.body(()).unwrap().into_parts().0, resource)
    }

    #[test]
    fn the_document_is_there_for_pages_of_any_origin_and_nothing_else_is() {
        let resource = ProtectedResource {
            resource: "https://a.example/mcp".to_owned(),
            issuer: "https://idp.example".to_owned(),
            scopes: Vec::new(),
        };
        let found = get("GET", "/.well-known/oauth-protected-resource/mcp", Some(&resource));
        assert_eq!(
            (found.status(), &found.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
            (StatusCode::OK, &HeaderValue::from_static("https://app.example"))
        );
        assert_eq!(
            get("OPTIONS", "/.well-known/oauth-protected-resource", Some(&resource)).status(),
            StatusCode::NO_CONTENT
        );
        for (path, resource) in [
            ("/.well-known/openid-configuration", Some(&resource)),
            ("/.well-known/oauth-protected-resourceX", Some(&resource)),
            ("/.well-known/oauth-protected-resource", None),
            ("/.well-known/oauth-protected-resource", Some(&ProtectedResource::default())),
        ] {
            assert_eq!(get("GET", path, resource).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
