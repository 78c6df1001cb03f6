//! Messages of errors: an error and its causes in one line.
//!
//! The Kubernetes client prints a refusal of the API server with all its fields in Rust's debug format, and repeats each cause in the
//! error around it. Whatever is logged or put into a status goes through [`describe`] instead.

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;

/// An error and what caused it, outermost first.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        if let Some(text) = own_message(error) {
            // An error that includes its cause is not followed by it.
            if parts.last().is_none_or(|said| !said.contains(&text)) {
                parts.push(text);
            }
        }
    }
    parts.join(": ")
}

/// What the API server said when it refused a request.
pub fn refusal(status: &Status) -> String {
    let reason = if status.reason.is_empty() { String::new() } else { format!("{}, ", status.reason) };
    let message = if status.message.is_empty() { "the API server refused" } else { &status.message };
    format!("{message} ({reason}code {})", status.code)
}

/// What an error says itself, without its causes; nothing for one that only wraps another.
fn own_message(error: &(dyn Error + 'static)) -> Option<String> {
    // Boxes are errors of their own, and what they hold is not among the causes.
    let boxed = error.downcast_ref::<Box<Status>>().map(AsRef::as_ref);
    if let Some(status) = error.downcast_ref::<Status>().or(boxed) {
        return Some(refusal(status));
    }
    if let Some(error) = error.downcast_ref::<watcher::Error>() {
        return match error {
            watcher::Error::InitialListFailed(_) => Some("cannot list".to_owned()),
            watcher::Error::WatchStartFailed(_) => Some("cannot watch".to_owned()),
            watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_) => Some("watch interrupted".to_owned()),
            watcher::Error::NoResourceVersion => Some(error.to_string()),
        };
    }
    if error.is::<kube::Error>() || error.is::<Box<kube::Error>>() {
        return error.source().is_none().then(|| error.to_string());
    }
    Some(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::WriteError;

    fn refused() -> kube::Error {
        kube::Error::Api(Status::failure("no rights", "Forbidden").with_code(403).boxed())
    }

    #[test]
    fn a_refusal_has_the_message_of_the_api_server_and_no_debug_output() {
        let write = WriteError::Api { verb: "write", object: "Service a/b".into(), source: Box::new(refused()) };
        let watch = watcher::Error::InitialListFailed(refused());
        for (error, expected) in [
            (&refused() as &(dyn Error + 'static), "no rights (Forbidden, code 403)"),
            (&write, "cannot write `Service a/b`: no rights (Forbidden, code 403)"),
            (&watch, "cannot list: no rights (Forbidden, code 403)"),
            (&kube::Error::Service("connection refused".into()), "connection refused"),
        ] {
            assert_eq!(describe(error), expected);
        }
    }

    #[test]
    fn a_cause_is_printed_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read: {0}")]
        struct Outer(#[source] std::io::Error);
        assert_eq!(describe(&Outer(std::io::Error::other("no disk"))), "cannot read: no disk");
    }
}
