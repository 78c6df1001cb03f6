use http::{Response, Version};
use skep_net::client::{self, Error};
use skep_net::serve::Options;
use skep_net::tls::{Identity, Roots, Trust, server};
use skep_net::{Body, Client};
use skep_testkit::pki::Authority;

use crate::support::{GRACE, Server, get, hello, raw, rest, start, text};

pub(crate) fn identity(authority: &Authority, name: &str, names: &[&str]) -> Identity {
    let issued = authority.issue(name, None, names).unwrap();
    Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

pub(crate) fn roots(authority: &Authority) -> Roots {
    Roots::from_pem(authority.certificate().as_bytes()).unwrap()
}

/// Says which version of HTTP it was asked in.
pub(crate) async fn secure(authority: &Authority, clients: Option<Roots>) -> Server {
    let tls = server(identity(authority, "server", &["localhost", "127.0.0.1", "mcp.test"]), clients).unwrap();
    start(Options { tls: Some(tls), ..Options::default() }, GRACE, |request, peer| async move {
        assert!(peer.tls);
        Response::new(Body::full(format!("{:?}", request.version())))
    })
    .await
}

fn client(trust: Trust, identity: Option<Identity>, http2: bool) -> Client {
    Client::new(client::Options { trust, identity, http2, ..client::Options::default() }).unwrap()
}

fn url(server: &Server, host: &str) -> String {
    format!("https://{host}:{}/", server.address.port())
}

#[tokio::test]
async fn both_versions_are_spoken_over_tls() {
    let authority = Authority::generate().unwrap();
    let server = secure(&authority, None).await;
    for (http2, version) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let client = client(Trust::Roots(roots(&authority)), None, http2);
        for host in ["localhost", "127.0.0.1", "localhost"] {
            let answer = client.send(get(&url(&server, host))).await.unwrap();
            assert_eq!(answer.version(), version);
            assert_eq!(text(answer).await, format!("{version:?}"));
        }
    }
}

#[tokio::test]
async fn only_a_trusted_server_of_that_name_is_believed() {
    let (authority, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let tls = server(identity(&authority, "server", &["mcp.test"]), None).unwrap();
    let misnamed = start(Options { tls: Some(tls), ..Options::default() }, GRACE, hello).await;
    let server = secure(&authority, None).await;
    let refused = [
        (Trust::Roots(roots(&other)), &server),
        (Trust::System, &server),
        (Trust::Roots(roots(&authority)), &misnamed),
    ];
    for (trust, server) in refused {
        let error = client(trust.clone(), None, true).send(get(&url(server, "localhost"))).await.unwrap_err();
        // A machine may have no roots at all, which trusts nobody either.
        assert_eq!(error.category(), "tls", "{trust:?}: {error:?}");
        assert!(error.never_reached());
    }
    for server in [&server, &misnamed] {
        let answer = client(Trust::DangerouslyAnyone, None, true).send(get(&url(server, "localhost"))).await;
        assert_eq!(answer.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn each_side_shows_its_certificate() {
    let (authority, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let server = secure(&authority, Some(roots(&authority))).await;
    let trust = || Trust::Roots(roots(&authority));
    for http2 in [true, false] {
        let known = client(trust(), Some(identity(&authority, "me", &[])), http2);
        assert_eq!(known.send(get(&url(&server, "localhost"))).await.unwrap().status(), 200);
        for stranger in [None, Some(identity(&other, "me", &[]))] {
            // In TLS 1.3 the client is done before the server has looked at its certificate, so it learns late.
            let error = client(trust(), stranger, http2).send(get(&url(&server, "localhost"))).await.unwrap_err();
            assert!(matches!(error, Error::Tls { .. } | Error::Send { .. }), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_cut() {
    let authority = Authority::generate().unwrap();
    let server = secure(&authority, None).await;
    let mut stream = raw(server.address, "\x16\x03\x01").await;
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_shakes_hands_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = client(Trust::DangerouslyAnyone, None, true);
    let error = client.send(get(&format!("https://127.0.0.1:{port}/"))).await.unwrap_err();
    assert_eq!(error.to_string(), "the TLS handshake took too long");
    assert!(error.never_reached());
}
