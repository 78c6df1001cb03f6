//! The keys of an issuer, and a collector that takes everything, on a thread of their own: what they take is not the proxy's.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// A server on loopback, for as long as this process.
pub(super) struct Loopback(SocketAddr);

impl Loopback {
    pub(super) fn start(keys: String) -> Result<Self> {
        let (sender, address) = channel();
        std::thread::spawn(move || serve(&Bytes::from(keys), &sender));
        Ok(Self(address.recv().context("the thread of the issuer and the collector ended")??))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0)
    }
}

fn serve(keys: &Bytes, address: &Sender<Result<SocketAddr>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(address.send(Err(error.into()))),
    };
    runtime.block_on(async {
        let bound = async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let address = listener.local_addr()?;
            anyhow::Ok((listener, address))
        };
        let listener = match bound.await {
            Ok((listener, bound)) => {
                // Its receiver waits.
                let _sent = address.send(Ok(bound));
                listener
            }
            Err(error) => return drop(address.send(Err(error))),
        };
        while let Ok((stream, _)) = listener.accept().await {
            let keys = keys.clone();
            let service = service_fn(move |request| answer(request, keys.clone()));
            tokio::spawn(
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service),
            );
        }
    });
}

/// The keys for a GET, and an empty response for what a collector gets.
async fn answer(request: Request<Incoming>, keys: Bytes) -> Result<Response<Full<Bytes>>> {
    let is_get = request.method() == Method::GET;
    request.into_body().collect().await?;
    Ok(Response::new(Full::new(if is_get { keys } else { Bytes::new() })))
}
