//! URLs in configurations: over TLS, unless they lead to this machine or an option allows plain HTTP.

use std::fmt::Display;

use skep_address::Scope;
use url::Url;

use super::Problems;
use crate::text::{UrlError, provider_url, scope};

/// An endpoint, if there is one. Plain HTTP is let through where it stays on this machine, and where `plain` says so.
pub(super) fn endpoint(problems: &mut Problems, place: impl Display, text: Option<&str>, plain: bool) -> Option<Url> {
    let text = text?;
    let url = match provider_url(text, true) {
        Ok(url) if url.scheme() == "https" || plain || is_loopback(&url) => return Some(url),
        Ok(_) => UrlError::Insecure(text.to_owned()),
        Err(error) => error,
    };
    problems.add(place, url);
    None
}

/// An endpoint to whose URL paths are appended: nothing may stand behind its own path.
pub(super) fn base(problems: &mut Problems, place: impl Display, text: Option<&str>, plain: bool) -> Option<Url> {
    let url = endpoint(problems, &place, text, plain)?;
    let text = text.unwrap_or_default();
    let extra = [
        (url.query().is_some(), "a query"),
        (url.fragment().is_some(), "a fragment"),
        (!url.username().is_empty() || url.password().is_some(), "a user"),
        (text.ends_with('/'), "a slash at its end"),
    ];
    for (_, what) in extra.iter().filter(|(found, _)| *found) {
        problems.add(&place, format_args!("`{text}` has {what}; remove it"));
    }
    Some(url)
}

/// Whether a URL leads to this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    url.host().is_some_and(|host| scope(&host) == Scope::Loopback)
}
