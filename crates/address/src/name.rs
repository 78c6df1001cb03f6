//! Names that lead to a known place wherever they are resolved.

use crate::Scope;

/// Names and all below them.
const DOMAINS: &[(&str, Scope)] = &[
    ("localhost", Scope::Loopback),
    ("metadata.google.internal", Scope::Metadata),
    ("metadata.goog", Scope::Metadata),
    ("instance-data.ec2.internal", Scope::Metadata),
    ("cluster.local", Scope::Private),
];

/// Names that stand for a metadata service where a search domain completes them. What is below them is something else: in a cluster,
/// `a.metadata` is the Service `a` of the namespace `metadata`.
const ALONE: &[(&str, Scope)] = &[("metadata", Scope::Metadata), ("instance-data", Scope::Metadata)];

/// What is known of a name without resolving it; nothing for most.
pub fn scope_of_name(name: &str) -> Option<Scope> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let known = |table: &[(&str, Scope)], is: &dyn Fn(&str) -> bool| {
        table.iter().find(|(known, _)| is(known)).map(|(_, scope)| *scope)
    };
    known(ALONE, &|known| name == known).or_else(|| known(DOMAINS, &|known| is_at_or_below(&name, known)))
}

/// Whether a name is one of a Service with its namespace: it ends in `.svc`, which is not a domain of the internet. A name of a single part
/// is not: a search domain of the node may complete it to a private host, see [`in_namespace`].
pub fn is_of_cluster(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.strip_suffix(".svc").is_some_and(|rest| !rest.is_empty())
}

/// The name of a Service of a namespace in full, if a host is a name of a single part that means nothing else.
pub fn in_namespace(host: &str, namespace: &str) -> Option<String> {
    let is_label = |text: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !text.is_empty() && text.bytes().all(is_letter) && !text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_service = is_label(host) && is_label(namespace) && scope_of_name(host).is_none();
    is_service.then(|| format!("{host}.{namespace}.svc"))
}

fn is_at_or_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
