//! The variables that a server process inherits: the few that any program needs to run on this machine.
//!
//! Everything else is withheld. The environment of a proxy or of the user's shell holds credentials (client secrets,
//! tokens of other programs), and a server gets those that its own spec names, and no others.

use std::ffi::{OsStr, OsString};

/// Variables that are inherited, whatever their value.
const INHERITED: &[&str] = &[
    // Paths and users.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    // Language and time.
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    // Network access: HTTP proxies, in either case, and certificate authorities.
    "ALL_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Prefixes of further inherited variables: the parts of the locale.
const INHERITED_PREFIX: &str = "LC_";

/// The inherited ones among these variables.
pub(super) fn inherited(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    variables.filter(|(name, _)| is_inherited(name))
}

fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| INHERITED.contains(&name) || name.starts_with(INHERITED_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_inherited() {
        for name in ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE"] {
            assert!(is_inherited(OsStr::new(name)), "{name}");
        }
        for name in [
            "TOOLHIVE_OIDC_CLIENT_SECRET",
            "TOOLHIVE_SECRET_remote",
            "THV_SESSION_REDIS_PASSWORD",
            "KUBERNETES_SERVICE_HOST",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "KUBECONFIG",
            "PATHS",
            "path",
            "XLC_ALL",
            "LD_PRELOAD",
        ] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
    }
}
