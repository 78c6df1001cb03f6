//! A client with somebody in between: what is asked can be answered in the API server's place, or changed on its way.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It goes on, as it is or changed.
    Pass(Request<Body>),
    /// It is answered here.
    Answer(Response<Body>),
}

/// A client whose requests are all judged first.
pub(crate) fn between<Judge, Judged>(real: Client, judge: Judge) -> Client
where
    Judge: Fn(Request<Body>) -> Judged + Clone + Send + Sync + 'static,
    Judged: Future<Output = Verdict> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let (real, judge) = (real.clone(), judge.clone());
        async move {
            match judge(request).await {
                Verdict::Pass(request) => Ok::<_, kube::Error>(real.send(request).await?),
                Verdict::Answer(response) => Ok(response),
            }
        }
    });
    Client::new(service, "default")
}

/// A refusal as the API server writes it.
pub(crate) fn refusal(code: u16, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason} for the test"), "reason": reason, "code": code,
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}
