//! The client of a request, as authentication established it. The types are those of `skep-auth`.

pub use skep_auth::{Caller, Identity, Secret};
