//! Which process listens on a port of this machine, as far as the kernel tells us.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// The tables of TCP sockets, one per version of the protocol.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens.
const LISTEN: &str = "0A";

/// Who listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A process that we may look at.
    Process {
        /// Its id.
        pid: u32,
        /// What it is called.
        name: String,
    },
    /// A process of another user: all that is known is the address that it listens on.
    Hidden(SocketAddr),
}

/// Who listens where we would. Nothing if no socket is found.
pub(super) fn of(address: SocketAddr) -> Option<Holder> {
    let inodes: Vec<String> = TABLES
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listeners(&table, address.port()))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    Some(process_with(&inodes).unwrap_or(Holder::Hidden(address)))
}

/// The inodes of the sockets in a table that listen on a port.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local_port, 16).ok()? == port && *fields.get(3)? == LISTEN;
        is_it.then(|| fields.get(9).map(ToString::to_string)).flatten()
    };
    table.lines().skip(1).filter_map(listener).collect()
}

/// The first process that has one of these sockets open.
fn process_with(inodes: &[String]) -> Option<Holder> {
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let has_it = |process: &Path| {
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
    };
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if has_it(&entry.path()) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(Holder::Process { pid, name: name.trim().to_owned() });
        }
    }
    None
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(formatter, "`{name}` (process {pid})"),
            Self::Hidden(address) => write!(formatter, "a process of another user, which listens on {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_listens_is_found_and_a_free_port_has_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let Some(Holder::Process { pid, name }) = of(address) else { panic!("nobody listens on {address}") };
        assert_eq!(pid, std::process::id());
        assert!(!name.is_empty());
        drop(listener);
        assert_eq!(of(address), None);
    }

    #[test]
    fn only_sockets_that_listen_on_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n   \
                     1: 0100007F:1F90 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n   \
                     2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1\n";
        assert_eq!(listeners(table, 8080), ["4711"]);
        assert_eq!(listeners(table, 8082), [""; 0]);
    }
}
