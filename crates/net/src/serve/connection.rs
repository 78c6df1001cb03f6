//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{IoSlice, Result};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::registry::{Activity, Call, Order, Registered};
use super::stream::{Pieces, Stream, StreamExecutor};
use super::{ForwardedFor, Peer};
use crate::io::Io;
use crate::{Body, BodyError};

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Serves a connection until it ends or is ordered to.
pub(super) async fn run<H, F>(
    stream: TcpStream,
    peer: Peer,
    registered: Registered,
    http: Arc<auto::Builder<StreamExecutor>>,
    acceptor: Option<TlsAcceptor>,
    handler: Arc<H>,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let activity = &registered.activity;
    let io = match acceptor {
        None => Io::Plain(stream),
        Some(acceptor) => match unless_ordered(activity, acceptor.accept(stream)).await {
            Some(Ok(stream)) => Io::Tls(Box::new(TlsStream::Server(stream))),
            Some(Err(error)) => return tracing::debug!(%error, "TLS handshake with client failed"),
            None => return,
        },
    };
    let io = TokioIo::new(Watched { io, activity: Arc::clone(activity) });
    let service = service_fn(|request: Request<Incoming>| {
        let call = registered.begin(request.version() == Version::HTTP_2, request.uri().path());
        let is_probe = registered.is_probe();
        let handler = Arc::clone(&handler);
        async move {
            let Some(call) = call else {
                return Ok(too_many(is_probe));
            };
            let answer = AssertUnwindSafe(async { handler(request, peer).await }).catch_unwind().await;
            let mut response = answer.unwrap_or_else(|_panic| {
                // The panic hook has already logged where and why.
                tracing::error!("request handler panicked");
                let mut response = Response::new(Body::full("Internal Server Error"));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                let plain = HeaderValue::from_static("text/plain; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, plain);
                response
            });
            if is_probe {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            let client = response.extensions().get::<ForwardedFor>().map(|client| client.0);
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, call, client)))
        }
    });
    let mut connection = pin!(http.serve_connection_with_upgrades(io, service));
    let mut finishing = false;
    let ended = poll_fn(|context| {
        match activity.order(context.waker()) {
            Order::Serve => {}
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                connection.as_mut().graceful_shutdown();
            }
            Order::Cut => return Poll::Ready(Ok(())),
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = ended.await {
        // Clients that disconnect in the middle are normal.
        tracing::debug!(error = &*error, "client connection broke");
    }
}

/// The response to a request beyond the connection limits.
fn too_many(is_last: bool) -> Response<Answer> {
    let mut response = Response::new(Answer::Refused);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
    if is_last {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    response
}

/// The output of a future, or `None` if the connection is ordered to end meanwhile.
async fn unless_ordered<T: Future>(activity: &Activity, future: T) -> Option<T::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match activity.order(context.waker()) {
        Order::Serve => future.as_mut().poll(context).map(Some),
        Order::Finish | Order::Cut => Poll::Ready(None),
    })
    .await
}

/// The body of a response. Its request is in flight until it is sent, or dropped with the connection.
enum Answer {
    /// The only one of its connection at the moment.
    Alone {
        body: Body,
        #[expect(dead_code, reason = "held for its drop")]
        call: Call,
    },
    /// Of a request that was not admitted. It is empty.
    Refused,
    /// One of many.
    Multiplexed { body: Pieces, call: Call, stream: Arc<Stream> },
}

impl Answer {
    fn new(body: Body, mut call: Call, client: Option<IpAddr>) -> Self {
        let Some(stream) = Stream::current() else {
            call.is_for(client);
            return Self::Alone { body, call };
        };
        stream.is_for(client);
        call.watch(&stream);
        Self::Multiplexed { body: Pieces::new(body), call, stream }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Alone { body, .. } => Pin::new(body).poll_frame(context),
            Self::Refused => Poll::Ready(None),
            Self::Multiplexed { body, call, stream } => {
                let polled = Pin::new(body).poll_frame(context);
                match &polled {
                    Poll::Ready(Some(Ok(_))) => stream.has_sent(call.now()),
                    _ => stream.has_drained(),
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Alone { body, .. } => body.is_end_stream(),
            Self::Refused => true,
            Self::Multiplexed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Alone { body, .. } => body.size_hint(),
            Self::Refused => SizeHint::with_exact(0),
            Self::Multiplexed { body, .. } => body.size_hint(),
        }
    }
}

/// A connection that records when bytes pass.
struct Watched {
    io: Io,
    activity: Arc<Activity>,
}

impl Watched {
    fn written(&self, outcome: Poll<Result<usize>>) -> Poll<Result<usize>> {
        match outcome {
            Poll::Ready(Ok(_)) => self.activity.has_written(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.activity.has_blocked(),
        }
        outcome
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut this.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.activity.has_read();
        }
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write(context, bytes);
        this.written(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write_vectored(context, slices);
        this.written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}
