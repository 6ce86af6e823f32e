//! The host of a client without an operator: it has the credentials, and collects the log records.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kopf_core::log_level::Level;
use kopf_engine::host::credentials::Login;
use kopf_engine::host::{Host, HostTask, LogRecord, Logger};

/// Maximum number of log records that wait for Python. Further ones are dropped.
const MAX_LOG_RECORDS: usize = 1000;

pub(crate) struct ClientHost {
    login: Login,
    records: Mutex<VecDeque<LogRecord>>,
}

impl ClientHost {
    pub(crate) fn new(login: Login) -> Self {
        Self { login, records: Mutex::default() }
    }

    pub(crate) fn take_logs(&self) -> VecDeque<LogRecord> {
        std::mem::take(&mut *self.records())
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<LogRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for ClientHost {
    fn submit(&self, task: HostTask) {
        if let HostTask::Login(task) = task {
            // The receiver may not exist any more.
            let _gone = task.reply.send(Ok(self.login.clone()));
        }
    }

    fn log(&self, entry: LogRecord) {
        let mut records = self.records();
        // What is logged about objects is the result of a call.
        let is_enabled =
            self.enabled(entry.level) || (entry.logger == Logger::Objects && entry.level != Level::Debug);
        if records.len() < MAX_LOG_RECORDS && is_enabled {
            records.push_back(entry);
        }
    }

    fn enabled(&self, level: Level) -> bool {
        // Logins are of interest only if they fail.
        matches!(level, Level::Warning | Level::Error)
    }
}
