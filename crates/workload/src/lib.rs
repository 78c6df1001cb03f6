//! Running the server behind a proxy. So far: whose word counts when two proxies apply the same server ([`gate`]).

pub mod gate;
