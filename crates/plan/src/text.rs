//! What people write into fields of text, and whether it is what it must be.
//!
//! Every reader here returns a typed error whose message names the input and says what to write instead. None looks
//! anything up: a host is validated by its name, never by the address that it resolves to.

mod header;
mod identifier;
mod key;
mod name;
mod quantity;
mod timestamp;
mod url;

pub use self::header::{
    HeaderError, check_forwarded_header, check_forwarded_headers, check_header_limits, check_header_name,
    check_passthrough_header,
};
pub use self::identifier::{distinct_identifiers, sanitise, secret_identifier};
pub use self::key::{KeyError, check_key};
pub use self::name::{Name, NameError, derived_name, is_dns_label, is_dns_subdomain};
pub use self::quantity::{Quantity, QuantityError};
pub use self::timestamp::{TimestampError, is_newer, is_timestamp, timestamp};
pub(crate) use self::url::scope;
pub use self::url::{UrlError, provider_url, remote_url};
pub use skep_runconfig::{DurationError, GoDuration};

/// Whether a text is an absolute path that leaves no directory that it names.
pub(crate) fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}
