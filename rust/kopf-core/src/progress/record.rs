//! The record.
use crate::time::Timestamp;
/// Broken persisted state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {place}: {problem}")]
pub struct Malformed {
    /// Where.
    pub place: String,
    /// What.
    pub problem: String,
}
/// Progress of one handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub struct Record {
    pub started: Option<Timestamp>,
    pub stopped: Option<Timestamp>,
    pub delayed: Option<Timestamp>,
    pub purpose: Option<String>,
    pub retries: u64,
    pub success: bool,
    pub failure: bool,
    pub message: Option<String>,
    pub subrefs: Vec<String>,
}
