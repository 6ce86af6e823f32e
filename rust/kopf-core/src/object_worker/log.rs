//! The log messages of the state machine.

use crate::handling::error_backoff;
use crate::log_level::Level;
use crate::object::Object;
use std::sync::Arc;

/// A log message about an object.
#[derive(Clone, Debug)]
pub struct WorkerLog {
    /// The object.
    pub object: Arc<Object>,
    /// The message.
    pub message: WorkerMessage,
}

/// A log message; its text is made only if it is logged.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerMessage {
    /// More events than this wait: the oldest ones are skipped.
    Skipped(usize),
    /// The worker sleeps for so many seconds.
    Sleeping(f64),
    /// An event has interrupted the sleep, with so many seconds left.
    Interrupted(f64),
    /// Our own write will cause an event: no sleep of so many seconds.
    SkippedSleep(f64),
    /// The back-off after an error is over.
    BackoffOver,
    /// An unexpected error, with the seconds of the back-off.
    Failed {
        /// The seconds; none without a back-off.
        delay: Option<f64>,
        /// The text of the error.
        error: String,
        /// Whether the last exception of the cycle belongs to it.
        with_exception: bool,
    },
}

impl WorkerLog {
    pub(super) fn of(object: &Arc<Object>, message: WorkerMessage) -> Self {
        Self { object: Arc::clone(object), message }
    }

    /// The level of the message.
    pub fn level(&self) -> Level {
        match self.message {
            WorkerMessage::Skipped(_) => Level::Warning,
            WorkerMessage::Sleeping(_) | WorkerMessage::Interrupted(_) | WorkerMessage::SkippedSleep(_) => {
                Level::Debug
            }
            WorkerMessage::BackoffOver => Level::Info,
            WorkerMessage::Failed { .. } => Level::Error,
        }
    }

    /// The text of the message.
    pub fn text(&self) -> String {
        match &self.message {
            WorkerMessage::Skipped(most) => format!(
                "More than {most} events of this object wait for its handlers: the oldest of them are skipped. The newest \
                 state is handled in any case. See settings.queueing.max_pending_events."
            ),
            WorkerMessage::Sleeping(delay) => {
                format!("Sleeping for {delay} seconds for the delayed handlers.")
            }
            WorkerMessage::Interrupted(left) => {
                format!("Sleeping was interrupted by new changes, {left} seconds left.")
            }
            WorkerMessage::SkippedSleep(left) => {
                format!("Sleeping was skipped because of the patch, {left} seconds left.")
            }
            WorkerMessage::BackoffOver => error_backoff::OVER.to_owned(),
            WorkerMessage::Failed { delay, error, .. } => error_backoff::text(*delay, error),
        }
    }
}
