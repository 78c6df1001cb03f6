//! The first phase: method, path, headers and peer, before the body is read. A request that is denied here costs no body.

use http::{HeaderMap, HeaderValue};

use skep_auth::metadata::ProtectedResource;
use skep_telemetry::audit::{AuditLog, AuditSink};

use super::{Chain, Flow, Step};
use crate::exchange::Head;

/// The longest body of a request, unless a middleware says otherwise.
pub const BODY_LIMIT: usize = skep_runconfig::middleware::BODY_LIMIT as usize;

// === impl Chain ===

impl Chain {
    /// Puts the head of a request through the chain.
    pub async fn head(&self, head: &mut Head) -> Flow {
        for one in &self.middleware {
            let flow = match one.head(head) {
                Step::Ready(flow) => flow,
                Step::Pending(flow) => flow.await,
            };
            if let Flow::Answer(response) = flow {
                return one.answer(response);
            }
        }
        Flow::Next
    }

    /// The longest body that is read: the smallest limit of any middleware.
    pub fn body_limit(&self) -> usize {
        self.middleware.iter().filter_map(|one| one.body_limit()).min().unwrap_or(BODY_LIMIT)
    }

    /// Whether a middleware signs the bytes of requests.
    pub(crate) fn signs_requests(&self) -> bool {
        self.middleware.iter().any(|one| one.signs_requests())
    }

    /// The resource that a middleware protects.
    pub(crate) fn protected_resource(&self) -> Option<&ProtectedResource> {
        self.middleware.iter().find_map(|one| one.protected_resource())
    }

    /// The audit log, if requests are recorded.
    pub(crate) fn audit_log(&self) -> Option<&AuditLog> {
        self.middleware.iter().find_map(|one| one.audit_log())
    }

    /// The same log, for events that no request is.
    pub(crate) fn audit_sink(&self) -> Option<AuditSink> {
        self.middleware.iter().find_map(|one| one.audit_sink())
    }

    /// Whether `X-Forwarded-*` headers are trusted.
    pub(crate) fn trusts_proxies(&self) -> bool {
        self.trusts_proxies
    }

    /// The origin of the page that sends a request, if there is one and every middleware that restricts origins allows it.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut given = headers.get_all(http::header::ORIGIN).iter();
        let (Some(origin), None) = (given.next(), given.next()) else { return None };
        let mut verdicts = self.middleware.iter().filter_map(|one| one.allows_origin(origin));
        let is_allowed = verdicts.next()? && verdicts.all(|is_allowed| is_allowed);
        is_allowed.then(|| origin.clone())
    }
}
