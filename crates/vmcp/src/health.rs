//! How a backend is: health checks and calls say so, and a breaker keeps what fails from being called again and again.

mod breaker;
mod call;
mod monitor;
mod state;

pub use breaker::{BreakerSettings, BreakerState};
pub(crate) use call::{CallTimes, ObservedCall};
pub(crate) use monitor::jittered;
pub use monitor::{MonitorSettings, monitor};
pub use state::{BackendHealth, Category, Health, HealthState};
