//! Tokens of an issuer on loopback: discovery, keys that rotate, outages, opaque tokens.

#[cfg(test)]
mod issuer;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod opaque;
#[cfg(test)]
mod tokens;
