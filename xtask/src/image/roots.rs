//! The certificates that a container trusts: it has no system roots.
//!
//! They are those of Mozilla's list, in the file where Linux programs look for them. To use others, mount them over it, or
//! set `SSL_CERT_FILE`.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Where they lie, below the root directory.
pub(super) const FILE: &str = "etc/ssl/certs/ca-certificates.crt";
const HEAD: &str = "\
# The certificates of Mozilla's list that servers are trusted by, as in the crate webpki-root-certs.
# They may be passed on by the Community Data License Agreement, Permissive, 2.0: https://cdla.dev/permissive-2-0/
";
/// How long the lines of a PEM file are.
const LINE: usize = 64;

/// All of them, as PEM.
pub(super) fn pem() -> &'static str {
    static PEM: LazyLock<String> = LazyLock::new(|| {
        let mut pem = HEAD.to_owned();
        for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            let text = STANDARD.encode(certificate);
            for line in text.as_bytes().chunks(LINE) {
                pem.push_str(&String::from_utf8_lossy(line));
                pem.push('\n');
            }
            pem.push_str("-----END CERTIFICATE-----\n");
        }
        pem
    });
    &PEM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_as_they_were_written() {
        use rustls_pki_types::CertificateDer;
        use rustls_pki_types::pem::PemObject as _;

        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem().as_bytes()).collect();
        let read = read.unwrap();
        assert!(read.len() > 50, "{}", read.len());
        assert_eq!(read, webpki_root_certs::TLS_SERVER_ROOT_CERTS);
    }
}
