//! A client with an interceptor: requests can be answered in the API server's place, or changed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It goes on, as it is or changed.
    Pass(Request<Body>),
    /// It goes on, and each piece of its answer comes so much later.
    Late(Request<Body>, Duration),
    /// It is answered here.
    Answer(Response<Body>),
}

type Answered = UnsyncBoxBody<Bytes, kube::Error>;

/// A client whose requests all go through an interceptor.
pub(crate) fn between<Intercept, Intercepted>(real: Client, intercept: Intercept) -> Client
where
    Intercept: Fn(Request<Body>) -> Intercepted + Clone + Send + Sync + 'static,
    Intercepted: Future<Output = Verdict> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let (real, intercept) = (real.clone(), intercept.clone());
        async move {
            Ok::<_, kube::Error>(match intercept(request).await {
                Verdict::Pass(request) => real.send(request).await?.map(Answered::new),
                Verdict::Late(request, pause) => real.send(request).await?.map(|body| late(body, pause)),
                Verdict::Answer(response) => response.map(Answered::new),
            })
        }
    });
    Client::new(service, "default")
}

fn late(body: Body, pause: Duration) -> Answered {
    let pieces = body.into_data_stream().then(move |piece| async move {
        tokio::time::sleep(pause).await;
        piece.map(Frame::data)
    });
    Answered::new(StreamBody::new(pieces))
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
