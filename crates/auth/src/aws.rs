//! Credentials of AWS for the clients of a server: a role by their claims, a session of that role by their token, and requests signed
//! with it.
//!
//! ```text
//!   claims ─▶ role ─┐
//!   token ──────────┴─▶ sts (AssumeRoleWithWebIdentity) ─▶ AwsCredentials ─▶ sigv4 ─▶ headers
//! ```

mod matcher;
mod role;
pub mod sigv4;
pub mod sts;

pub use role::{RoleError, RoleMapping, Roles};

use crate::Secret;

/// The credentials of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The id of the access key.
    pub access_key_id: String,
    /// The secret of the access key.
    pub secret_access_key: Secret,
    /// The token of the session.
    pub session_token: Secret,
}
