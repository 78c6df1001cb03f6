//! From a bearer token to the client that it stands for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_net::client::Schemes;
use skep_net::tls::{Roots, TlsError, Trust};
use skep_net::{Addresses, Client};

use crate::claims::{ClaimError, Claims, Expectations};
use crate::fetch::{Fetcher, TIMEOUT};
use crate::introspection::{GOOGLE, Introspection, IntrospectionError};
use crate::jwt::{JwtError, Unverified};
use crate::key_cache::{KeyCache, KeyError};
use crate::opaque::{OpaqueTokens, Refusal};
use crate::verified::{CacheSize, Digest, Verified, of_token};
use crate::{Caller, Secret};

/// How long the introspection of an opaque token is cached, in seconds: the token may be revoked at any time.
const INTROSPECTED: i64 = 60;

/// How tokens are validated.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What tokens must say.
    pub expected: Expectations,
    /// Where the issuer's keys are; otherwise the issuer says it.
    pub jwks_url: String,
    /// The introspection endpoint for opaque tokens.
    pub introspection_url: String,
    /// The client that introspects opaque tokens.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<Secret>,
    /// The only certificate authorities that are trusted for the issuer, as PEM.
    pub ca_bundle: Option<Vec<u8>>,
    /// A file with a token for the issuer itself.
    pub token_file: Option<PathBuf>,
    /// Which addresses the issuer may be at.
    pub addresses: Addresses,
    /// Whether it may be reached without TLS.
    pub insecure_http: bool,
    /// How much is kept of tokens that were verified.
    pub cache: CacheSize,
}

/// Validates bearer tokens.
#[derive(Debug)]
pub struct Validator {
    expected: Expectations,
    keys: Arc<KeyCache>,
    opaque: Option<OpaqueTokens>,
    verified: Verified,
}

/// Why a validator cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It would not know any key.
    #[error("either issuer or JWKS URL must be provided")]
    NoIssuer,
    /// It would accept the tokens of every Google client.
    #[error(
        "an audience must be configured for the token information of Google: without one, tokens of every Google client would be valid"
    )]
    GoogleAudience,
    /// The CA bundle cannot be used.
    #[error("the CA bundle cannot be used: {0}")]
    CaBundle(#[from] TlsError),
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It cannot be verified.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// The key that it names is not available.
    #[error(transparent)]
    Key(#[from] Arc<KeyError>),
    /// It is opaque, and introspection did not confirm it.
    #[error(transparent)]
    Introspection(#[from] IntrospectionError),
    /// It is opaque, and no introspection endpoint is configured.
    #[error("failed to introspect opaque token: no introspection endpoint available")]
    NoIntrospection,
    /// It is opaque, and too many of those are being introspected. The client may send it again.
    #[error("failed to introspect opaque token: the identity provider is busy")]
    Saturated,
    /// It is not for this server, not of this issuer, or not valid now.
    #[error(transparent)]
    Claims(#[from] ClaimError),
}

// === impl AuthError ===

impl AuthError {
    /// The text for the client. Failures of the issuer are for the log: they name addresses of our network.
    pub fn external(&self) -> String {
        match self {
            Self::Key(error) => match &**error {
                KeyError::Unknown(_) => error.to_string(),
                KeyError::Discovery(_) => "OIDC discovery failed".to_owned(),
                KeyError::Fetch(_) | KeyError::Document(_) => "failed to fetch JWKS".to_owned(),
            },
            Self::Introspection(IntrospectionError::Fetch(_) | IntrospectionError::Recent) => {
                "failed to introspect opaque token".to_owned()
            }
            other => other.to_string(),
        }
    }

    /// Whether the issuer failed, and not the token.
    pub fn is_of_issuer(&self) -> bool {
        match self {
            Self::Key(error) => !matches!(**error, KeyError::Unknown(_)),
            Self::Introspection(error) => matches!(error, IntrospectionError::Fetch(_) | IntrospectionError::Recent),
            Self::Saturated => true,
            _ => false,
        }
    }

    /// Whether the token is valid, but lacks a scope.
    pub fn is_scope(&self) -> bool {
        matches!(self, Self::Claims(ClaimError::Scope(_)))
    }
}

// === impl Validator ===

impl Validator {
    /// A validator. It sends no request to the issuer before the first token.
    pub fn new(options: Options) -> Result<Self, ConfigError> {
        if options.expected.issuer.is_empty() && options.jwks_url.is_empty() {
            return Err(ConfigError::NoIssuer);
        }
        if options.introspection_url == GOOGLE && options.expected.audience.is_empty() {
            return Err(ConfigError::GoogleAudience);
        }
        let trust = match &options.ca_bundle {
            Some(pem) => Trust::Roots(Roots::from_pem(pem)?),
            None => Trust::System,
        };
        let schemes = if options.insecure_http { Schemes::Any } else { Schemes::HttpsOnly };
        let client = Client::new(skep_net::client::Options {
            addresses: options.addresses,
            schemes,
            trust,
            ..Default::default()
        });
        let fetcher = Fetcher::new(client, options.token_file, TIMEOUT);
        let opaque = (!options.introspection_url.is_empty()).then(|| {
            OpaqueTokens::new(Introspection::new(
                fetcher.clone(),
                &options.introspection_url,
                &options.client_id,
                options.client_secret.as_ref(),
            ))
        });
        let jwks_url = Some(options.jwks_url).filter(|url| !url.is_empty());
        let keys = Arc::new(KeyCache::new(fetcher, options.expected.issuer.trim(), jwks_url));
        Ok(Self { expected: options.expected, keys, opaque, verified: Verified::within(options.cache) })
    }

    /// The client of a token that was verified before, for the price of a digest.
    pub fn known(&self, token: &str, now: i64) -> Option<Caller> {
        let caller = self.verified.get(&of_token(token), self.keys.generation(), now)?;
        self.keys.refresh_if_old();
        Some(caller)
    }

    /// The client that a token stands for, at `now` in seconds since 1970.
    pub async fn validate(&self, token: &str, now: i64) -> Result<Caller, AuthError> {
        if let Some(caller) = self.known(token, now) {
            return Ok(caller);
        }
        let digest = of_token(token);
        match Unverified::parse(token) {
            Ok(unverified) => {
                let (claims, generation) = self.verify(&unverified).await?;
                self.accept(token, digest, claims, (generation, i64::MAX), now)
            }
            Err(malformed @ JwtError::Malformed(_)) => match &self.opaque {
                Some(opaque) => self.introspect(opaque, token, digest, now).await,
                None if token.contains('.') => Err(malformed.into()),
                None => Err(AuthError::NoIntrospection),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The claims of a token whose signature holds, and the generation of the keys that verified it.
    async fn verify(&self, token: &Unverified<'_>) -> Result<(Claims, u64), AuthError> {
        let (key, mut generation) = self.keys.find(&token.key_id, token.algorithm).await?;
        if let Err(error) = key.verify(token) {
            // Issuers may replace a key and keep its id.
            let replaced = self.keys.replaced(&token.key_id, token.algorithm, generation).await;
            let (key, newer) = replaced.ok_or(error)?;
            key.verify(token)?;
            generation = newer;
        }
        Ok((token.claims()?, generation))
    }

    /// The client of an opaque token, if its issuer confirms it. Requests with the same token wait for one response.
    async fn introspect(
        &self,
        opaque: &OpaqueTokens,
        token: &str,
        digest: Digest,
        now: i64,
    ) -> Result<Caller, AuthError> {
        let _turn = opaque.turn(digest).await;
        if let Some(caller) = self.known(token, now) {
            return Ok(caller);
        }
        let generation = self.keys.generation();
        let claims = opaque.introspect(&digest, token, now).await?;
        let accepted = self.accept(token, digest, claims, (generation, INTROSPECTED), now);
        if let Err(AuthError::Claims(error)) = &accepted {
            opaque.refuse(digest, Refusal::Claims(error.clone()), now);
        }
        accepted
    }

    /// Checks the claims of a token, and keeps its client until it expires, and for `longest` seconds at most.
    fn accept(
        &self,
        token: &str,
        digest: Digest,
        claims: Claims,
        (generation, longest): (u64, i64),
        now: i64,
    ) -> Result<Caller, AuthError> {
        let subject = claims.check(&self.expected, now)?.to_owned();
        claims.check_scopes(&self.expected)?;
        let until = claims.expiry().unwrap_or(now).min(now.saturating_add(longest));
        let caller = Caller::of_token(claims, &subject, &self.expected.issuer, token);
        self.verified.put(digest, caller.clone(), until, generation, now);
        Ok(caller)
    }
}

/// Reads a CA bundle, of a size that one can have.
pub fn read_ca_bundle(path: &Path) -> std::io::Result<Vec<u8>> {
    const LONGEST: u64 = 4 * 1024 * 1024;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::open(path)?, LONGEST), &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
