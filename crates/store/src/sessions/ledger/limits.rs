//! The memory limits for sessions.

/// The memory limits for sessions, in bytes: each counts [`SESSION_BYTES`](super::SESSION_BYTES) and its strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Of all sessions.
    pub total: usize,
    /// Of one identity.
    pub per_identity: usize,
    /// Of one peer address. All clients behind an ingress share one.
    pub per_peer: usize,
}

/// The kind of owner that a session counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Peer,
    Identity,
    All,
}

// === impl SessionLimits ===

impl SessionLimits {
    /// A total, of which one peer address may have half. An identity may have a quarter of that: one authenticated
    /// client behind an ingress leaves the others most of it.
    pub const fn of_total(total: usize) -> Self {
        let per_peer = total / 2;
        Self { total, per_identity: per_peer / 4, per_peer }
    }

    pub(super) fn share(&self, side: Side) -> usize {
        match side {
            Side::Peer => self.per_peer,
            Side::Identity => self.per_identity,
            Side::All => self.total,
        }
    }
}

impl Default for SessionLimits {
    /// 128 MiB, which is about 75,000 sessions with a handshake of usual length.
    fn default() -> Self {
        Self::of_total(128 * 1024 * 1024)
    }
}

// === impl Side ===

impl Side {
    pub(super) const EACH: [Self; 3] = [Self::Peer, Self::Identity, Self::All];
}
