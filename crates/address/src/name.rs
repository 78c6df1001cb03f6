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

/// Whether only the DNS of a cluster can answer for a name: it has a single part, or ends in `.svc`, which is no domain of the
/// internet. So nobody outside can make it resolve to an address of their choice.
pub fn is_of_cluster(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_address = name.contains(':') || name.rsplit('.').next().is_some_and(|last| last.parse::<u32>().is_ok());
    !name.is_empty() && !is_address && (!name.contains('.') || is_at_or_below(&name, "svc"))
}

fn is_at_or_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
