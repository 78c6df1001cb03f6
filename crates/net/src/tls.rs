//! Certificates, keys and trust from PEM, and the TLS settings of both sides. The provider is aws-lc-rs and is passed
//! explicitly, so nothing depends on the process-wide default.

use std::fmt;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate file is not PEM.
    #[error("the certificates are not valid PEM")]
    Certificate(#[source] rustls_pki_types::pem::Error),
    /// A certificate file holds no certificate.
    #[error("no certificate found; PEM begins with `-----BEGIN CERTIFICATE-----`")]
    NoCertificate,
    /// A key file holds no key.
    #[error("no private key found; PEM begins with `-----BEGIN PRIVATE KEY-----`")]
    Key(#[source] rustls_pki_types::pem::Error),
    /// Certificate and key do not match, or one of them is of an unsupported type.
    #[error("the certificate and the private key do not match")]
    Identity(#[source] rustls::Error),
    /// A certificate cannot serve as a root.
    #[error("a certificate of the bundle cannot be trusted as a root")]
    Root(#[source] rustls::Error),
    /// The machine has no trusted roots.
    #[error("this machine has no trusted certificates; install its package of CA certificates or give a CA bundle")]
    NoSystemRoots,
    /// rustls rejects the settings.
    #[error("the TLS settings are invalid")]
    Settings(#[source] rustls::Error),
    /// The verifier of client certificates cannot be built.
    #[error("client certificates cannot be verified with this bundle")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// Certificates that are trusted to sign others.
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

/// A certificate chain with its private key.
#[derive(Clone)]
pub struct Identity(Arc<CertifiedKey>);

/// Which servers a client trusts.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those with a certificate from a root of this machine.
    #[default]
    System,
    /// Those with a certificate from one of these roots, and no others.
    Roots(Roots),
    /// All of them. Encrypts, but does not protect against a man in the middle.
    DangerouslyAnyone,
}

impl Roots {
    /// Parses a CA bundle: one or more certificates as PEM.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates(pem)? {
            store.add(certificate).map_err(TlsError::Root)?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// The roots of this machine, and those of a CA bundle.
    pub fn system_and_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for certificate in certificates(pem)? {
            store.add(certificate).map_err(TlsError::Root)?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// The roots of this machine, read from its files.
    pub fn system() -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        // Single unreadable files are not fatal; no root at all is.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            return Err(TlsError::NoSystemRoots);
        }
        Ok(Self(Arc::new(store)))
    }
}

impl Identity {
    /// Parses a chain, leaf first, and the key of the leaf. They are checked to match.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
        let identity = CertifiedKey::from_der(certificates(chain)?, key, &provider()).map_err(TlsError::Identity)?;
        Ok(Self(Arc::new(identity)))
    }
}

/// The settings of a server. With `clients`, only clients whose certificate these roots signed are accepted.
pub fn server(identity: Identity, clients: Option<Roots>) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Settings)?;
    let builder = match clients {
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.0, provider);
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Verifier)?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The settings of a client. Reads the files of the machine when it trusts the system.
pub fn client(trust: &Trust, identity: Option<Identity>, http2: bool) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Settings)?;
    let builder = match trust {
        Trust::System => builder.with_root_certificates(Roots::system()?.0),
        Trust::Roots(roots) => builder.with_root_certificates(Arc::clone(&roots.0)),
        Trust::DangerouslyAnyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        }
    };
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(identity)),
        None => builder.with_no_client_auth(),
    };
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(TlsError::Certificate)?;
    if found.is_empty() { Err(TlsError::NoCertificate) } else { Ok(found) }
}

fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts every certificate, but still checks that the peer holds its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use skep_testkit::pki::Authority;

    use super::*;

    #[test]
    fn a_key_that_does_not_fit_is_found_before_the_first_connection() {
        let authority = Authority::generate().unwrap();
        let one = authority.issue("one", None, &["one.test"]).unwrap();
        let two = authority.issue("two", None, &["two.test"]).unwrap();
        assert!(Identity::from_pem(one.certificate.as_bytes(), one.key.as_bytes()).is_ok());
        let mixed = Identity::from_pem(one.certificate.as_bytes(), two.key.as_bytes());
        assert!(matches!(mixed, Err(TlsError::Identity(_))), "{mixed:?}");
    }

    #[test]
    fn each_kind_of_invalid_file_has_its_own_error() {
        assert!(matches!(Roots::from_pem(b""), Err(TlsError::NoCertificate)));
        assert!(matches!(Roots::from_pem(b"-----BEGIN CERTIFICATE-----\n"), Err(TlsError::Certificate(_))));
        let identity = Authority::generate().unwrap().issue("one", None, &[]).unwrap();
        let no_key = Identity::from_pem(identity.certificate.as_bytes(), b"nothing");
        assert!(matches!(no_key, Err(TlsError::Key(_))), "{no_key:?}");
        let key_as_bundle = Roots::from_pem(identity.key.as_bytes());
        assert!(matches!(key_as_bundle, Err(TlsError::NoCertificate)), "{key_as_bundle:?}");
    }

    #[test]
    fn debug_output_has_no_key() {
        let identity = Authority::generate().unwrap().issue("one", None, &[]).unwrap();
        let identity = Identity::from_pem(identity.certificate.as_bytes(), identity.key.as_bytes()).unwrap();
        assert_eq!(format!("{identity:?}"), "Identity { .. }");
    }
}
