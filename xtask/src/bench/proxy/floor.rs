//! The least that a proxy can cost: bytes in, bytes out, by the same HTTP library on one thread, and nothing else. It runs as
//! its own process, so that its processor time can be read.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

/// Forwards everything, forever.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(port: u16, to: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let way = Arc::new(Mutex::new(None));
            let service = service_fn(move |request| pass_on(way.clone(), request, to));
            // A client that disconnects is ignored.
            let _gone =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// One request, on the one connection to the server that belongs to the client's connection.
async fn pass_on(
    way: Arc<Mutex<Option<SendRequest<Incoming>>>>,
    mut request: Request<Incoming>,
    to: u16,
) -> Result<Response<Incoming>> {
    let kept = way.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut sender = match kept.filter(|sender| !sender.is_closed()) {
        Some(sender) => sender,
        None => connect(to).await?,
    };
    sender.ready().await?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(&format!("127.0.0.1:{to}"))?);
    let response = sender.send_request(request).await?;
    *way.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Ok(response)
}

async fn connect(to: u16) -> Result<SendRequest<Incoming>> {
    let stream = TcpStream::connect(("127.0.0.1", to)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
