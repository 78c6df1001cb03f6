//! How much a proxy may hold, from the memory that its container has.
//!
//! ```text
//!   memory limit of the cgroup ─┬─ 3/8 ▶ buffered bytes, and up to 7/16 of that which wait for room
//!                               │  1/4   of a virtual server
//!                               ├─ 1/4 ▶ sessions
//!                               ├─ 1/8 ▶ connections of 32 KiB each, and no more than 1/3 of the open files
//!                               ├─ 1/64 ▶ caches of tokens, credentials and annotations
//!                               └─ 11/64 ▶ of a virtual server, what its backends offer
//! ```
//!
//! These are 119/128 of it at the most; the rest is the program's own.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::LazyLock;

use skep_net::Budget;
use skep_net::body::PASSING;
use skep_net::budget::Purpose;
use skep_net::serve::ConnectionLimits;
use skep_store::SessionLimits;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// How many bytes are buffered at most where nothing limits the memory.
pub const DEFAULT_BUDGET: usize = 256 * MIB;
/// The least that is buffered: one body and one response of usual size must fit.
const LEAST_BUDGET: usize = 16 * MIB;
/// The longest line of a stdio server that is read where there is room.
const LONGEST_LINE: usize = 64 * MIB;
/// How many connections there are where nothing limits them.
const MOST_CONNECTIONS: usize = 8192;
const LEAST_CONNECTIONS: usize = 64;
/// What a connection and its call take, in bytes: a head of the longest that is allowed, and the buffers on both sides. Bodies are counted.
const CONNECTION: usize = 32 * KIB;
/// How many files a connection needs: itself, one to the server, and something to spare.
const FILES: usize = 3;

/// The variable that sets how many bytes are buffered.
const BUDGET_VARIABLE: &str = "SKEP_MEMORY_BUDGET";
/// The variable that sets how many connections there may be.
const CONNECTIONS_VARIABLE: &str = "SKEP_MAX_CONNECTIONS";

/// What a proxy may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of requests and responses.
    pub budget: usize,
    /// Sessions.
    pub sessions: SessionLimits,
    /// Connections.
    pub connections: ConnectionLimits,
    /// Caches.
    pub caches: Caches,
}

/// How many bytes caches may have, each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// Tokens that were verified, and their claims.
    pub tokens: usize,
    /// Credentials for servers.
    pub credentials: usize,
    /// What tools said about themselves.
    pub annotations: usize,
    /// Of a virtual server: what backends offer to clients.
    pub catalogues: usize,
    /// What clients see of that.
    pub views: usize,
    /// Vectors of tools.
    pub vectors: usize,
    /// What is being fetched from backends.
    pub fetches: usize,
}

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A proxy in front of one server.
    Proxy,
    /// A virtual server, which keeps what its backends offer.
    VirtualServer,
}

// === impl Caches ===

impl Default for Caches {
    /// Where nothing limits the memory.
    fn default() -> Self {
        let (small, large) = (8 * MIB, 64 * MIB);
        Self {
            tokens: small,
            credentials: small,
            annotations: 2 * MIB,
            catalogues: large,
            views: large,
            vectors: large,
            fetches: 4 * large,
        }
    }
}

impl Caches {
    /// Those of this process.
    pub fn of_process() -> Self {
        static CACHES: LazyLock<Caches> =
            LazyLock::new(|| memory_limit(Path::new("/")).map_or_else(Caches::default, Caches::within));
        *CACHES
    }

    /// Those of a container with so much memory.
    fn within(memory: usize) -> Self {
        let most = Self::default();
        let share = |parts: usize, most: usize| (memory / 256 * parts).min(most);
        Self {
            tokens: share(2, most.tokens),
            credentials: share(1, most.credentials),
            annotations: share(1, most.annotations),
            catalogues: share(12, most.catalogues),
            views: share(12, most.views),
            vectors: share(8, most.vectors),
            fetches: share(12, most.fetches),
        }
    }
}

// === impl Capacity ===

impl Capacity {
    /// That of this process, unless the environment says otherwise.
    pub fn of_process(role: Role, variables: &BTreeMap<String, String>) -> Self {
        let root = Path::new("/");
        Self::derive(role, memory_limit(root), open_files(root)).with(variables)
    }

    /// That of a container with so much memory and so many files.
    fn derive(role: Role, memory: Option<usize>, files: Option<usize>) -> Self {
        let eighths = if role == Role::Proxy { 3 } else { 2 };
        let budget = memory.map_or(DEFAULT_BUDGET, |memory| (memory / 8 * eighths).max(LEAST_BUDGET));
        let sessions = memory.map_or_else(SessionLimits::default, |memory| {
            let total = (memory / 4).min(SessionLimits::default().total).max(MIB);
            SessionLimits::of_total(total)
        });
        let by_memory = memory.map_or(MOST_CONNECTIONS, |memory| memory / 8 / CONNECTION);
        let by_files = files.map_or(MOST_CONNECTIONS, |files| files / FILES);
        // Streams that pass through all of them leave a third of the budget for others.
        let by_budget = budget / PASSING / 3 * 2;
        let connections = by_memory.min(by_files).min(by_budget).clamp(LEAST_CONNECTIONS, MOST_CONNECTIONS);
        let caches = memory.map_or_else(Caches::default, Caches::within);
        Self { budget, sessions, connections: ConnectionLimits::of_total(connections), caches }
    }

    fn with(mut self, variables: &BTreeMap<String, String>) -> Self {
        let set = |name: &str, read: fn(&str) -> Option<usize>| {
            let text = variables.get(name).filter(|text| !text.is_empty())?;
            let number = read(text).filter(|number| *number > 0);
            if number.is_none() {
                tracing::warn!(name, text, "ignoring a variable that is not a positive number, such as 1000 or 128Mi");
            }
            number
        };
        if let Some(budget) = set(BUDGET_VARIABLE, quantity) {
            self.budget = budget;
            let total = self.connections.total.min(budget / PASSING / 3 * 2).max(LEAST_CONNECTIONS);
            self.connections = ConnectionLimits::of_total(total);
        }
        if let Some(connections) = set(CONNECTIONS_VARIABLE, |text| text.trim().parse().ok()) {
            self.connections = ConnectionLimits::of_total(connections);
        }
        self
    }

    /// How many requests one client behind a trusted proxy may have in flight: half of what its proxy may have.
    pub fn requests_of_client(&self) -> usize {
        self.connections.per_peer.div_ceil(2)
    }

    /// The longest line of a stdio server that is read: no more than its client could be sent.
    pub fn longest_line(&self) -> usize {
        let client = self.new_budget().of_client(Ipv4Addr::UNSPECIFIED.into());
        LONGEST_LINE.min(client.largest(Purpose::Response))
    }

    /// A new budget of this size.
    pub fn new_budget(&self) -> Budget {
        Budget::new(self.budget)
    }
}

/// A number of bytes as Kubernetes writes it: `134217728`, `128Mi`, `1G`.
fn quantity(text: &str) -> Option<usize> {
    let text = text.trim();
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split)?;
    let unit = match unit {
        "" => 1,
        "k" => 1000,
        "Ki" => KIB,
        "M" => 1_000_000,
        "Mi" => MIB,
        "G" => 1_000_000_000,
        "Gi" => 1024 * MIB,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// The memory limit of the cgroup that this process is in, or of one around it: the least of them. Both versions of cgroups.
fn memory_limit(root: &Path) -> Option<usize> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mount = root.join(mount);
        // In a container the mount shows its own cgroup at the top, and the path may be one of the host.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            limits.extend(limit_in(&mount.join(group).join(file)));
        }
    }
    limits.into_iter().min()
}

fn limit_in(file: &Path) -> Option<usize> {
    let limit: usize = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    // Without a limit, version 2 writes `max`, and version 1 the largest number of pages.
    (limit < usize::MAX / 4).then_some(limit)
}

/// How many files this process may have open.
fn open_files(root: &Path) -> Option<usize> {
    let limits = std::fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn derive(memory: Option<usize>, files: Option<usize>) -> Capacity {
        Capacity::derive(Role::Proxy, memory, files)
    }

    #[test]
    fn a_proxy_takes_its_share_of_the_memory_of_its_container() {
        let capacity = derive(Some(128 * MIB), Some(1 << 20));
        assert_eq!((capacity.budget, capacity.sessions.total), (48 * MIB, 32 * MIB));
        assert_eq!(capacity.connections, ConnectionLimits { total: 512, per_peer: 256 });
        let unlimited = derive(None, None);
        assert_eq!((unlimited.budget, unlimited.sessions), (DEFAULT_BUDGET, SessionLimits::default()));
        assert_eq!(unlimited.connections.total, DEFAULT_BUDGET / PASSING / 3 * 2);
        assert_eq!(derive(None, Some(1024)).connections.total, 341);
        assert_eq!((capacity.longest_line(), unlimited.longest_line()), (21 * MIB, LONGEST_LINE));
        assert_eq!((capacity.requests_of_client(), unlimited.requests_of_client()), (128, 683));
        let tiny = derive(Some(MIB), Some(1));
        assert_eq!((tiny.budget, tiny.connections.total), (LEAST_BUDGET, LEAST_CONNECTIONS));
    }

    #[test]
    fn item_8_all_parts_together_are_less_than_the_memory_of_the_container() {
        let unlimited = derive(None, None);
        assert!(unlimited.connections.total * PASSING < unlimited.budget, "{unlimited:?}");
        let memories = [64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB, 4096 * MIB];
        let roles = [Role::Proxy, Role::VirtualServer];
        for (role, memory) in roles.into_iter().flat_map(|role| memories.map(|memory| (role, memory))) {
            let capacity = Capacity::derive(role, Some(memory), None);
            // One response alone may wait, however long it is.
            let client = capacity.new_budget().of_client([192, 0, 2, 1].into());
            let waiting = client.largest(Purpose::Response).max(capacity.budget / 4);
            let connections = capacity.connections.total * CONNECTION;
            let Caches { tokens, credentials, annotations, catalogues, views, vectors, fetches } = capacity.caches;
            let offered = if role == Role::VirtualServer { catalogues + views + vectors + fetches } else { 0 };
            let caches = tokens + credentials + annotations + offered;
            let sum = capacity.budget + waiting + capacity.sessions.total + connections + caches;
            assert!(sum < memory / 16 * 15, "{role:?}: {sum} of {memory}");
            // Streams of servers that all connections pass through leave room for others.
            assert!(capacity.connections.total * skep_net::body::PASSING < capacity.budget, "{capacity:?}");
        }
        let head = skep_net::serve::Options::default().header_bytes as usize;
        assert!(2 * head <= CONNECTION, "{head}");
    }

    #[test]
    fn the_environment_has_the_last_word_if_it_can_be_read() {
        let given = |pairs: &[(&str, &str)]| derive(None, None).with(&variables(pairs));
        assert_eq!(given(&[(BUDGET_VARIABLE, "32Mi")]).budget, 32 * MIB);
        assert_eq!(given(&[(BUDGET_VARIABLE, " 1000000 ")]).budget, 1_000_000);
        for wrong in ["", "0", "-1", "much", "1.5Gi", "99999999999999999999", "Mi"] {
            assert_eq!(given(&[(BUDGET_VARIABLE, wrong)]).budget, DEFAULT_BUDGET, "{wrong}");
        }
        assert_eq!(given(&[(CONNECTIONS_VARIABLE, "7")]).connections, ConnectionLimits { total: 7, per_peer: 4 });
    }

    #[test]
    fn the_limit_is_found_in_both_versions_of_cgroups() {
        for (groups, files, expected) in [
            ("0::/", &[("sys/fs/cgroup/memory.max", "134217728\n")][..], Some(128 * MIB)),
            (
                "0::/a/b",
                &[("sys/fs/cgroup/a/memory.max", "1048576"), ("sys/fs/cgroup/a/b/memory.max", "max")],
                Some(MIB),
            ),
            ("0::/not/mounted", &[("sys/fs/cgroup/memory.max", "2097152")], Some(2 * MIB)),
            ("0::/", &[("sys/fs/cgroup/memory.max", "max\n")], None),
            ("0::/", &[], None),
            (
                "12:cpu:/x\n9:memory:/kubepods/pod1\n0::/",
                &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864")],
                Some(64 * MIB),
            ),
            ("9:memory:/", &[("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")], None),
            ("", &[("sys/fs/cgroup/memory.max", "1")], None),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in files.iter().copied().chain([("proc/self/cgroup", groups)]) {
                let file = root.path().join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
            assert_eq!(memory_limit(root.path()), expected, "{groups:?} {files:?}");
        }
    }
}
