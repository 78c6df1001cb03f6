//! The layers of the chain that have something to remember.

pub(crate) mod header_forward;
pub(crate) mod origin;
pub(crate) mod tools;
