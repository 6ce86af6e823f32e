//! The metrics of one resource: its streams, its cycles, and the patches of its objects.

use std::sync::atomic::AtomicBool;

use kopf_core::cause::{EventType, Reason};

use super::instruments::{Counter, Histogram};
use crate::error::RequestError;

/// The types of watch records.
pub(super) const RECORDS: [&str; 5] = ["listed", "added", "modified", "deleted", "bookmark"];
/// The reasons why connections of watches have ended.
pub(super) const ENDS: [&str; 5] = ["closed", "silent", "broken", "refused", "gone"];
/// The reasons of cycles.
pub(super) const REASONS: [&str; 7] = ["create", "update", "delete", "resume", "noop", "free", "gone"];
/// The kinds of requests by which objects are patched.
pub(super) const PARTS: [&str; 3] = ["body", "status", "json"];
/// The results of these requests.
pub(super) const RESULTS: [&str; 7] = ["applied", "noop", "conflict", "refused", "gone", "unknown", "fenced"];

/// The status of an invalid object, and of a JSON patch that does not fit the object, such as by a failed `test`.
const UNPROCESSABLE: u16 = 422;

/// The metrics of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    /// The records of watches and of listings.
    pub watch: WatchMetrics,
    /// The cycles of objects.
    pub cycles: CycleMetrics,
    /// The patches of objects.
    pub patches: PatchMetrics,
    /// Whether its objects have cycles.
    pub is_handled: AtomicBool,
}

impl Default for ResourceMetrics {
    fn default() -> Self {
        Self {
            watch: WatchMetrics {
                records: Default::default(),
                ends: Default::default(),
                bytes: Counter::default(),
                lists: Counter::default(),
                list_duration: Histogram::slow(),
            },
            cycles: CycleMetrics {
                queue_duration: Histogram::fast(),
                reaction: Histogram::fast(),
                ended: Default::default(),
                duration: Histogram::slow(),
                errors: Counter::default(),
            },
            patches: PatchMetrics::default(),
            is_handled: AtomicBool::new(false),
        }
    }
}

/// The metrics of the streams of one resource.
#[derive(Debug)]
pub struct WatchMetrics {
    pub(super) records: [Counter; RECORDS.len()],
    pub(super) ends: [Counter; ENDS.len()],
    /// Bytes of the bodies of watches and listings.
    pub bytes: Counter,
    pub(super) lists: Counter,
    pub(super) list_duration: Histogram,
}

/// The reason why a connection of a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// By the server, or by us after the timeout of the settings.
    Closed,
    /// No data has arrived for too long.
    Silent,
    /// The connection has failed.
    Broken,
    /// The server has rejected it.
    Rejected,
    /// The version is too old.
    Gone,
}

impl WatchMetrics {
    /// Counts a record of an object.
    pub fn on_record(&self, kind: EventType) {
        self.records[match kind {
            EventType::Listed => 0,
            EventType::Added => 1,
            EventType::Modified => 2,
            EventType::Deleted => 3,
        }]
        .increment();
    }

    /// Counts a bookmark.
    pub fn on_bookmark(&self) {
        self.records[RECORDS.len() - 1].increment();
    }

    /// Counts the end of a connection.
    pub fn on_end(&self, end: ConnectionEnd) {
        self.ends[end as usize].increment();
    }

    /// Counts a complete listing, which took so many seconds.
    pub fn on_list(&self, seconds: f64) {
        self.lists.increment();
        self.list_duration.observe(seconds);
    }
}

/// The metrics of the cycles of one resource's objects.
#[derive(Debug)]
pub struct CycleMetrics {
    pub(super) queue_duration: Histogram,
    /// Seconds from the arrival of an event to the first call of a handler.
    pub reaction: Histogram,
    pub(super) ended: [Counter; REASONS.len()],
    pub(super) duration: Histogram,
    /// Unexpected errors.
    pub errors: Counter,
}

/// A cycle that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedCycle {
    /// The reason to act; none if no change handler matches.
    pub reason: Option<Reason>,
    /// Whether the object was deleted.
    pub is_deleted: bool,
    /// Seconds that its event has waited for it; none if it was not an event.
    pub waited: Option<f64>,
    /// Seconds from its start to its last write; none if it has called and written nothing.
    pub duration: Option<f64>,
}

impl CycleMetrics {
    /// Counts a cycle.
    pub fn on_end(&self, cycle: EndedCycle) {
        let number = match cycle.reason {
            Some(Reason::Create) => 0,
            Some(Reason::Update) => 1,
            Some(Reason::Delete) => 2,
            Some(Reason::Resume) => 3,
            Some(Reason::Free) => 5,
            Some(Reason::Gone) => 6,
            None if cycle.is_deleted => 6,
            Some(Reason::Noop) | None => 4,
        };
        self.ended[number].increment();
        if let Some(duration) = cycle.duration {
            self.duration.observe(duration);
            if let Some(waited) = cycle.waited {
                self.queue_duration.observe(waited);
            }
        }
    }
}

/// The metrics of the patches of one resource's objects.
#[derive(Debug, Default)]
pub struct PatchMetrics {
    pub(super) results: [[Counter; RESULTS.len()]; PARTS.len()],
    /// Bytes of the bodies that were sent.
    pub bytes: Counter,
    /// Parts that were dropped since the server has rejected them.
    pub dropped: Counter,
    /// Objects whose annotations of the operator another client has removed.
    pub strips: Counter,
}

/// The kind of a request by which an object is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchPart {
    /// A merge patch of the body.
    Body,
    /// A merge patch of the status.
    Status,
    /// A JSON patch.
    Json,
}

impl PatchPart {
    /// The kind of a request with this URL and content type.
    pub fn of(url: &str, content_type: Option<&str>) -> Self {
        let path = url.split('?').next().unwrap_or_default();
        match content_type {
            Some("application/json-patch+json") => Self::Json,
            _ if path.ends_with("/status") => Self::Status,
            _ => Self::Body,
        }
    }
}

impl PatchMetrics {
    /// Counts an attempt to patch an object, by the status of its response or by its failure. Those that the server has accepted
    /// are counted when it is known whether they have changed anything: see [`Self::on_accepted`]. Those whose JSON patch it cannot
    /// process are counted when the reason is known: see [`Self::on_rejection`].
    pub fn on_attempt(&self, part: PatchPart, result: Result<u16, &RequestError>) {
        let result = match result {
            Ok(200..300) => return,
            Ok(UNPROCESSABLE) if part == PatchPart::Json => return,
            Ok(409) => 2,
            Ok(404) => 4,
            Ok(_) | Err(RequestError::Api(_)) => 3,
            Err(RequestError::Fenced) => 6,
            Err(_) => 5,
        };
        self.results[part as usize][result].increment();
    }

    /// Counts an attempt whose JSON patch the server cannot process. `is_unfit`: its operations do not fit the object, as they were
    /// computed for an earlier state.
    pub fn on_rejection(&self, part: PatchPart, status: u16, is_unfit: bool) {
        if part == PatchPart::Json && status == UNPROCESSABLE {
            self.results[part as usize][if is_unfit { 2 } else { 3 }].increment();
        }
    }

    /// Counts so many attempts that the server has accepted, and by which the object has changed or not.
    pub fn on_accepted(&self, part: PatchPart, count: usize, is_noop: bool) {
        self.results[part as usize][usize::from(is_noop)].add(count);
    }
}

/// The accepted patches of one write. If the write is cancelled, they count as applied.
pub struct AcceptedPatches<'a> {
    metrics: Option<&'a PatchMetrics>,
    counts: [usize; PARTS.len()],
    is_noop: bool,
}

impl<'a> AcceptedPatches<'a> {
    /// None yet. Without metrics, they are not counted.
    pub fn new(metrics: Option<&'a PatchMetrics>) -> Self {
        Self { metrics, counts: Default::default(), is_noop: false }
    }

    /// Adds one.
    pub fn add(&mut self, part: PatchPart) {
        self.counts[part as usize] += 1;
    }

    /// Counts all of them. If the object has still the version from before the write, they have changed nothing.
    pub fn count(mut self, is_noop: bool) {
        self.is_noop = is_noop;
    }
}

impl Drop for AcceptedPatches<'_> {
    fn drop(&mut self) {
        let Some(metrics) = self.metrics else { return };
        for (part, count) in
            [PatchPart::Body, PatchPart::Status, PatchPart::Json].into_iter().zip(self.counts)
        {
            if count > 0 {
                metrics.on_accepted(part, count, self.is_noop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_count_by_their_part_and_their_result() {
        let patches = PatchMetrics::default();
        let merge = Some("application/merge-patch+json");
        let body = PatchPart::of("/api/v1/pods/a?x=/status", merge);
        let status = PatchPart::of("/api/v1/pods/a/status?x=y", merge);
        let json = PatchPart::of("/api/v1/pods/a/status", Some("application/json-patch+json"));
        patches.on_attempt(body, Ok(200));
        patches.on_attempt(status, Ok(409));
        for is_unfit in [true, true, false] {
            patches.on_attempt(json, Ok(422));
            patches.on_rejection(json, 422, is_unfit);
        }
        patches.on_attempt(status, Ok(422));
        patches.on_rejection(status, 422, false);
        patches.on_rejection(json, 409, false);
        patches.on_attempt(body, Ok(404));
        patches.on_attempt(body, Err(&RequestError::Timeout));
        patches.on_attempt(body, Err(&RequestError::Fenced));
        assert_eq!(counts(&patches), [[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0, 0, 2, 1, 0, 0, 0]]);
    }

    fn counts(patches: &PatchMetrics) -> Vec<Vec<u64>> {
        patches.results.iter().map(|row| row.iter().map(Counter::get).collect()).collect()
    }

    #[test]
    fn the_accepted_patches_of_a_write_are_applied_unless_it_has_changed_nothing() {
        let patches = PatchMetrics::default();
        for is_noop in [Some(true), Some(false), None] {
            let mut accepted = AcceptedPatches::new(Some(&patches));
            accepted.add(PatchPart::Status);
            accepted.add(PatchPart::Body);
            accepted.add(PatchPart::Body);
            if let Some(is_noop) = is_noop {
                accepted.count(is_noop);
            }
            // Otherwise, it is cancelled.
        }
        assert_eq!(counts(&patches), [[4, 2, 0, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn a_cycle_without_calls_and_writes_has_no_duration() {
        let metrics = ResourceMetrics::default().cycles;
        let noop = EndedCycle { reason: None, is_deleted: false, waited: Some(1.0), duration: None };
        metrics.on_end(noop);
        metrics.on_end(EndedCycle { is_deleted: true, ..noop });
        metrics.on_end(EndedCycle { reason: Some(Reason::Create), duration: Some(2.0), ..noop });
        let ended: Vec<u64> = metrics.ended.iter().map(Counter::get).collect();
        assert_eq!(ended, [1, 0, 0, 0, 1, 0, 1]);
        assert_eq!((metrics.duration.count(), metrics.queue_duration.count()), (1, 1));
    }
}
