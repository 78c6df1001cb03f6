//! Tokens of an issuer on loopback: discovery, keys that rotate, outages, opaque tokens.

mod issuer;
mod keys;
mod opaque;
mod tokens;
