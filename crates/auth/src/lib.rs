//! Authenticating clients, and obtaining credentials for MCP servers.
//!
//! ```text
//!   Authorization ─▶ bearer ─▶ Validator ─┬─ cache of verified tokens (by digest)
//!                                         ├─ jwt ─▶ KeyCache ─▶ discovery, JWKS
//!                                         └─ introspection (RFC 7662, Google, GitHub)
//!                                         ▼
//!                                       Caller ─▶ the middleware chain
//! ```
//!
//! Incoming: [`bearer`] reads the token, [`Validator`] turns it into a [`Caller`], [`challenge`] writes the 401 and [`metadata`] the
//! document of RFC 9728. Outgoing: [`token_exchange`] and [`aws`] obtain credentials for servers, and [`credentials`] keeps them. Whatever decides is
//! pure and takes the time as a number; only [`fetch`] touches the network.
//!
//! Tokens, claims and client secrets are never logged and are in no error text.

pub mod aws;
pub mod bearer;
mod caller;
pub mod challenge;
mod claims;
mod clock;
pub mod credentials;
pub mod delegation;
mod discovery;
pub mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod introspection;
pub mod jwt;
mod key_cache;
mod keys;
pub mod metadata;
mod opaque;
pub mod token_exchange;
mod validator;
mod verified;

pub use caller::{ANONYMOUS, Caller, Identity, LOCAL_ISSUER, Secret};
pub use claims::{ClaimError, Claims, Expectations, LEEWAY};
pub use clock::unix_now;
pub use discovery::DiscoveryError;
pub use introspection::IntrospectionError;
pub use key_cache::{KeyCache, KeyError};
pub use keys::{Key, KeySet, KeySetError};
pub use validator::{AuthError, ConfigError, Options, Validator, read_ca_bundle};
pub use verified::CacheSize;
