//! Breaking a control plane on purpose. All of it wants `&mut self`: the shared one cannot be broken.

use anyhow::Result;

use super::ControlPlane;
use super::launch::{APISERVER, ETCD, wait_until_ready};

impl ControlPlane {
    /// Kills the API server as a crash would. Clients get connection errors until it is started again.
    pub fn stop_apiserver(&mut self) -> Result<()> {
        self.group.kill(APISERVER)
    }

    /// Starts the API server again, on the same port and data, and returns when it answers.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        self.apiserver.spawn(&mut self.group)?;
        wait_until_ready(&mut self.group, &self.config).await
    }

    /// Kills the API server, starts it again and returns when it answers. Every watch breaks.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.stop_apiserver()?;
        self.start_apiserver().await
    }

    /// Freezes etcd: the API server stays up, but reads that need etcd and all writes hang.
    pub fn pause_etcd(&mut self) -> Result<()> {
        self.group.freeze(ETCD)
    }

    /// Lets etcd go on where it was frozen.
    pub fn resume_etcd(&mut self) -> Result<()> {
        self.group.signal(ETCD, "CONT")
    }
}
