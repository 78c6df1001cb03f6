//! The audit log: one JSON object per line and request, in the form that consumers of the original's log know.

mod data;
mod event;
mod filter;
mod kind;
mod log;
mod reply;
mod sink;

pub use self::data::Data;
pub use self::event::{Event, Extra, Source, Subjects, Target, WorkflowFacts};
pub use self::filter::{EventFilter, UnknownEventTypeError};
pub use self::kind::{EventType, Outcome, TargetType};
pub use self::log::{AuditLog, AuditLogError, Output};
pub use self::reply::{Framing, ReplyScan, RpcError};
pub use self::sink::AuditSink;
