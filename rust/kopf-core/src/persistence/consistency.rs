//! Consistency: waiting for the watch event caused by our own patch.
//!
//! After a patch, change handlers wait for the `resourceVersion` of the response: until then, watch events can carry states
//! from before the patch. Resource versions of one object are increasing numbers, as all API servers generate them.
//! Versions that are not numbers are compared only for equality.

use crate::time::Timestamp;

/// The version that an object's worker waits for after its last patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consistency {
    expected: Option<Expectation>,
    is_deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expectation {
    /// The version of our patch; `None` if no later state has it: the patch deletes the object, or its version is unknown.
    version: Option<Box<str>>,
    /// The last known version of our patches; `None` if there is none.
    known: Option<Box<str>>,
    until: Timestamp,
}

/// The age of a received state, compared with our last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAge {
    /// It contains all our writes, or the wait for them has timed out.
    Consistent,
    /// It may be from before our last write.
    Unknown,
    /// It is from before our last write: its fields confirm nothing.
    Outdated,
}

impl ViewAge {
    /// Whether no own write is pending.
    pub fn is_consistent(self) -> bool {
        self == Self::Consistent
    }
}

/// The relevant parts of the API server's response to a patch.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The `resourceVersion` of the object in the response.
    pub version: &'a str,
    /// The object has a deletion timestamp and no finalizers: this patch deletes it.
    pub vanishing: bool,
}

/// Whether the state with `version` contains the patch of `expected`: it is that version or a later one. Intermediate
/// states can be skipped, so the exact version may never arrive. Only numbers are ordered.
pub fn contains(expected: &str, version: &str) -> bool {
    version == expected || is_lower(expected, version)
}

/// Whether `version` is lower than `other`. Only numbers are ordered.
pub fn is_lower(version: &str, other: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(version) && is_number(other) && (version.len(), version) < (other.len(), other)
}

impl Consistency {
    /// Records a received version; ends the wait if it contains our patch.
    pub fn observe(&mut self, version: Option<&str>) {
        if let (Some(expected), Some(version)) = (&self.expected, version)
            && expected.version.as_deref().is_some_and(|expected| contains(expected, version))
        {
            self.expected = None;
        }
    }

    /// Starts the wait after a patch that was made for the state with version `observed`. `timeout` is in seconds; zero or less
    /// disables it.
    pub fn record_write(
        &mut self,
        written: Written<'_>,
        observed: Option<&str>,
        timeout: f64,
        now: Timestamp,
    ) {
        if timeout <= 0.0 {
            return;
        }
        // The patch changed nothing: it causes no watch event.
        if !written.vanishing && observed == Some(written.version) {
            return;
        }
        let version: Option<Box<str>> = (!written.vanishing).then(|| written.version.into());
        self.expected = Some(Expectation { known: version.clone(), version, until: now.plus(timeout) });
    }

    /// Waits for the whole timeout, in seconds, because no received state can be trusted until then: the response to a
    /// patch was lost and the patch may have been applied, or the server has not found the object.
    pub fn mark_unknown(&mut self, timeout: f64, now: Timestamp) {
        if timeout <= 0.0 {
            return;
        }
        // The patches before it are still known.
        let known = self.expected.take().and_then(|expected| expected.known);
        self.expected = Some(Expectation { version: None, known, until: now.plus(timeout) });
    }

    /// Trusts no received state any more, not even after the timeout: the object was deleted, and its deletion event is still to
    /// arrive.
    pub fn mark_deleted(&mut self) {
        self.is_deleted = true;
    }

    /// Whether the object is known to be deleted.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Whether the state with this version is known to be from before one of our patches.
    pub fn is_older(&self, version: Option<&str>) -> bool {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let expected = self.expected.as_ref().and_then(|expected| expected.known.as_deref());
        let expected = expected.filter(|expected| is_number(expected));
        expected
            .zip(version)
            .is_some_and(|(expected, version)| is_number(version) && !contains(expected, version))
    }

    /// The end of the wait; `None` if there is nothing to wait for.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expected.as_ref().map(|expected| expected.until)
    }

    /// Whether the latest state contains all our patches, or the timeout has passed.
    pub fn is_reached(&self, now: Timestamp) -> bool {
        !self.is_deleted && self.expected.as_ref().is_none_or(|expected| now >= expected.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn after_write(version: &str, vanishing: bool, observed: &str, timeout: f64) -> Consistency {
        let mut consistency = Consistency::default();
        consistency.record_write(Written { version, vanishing }, Some(observed), timeout, at(0.0));
        consistency
    }

    // contract: engine 2.6
    #[test]
    fn the_watch_event_of_our_patch_is_awaited() {
        let mut consistency = after_write("102", false, "101", 5.0);
        assert!(!consistency.is_reached(at(1.0)));
        consistency.observe(Some("99"));
        assert!(!consistency.is_reached(at(1.0)));
        assert!(consistency.is_older(Some("101")) && !consistency.is_older(Some("102")));
        consistency.observe(Some("102"));
        assert!(consistency.is_reached(at(1.0)) && !consistency.is_older(Some("101")));
    }

    #[test]
    fn a_later_version_contains_the_patch_too() {
        let mut consistency = after_write("99", false, "98", 5.0);
        consistency.observe(Some("100"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn versions_that_are_not_numbers_are_compared_for_equality() {
        let mut consistency = after_write("b", false, "a", 5.0);
        consistency.observe(Some("c"));
        assert!(!consistency.is_reached(at(1.0)));
        consistency.observe(Some("b"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn the_wait_ends_with_the_timeout() {
        let consistency = after_write("102", false, "101", 5.0);
        assert_eq!(consistency.deadline(), Some(at(5.0)));
        assert!(consistency.is_reached(at(5.0)));
    }

    // contract: engine 2.6, observed 2
    #[test]
    fn a_patch_that_changed_nothing_is_not_awaited() {
        assert!(after_write("101", false, "101", 5.0).is_reached(at(0.0)));
    }

    // contract: engine 2.6
    #[test]
    fn the_version_of_a_vanishing_object_never_arrives() {
        let mut consistency = after_write("102", true, "101", 5.0);
        consistency.observe(Some("102"));
        assert!(!consistency.is_reached(at(0.0)));
        assert!(!consistency.is_older(Some("101")), "unknown");
    }

    #[test]
    fn after_a_patch_with_unknown_result_no_state_is_trusted_until_the_timeout() {
        let mut consistency = Consistency::default();
        consistency.mark_unknown(5.0, at(0.0));
        consistency.observe(Some("102"));
        assert!(!consistency.is_reached(at(4.0)));
        assert!(consistency.is_reached(at(5.0)));
        let mut consistency = Consistency::default();
        consistency.mark_unknown(0.0, at(0.0));
        assert!(consistency.is_reached(at(0.0)));
    }

    #[test]
    fn states_from_before_the_last_known_patch_are_older_even_if_a_later_result_is_unknown() {
        let mut consistency = after_write("102", false, "101", 5.0);
        consistency.mark_unknown(5.0, at(1.0));
        assert!(consistency.is_older(Some("101")) && !consistency.is_older(Some("102")));
        consistency.observe(Some("102"));
        assert!(!consistency.is_reached(at(5.0)), "it is not the unknown one");
    }

    #[test]
    fn no_state_of_a_deleted_object_is_trusted() {
        let mut consistency = after_write("102", false, "101", 5.0);
        consistency.mark_deleted();
        consistency.observe(Some("103"));
        assert!(
            consistency.is_deleted()
                && !consistency.is_reached(at(1.0))
                && !consistency.is_reached(at(100.0))
        );
    }

    // contract: engine 2.6
    #[test]
    fn the_wait_can_be_disabled() {
        assert!(after_write("102", false, "101", 0.0).is_reached(at(0.0)));
    }
}
