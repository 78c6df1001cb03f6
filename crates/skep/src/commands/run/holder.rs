//! Which process listens on a port of this machine, according to `/proc`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The tables of TCP sockets, one per version of the protocol.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a listening socket.
const LISTEN: &str = "0A";

/// The process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A process that we may inspect.
    Process {
        /// Its id.
        pid: u32,
        /// What it is called.
        name: String,
    },
    /// A process of another user: only its listening address is known.
    Hidden(SocketAddr),
}

/// The holder of the socket that conflicts with ours. `None` if no socket is found.
pub(super) fn of(address: SocketAddr) -> Option<Holder> {
    let inodes: Vec<String> = TABLES
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listeners(&table, address))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    Some(process_with(&inodes).unwrap_or(Holder::Hidden(address)))
}

/// The inodes of the sockets in a table that conflict with ours.
fn listeners(table: &str, wanted: SocketAddr) -> Vec<String> {
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = collides(local_address(fields.get(1)?)?, wanted) && *fields.get(3)? == LISTEN;
        is_it.then(|| fields.get(9).map(ToString::to_string)).flatten()
    };
    table.lines().skip(1).filter_map(listener).collect()
}

/// Whether a socket at one address prevents another from being opened: the same address, or one of them is unspecified.
fn collides(held: SocketAddr, wanted: SocketAddr) -> bool {
    let every = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let (held_ip, wanted_ip) = (held.ip().to_canonical(), wanted.ip().to_canonical());
    held.port() == wanted.port() && (held_ip == wanted_ip || every(held_ip, wanted_ip) || every(wanted_ip, held_ip))
}

/// An address as the kernel writes it: 32-bit words in host byte order, and a port.
fn local_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    let word =
        |index: usize| u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?)
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
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
        let Some(Holder::Process { pid, name }) = of(address) else { panic!("no process listens on {address}") };
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
        let at = |address: &str| listeners(table, address.parse().unwrap());
        assert_eq!(at("127.0.0.1:8080"), ["4711"]);
        assert_eq!(at("127.0.0.1:8082"), [""; 0]);
    }

    #[test]
    fn only_sockets_that_collide_with_the_address_count() {
        for (held, wanted, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.2:80", "127.0.0.1:80", false),
            ("10.0.0.1:80", "127.0.0.1:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::1]:80", "[::1]:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
        ] {
            assert_eq!(collides(held.parse().unwrap(), wanted.parse().unwrap()), expected, "{held} {wanted}");
        }
        if cfg!(target_endian = "little") {
            let read = |text: &str| local_address(text).map(|address| address.to_string());
            assert_eq!(read("0100007F:1F90").unwrap(), "127.0.0.1:8080");
            assert_eq!(read("00000000000000000000000001000000:1F90").unwrap(), "[::1]:8080");
            assert_eq!(read("0000000000000000FFFF00000100007F:0050").unwrap(), "[::ffff:127.0.0.1]:80");
            assert_eq!(read("0100007F"), None);
            assert_eq!(read("01:0050"), None);
        }
    }
}
