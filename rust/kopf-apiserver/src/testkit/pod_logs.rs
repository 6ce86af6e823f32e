//! The logs of pods, which tests write: there are no kubelets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::base::clock;

/// The maximum number of lines per container; the oldest ones are dropped, as kubelets do.
const MAX_LINES: usize = 100_000;

/// One line with its time, which is unique in its container.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) time: Timestamp,
    pub(crate) text: String,
}

/// The lines of all containers, by the uid of the pod and the name of the container.
pub(crate) struct PodLogs {
    lines: Mutex<HashMap<(String, String), VecDeque<LogLine>>>,
    changed: watch::Sender<u64>,
}

impl Default for PodLogs {
    fn default() -> Self {
        Self { lines: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl PodLogs {
    fn lines(&self) -> MutexGuard<'_, HashMap<(String, String), VecDeque<LogLine>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends lines, with the current time.
    pub(crate) fn append(&self, uid: &str, container: &str, texts: Vec<String>) {
        let mut all = self.lines();
        let lines = all.entry((uid.to_owned(), container.to_owned())).or_default();
        for text in texts {
            let earliest = lines.back().map_or(Timestamp::MIN, |line| later(line.time));
            lines.push_back(LogLine { time: clock::now().max(earliest), text });
        }
        while lines.len() > MAX_LINES {
            lines.pop_front();
        }
        drop(all);
        self.changed.send_modify(|count| *count += 1);
    }

    /// The lines of a container from this time on; none if nothing was written.
    pub(crate) fn since(&self, uid: &str, container: &str, time: Timestamp) -> Option<Vec<LogLine>> {
        let all = self.lines();
        let lines = all.get(&(uid.to_owned(), container.to_owned()))?;
        Some(lines.iter().filter(|line| line.time >= time).cloned().collect())
    }

    /// Notifies of new lines.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// The first time after this one.
pub(crate) fn later(time: Timestamp) -> Timestamp {
    time.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_unique_and_the_oldest_lines_are_dropped() {
        let logs = PodLogs::default();
        let since = |time| logs.since("u", "c", time).unwrap_or_default();
        assert!(logs.since("u", "c", Timestamp::MIN).is_none());
        logs.append("u", "c", vec!["a".to_owned(); MAX_LINES]);
        logs.append("u", "c", vec!["b".to_owned()]);
        let lines = since(Timestamp::MIN);
        assert_eq!((lines.len(), &*lines[MAX_LINES - 1].text), (MAX_LINES, "b"));
        assert!(lines.windows(2).all(|two| two[0].time < two[1].time));
        assert_eq!(since(lines[MAX_LINES - 1].time).len(), 1);
    }
}
