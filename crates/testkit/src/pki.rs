//! Certificates for a control plane that lives as long as a test: one authority, what it signs, and a key pair that
//! signs service account tokens. Nothing here is fit for anything else.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// Signs the certificates of one control plane.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its PKCS#8 private key.
    pub key: String,
}

/// The key pair behind service account tokens, both PEM.
#[derive(Clone)]
pub struct TokenKeys {
    /// What the API server verifies tokens with.
    pub public: String,
    /// What it signs them with.
    pub private: String,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn generate() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("skep-test-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("cannot generate the key of the test authority")?;
        let issuer = CertifiedIssuer::self_signed(params, key).context("cannot sign the test authority")?;
        Ok(Self(issuer))
    }

    /// The authority's own certificate, PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for both ends of a connection. Kubernetes reads the common name as the user and the
    /// organization as its group; `names` are the DNS names and addresses under which it may serve.
    pub fn issue(&self, common_name: &str, organization: Option<&str>, names: &[&str]) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)
            .with_context(|| format!("cannot put these names into the certificate of `{common_name}`"))?;
        params.distinguished_name = name(common_name, organization);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().with_context(|| format!("cannot generate the key of `{common_name}`"))?;
        let certificate = params
            .signed_by(&key, &self.0)
            .with_context(|| format!("cannot sign the certificate of `{common_name}`"))?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl TokenKeys {
    /// A new key pair.
    pub fn generate() -> Result<Self> {
        let key = KeyPair::generate().context("cannot generate the key of the service account tokens")?;
        Ok(Self { public: key.public_key_pem(), private: key.serialize_pem() })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TokenKeys").finish_non_exhaustive()
    }
}

fn name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_signs_for_names_and_addresses() {
        let authority = Authority::generate().unwrap();
        let identity = authority.issue("kube-apiserver", None, &["localhost", "127.0.0.1"]).unwrap();
        assert!(identity.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(identity.key.starts_with("-----BEGIN PRIVATE KEY-----"));
    }

    #[test]
    fn debug_output_has_no_keys() {
        let keys = TokenKeys::generate().unwrap();
        assert_eq!(format!("{keys:?}"), "TokenKeys { .. }");
    }
}
