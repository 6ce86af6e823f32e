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
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expectation {
    version: Box<str>,
    until: Timestamp,
}

/// The relevant parts of the API server's response to a patch.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The `resourceVersion` of the object in the response.
    pub version: &'a str,
    /// The object has a deletion timestamp and no finalizers: this patch deletes it.
    pub vanishing: bool,
}

/// The version to wait for after a patch. An object that the patch deletes has no later version, only the deletion event;
/// so its expected version never arrives.
pub fn expected_version(written: Written<'_>) -> Box<str> {
    if written.vanishing {
        return format!("{}~which~never~arrives", written.version).into_boxed_str();
    }
    written.version.into()
}

/// Whether the state with `version` contains the patch of `expected`: it is that version or a later one. Intermediate
/// states can be skipped, so the exact version may never arrive. Only numbers are ordered.
pub fn contains(expected: &str, version: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let later = || (version.len(), version) >= (expected.len(), expected);
    version == expected || (is_number(version) && is_number(expected) && later())
}

impl Consistency {
    /// Records a received version; ends the wait if it contains our patch.
    pub fn seen(&mut self, version: Option<&str>) {
        if let (Some(expected), Some(version)) = (&self.expected, version)
            && contains(&expected.version, version)
        {
            self.expected = None;
        }
    }

    /// Starts the wait after a patch that was made for the state with version `seen`. `timeout` is in seconds; zero or less
    /// disables it.
    pub fn record_write(&mut self, written: Written<'_>, seen: Option<&str>, timeout: f64, now: Timestamp) {
        if timeout <= 0.0 {
            return;
        }
        // The patch changed nothing: it causes no watch event.
        if !written.vanishing && seen == Some(written.version) {
            return;
        }
        self.expected = Some(Expectation { version: expected_version(written), until: now.plus(timeout) });
    }

    /// Waits for the whole timeout, in seconds, because no received state can be trusted until then: the response to a
    /// patch was lost and the patch may have been applied, or the object no longer exists and its deletion event is still
    /// to arrive.
    pub fn mark_unknown(&mut self, timeout: f64, now: Timestamp) {
        self.record_write(Written { version: "", vanishing: true }, None, timeout, now);
    }

    /// The end of the wait; `None` if there is nothing to wait for.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expected.as_ref().map(|expected| expected.until)
    }

    /// Whether the latest state contains all our patches, or the timeout has passed.
    pub fn is_reached(&self, now: Timestamp) -> bool {
        self.expected.as_ref().is_none_or(|expected| now >= expected.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn after_write(version: &str, vanishing: bool, seen: &str, timeout: f64) -> Consistency {
        let mut consistency = Consistency::default();
        consistency.record_write(Written { version, vanishing }, Some(seen), timeout, at(0.0));
        consistency
    }

    #[test]
    fn the_watch_event_of_our_patch_is_awaited() {
        let mut consistency = after_write("102", false, "101", 5.0);
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("99"));
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("102"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn a_later_version_contains_the_patch_too() {
        let mut consistency = after_write("99", false, "98", 5.0);
        consistency.seen(Some("100"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn versions_that_are_not_numbers_are_compared_for_equality() {
        let mut consistency = after_write("b", false, "a", 5.0);
        consistency.seen(Some("c"));
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("b"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn the_wait_ends_with_the_timeout() {
        let consistency = after_write("102", false, "101", 5.0);
        assert_eq!(consistency.deadline(), Some(at(5.0)));
        assert!(consistency.is_reached(at(5.0)));
    }

    #[test]
    fn a_patch_that_changed_nothing_is_not_awaited() {
        assert!(after_write("101", false, "101", 5.0).is_reached(at(0.0)));
    }

    #[test]
    fn the_version_of_a_vanishing_object_never_arrives() {
        let mut consistency = after_write("102", true, "101", 5.0);
        consistency.seen(Some("102"));
        assert!(!consistency.is_reached(at(0.0)));
        assert_eq!(&*expected_version(Written { version: "7", vanishing: true }), "7~which~never~arrives");
    }

    #[test]
    fn after_a_patch_with_unknown_result_no_state_is_trusted_until_the_timeout() {
        let mut consistency = Consistency::default();
        consistency.mark_unknown(5.0, at(0.0));
        consistency.seen(Some("102"));
        assert!(!consistency.is_reached(at(4.0)));
        assert!(consistency.is_reached(at(5.0)));
        let mut consistency = Consistency::default();
        consistency.mark_unknown(0.0, at(0.0));
        assert!(consistency.is_reached(at(0.0)));
    }

    #[test]
    fn the_wait_can_be_disabled() {
        assert!(after_write("102", false, "101", 0.0).is_reached(at(0.0)));
    }
}
