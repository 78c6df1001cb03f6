//! A server that speaks HTTP, as a process of this machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_net::Listener;
use skep_net::serve::BindError;
use skep_workload::backoff::Backoff;
use skep_workload::process::Process;
use skep_workload::server::{Server, Speaks};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::health::{Health, ServerHealth};
use skep_upstream::stdio::{LastLines, forward_log, shutdown};

/// The first pause before a server that ended is started again.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// How long is waited for the last lines of a server that ended: something may hold them open that is not the server.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Keeps a process running until shutdown. Its output becomes our log.
pub(super) async fn supervise(server: Server, health: Arc<Health>, mut ending: watch::Receiver<bool>) {
    let mut backoff = Backoff::new(FIRST_DELAY);
    loop {
        let started = tokio::time::Instant::now();
        match Process::start(&server) {
            Ok(process) => {
                let (why, log) = run_once(process, &mut ending).await;
                if *ending.borrow() {
                    return;
                }
                tracing::warn!(why, "server ended; restarting it");
                let more = if log.is_empty() { log } else { format!("\n{log}") };
                health.set(ServerHealth::Unavailable(format!("the server ended: {why}{more}")));
            }
            Err(error) => {
                tracing::warn!(%error, "server not started");
                health.set(ServerHealth::Unavailable(error.to_string()));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.after(started.elapsed())) => {}
            () = shutdown(&mut ending) => return,
        }
    }
}

/// Waits for a process to end, or ends it on shutdown. Says how it ended, and the last lines of its log.
async fn run_once(mut process: Process, ending: &mut watch::Receiver<bool>) -> (String, String) {
    let (output, errors) = (process.child().stdout.take(), process.child().stderr.take());
    let last = Arc::new(Mutex::new(LastLines::default()));
    let mut log = JoinSet::new();
    if let Some(output) = output {
        log.spawn(forward_log(output, last.clone()).in_current_span());
    }
    if let Some(errors) = errors {
        log.spawn(forward_log(errors, last.clone()).in_current_span());
    }
    tokio::select! {
        _ended = process.child().wait() => {}
        () = shutdown(ending) => {}
    }
    let ended = process.end().await;
    // Its last lines are read before its end is reported.
    let _in_time = tokio::time::timeout(LAST_WAIT, async { while log.join_next().await.is_some() {} }).await;
    let why = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let log = last.lock().unwrap_or_else(PoisonError::into_inner).text();
    (why, log)
}

/// Ports of this machine that are promised, whether or not they are open yet. All proxies of one process share them.
#[derive(Clone, Debug, Default)]
pub struct Ports(Arc<Mutex<BTreeSet<u16>>>);

// === impl Ports ===

impl Ports {
    /// Promises a port. Says whether it was free.
    pub fn promise(&self, port: u16) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(port)
    }

    /// Opens the port of a proxy. Any port will do if it has none: but not one that was assigned to a server.
    pub(super) async fn bind(&self, address: SocketAddr) -> Result<Listener, BindError> {
        let mut others = Vec::new();
        loop {
            let listener = Listener::bind(address).await?;
            if address.port() != 0 || self.promise(listener.address().port()) {
                return Ok(listener);
            }
            // Held until another one is found, so that it is not found again.
            others.push(listener);
        }
    }

    /// A port that is free for a server: the one that it has by itself, or else any.
    fn for_server(&self, wanted: u16) -> u16 {
        let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
        if wanted != 0 && bind(wanted).is_ok() && self.promise(wanted) {
            return wanted;
        }
        let mut others = Vec::new();
        while let Ok(listener) = bind(0) {
            match listener.local_addr() {
                Ok(address) if self.promise(address.port()) => return address.port(),
                _ => others.push(listener),
            }
        }
        wanted
    }
}

/// Where a server on this machine listens: on its own port, or on a free one if that is in use. Returns its URL.
pub(super) fn listen(server: &mut Server, ports: &Ports) -> String {
    let port = ports.for_server(server.speaks.port().unwrap_or_default());
    server.speaks = match server.speaks {
        Speaks::Sse(_) => Speaks::Sse(port),
        _ => Speaks::StreamableHttp(port),
    };
    if server.host.is_empty() {
        "127.0.0.1".clone_into(&mut server.host);
    }
    format!("http://127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(script: &str) -> Process {
        let server = Server {
            name: "s".to_owned(),
            image: "exec://sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            speaks: Speaks::StreamableHttp(1),
            ..Server::default()
        };
        Process::start(&server).unwrap()
    }

    #[tokio::test]
    async fn the_last_words_of_a_server_are_read_to_their_end() {
        let (_sender, mut ending) = watch::channel(false);
        for _ in 0..20 {
            let script = "n=0; while [ $n -lt 300 ]; do n=$((n+1)); echo line $n >&2; done; exit 9";
            let (why, log) = run_once(process(script), &mut ending).await;
            assert_eq!(why, "exit status: 9");
            assert_eq!(log, "line 296\nline 297\nline 298\nline 299\nline 300");
        }
    }

    #[tokio::test]
    async fn no_port_is_promised_twice() {
        let ports = Ports::default();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let wanted = free();
        assert_eq!(ports.for_server(wanted), wanted);
        // It is not open so far.
        let second = ports.for_server(wanted);
        assert_ne!(second, wanted);
        let kept = free();
        assert!(ports.promise(kept) && !ports.promise(kept));
        assert_ne!(ports.for_server(kept), kept, "a proxy is about to open it");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_ne!(ports.for_server(taken.local_addr().unwrap().port()), taken.local_addr().unwrap().port());
        let opened = ports.bind("127.0.0.1:0".parse().unwrap()).await.unwrap().address().port();
        assert!(!ports.promise(opened));
        // One that is asked for by its number is opened, whichever server it was promised to.
        let asked = format!("127.0.0.1:{kept}").parse().unwrap();
        assert_eq!(ports.bind(asked).await.unwrap().address().port(), kept);
    }
}
