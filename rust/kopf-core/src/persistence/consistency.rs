//! Waiting for our own write to come back.
//!
//! After a patch, the change handlers wait for the version that the server answered with: until then, events tell of
//! states before the write. Versions of one object are numbers that grow, as all API servers make them; any others are
//! compared for equality.

use crate::time::Timestamp;

/// What an object's worker remembers of its own last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consistency {
    expected: Option<Expectation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expectation {
    version: Box<str>,
    until: Timestamp,
}

/// What the server answered to a patch.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The version of the object after it.
    pub version: &'a str,
    /// The object has a deletion timestamp and no finalizers: it vanishes with this very write.
    pub vanishing: bool,
}

/// The version to expect after a write: of a vanishing object there will be none, only its deletion.
pub fn expected_version(written: Written<'_>) -> Box<str> {
    if written.vanishing {
        return format!("{}~which~never~arrives", written.version).into_boxed_str();
    }
    written.version.into()
}

/// Whether the state of `version` contains the write of `expected`: it is that very state, or a later one. States between
/// two cycles may have been skipped, so the very state need not come. Only numbers have an order.
pub fn contains(expected: &str, version: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let later = || (version.len(), version) >= (expected.len(), expected);
    version == expected || (is_number(version) && is_number(expected) && later())
}

impl Consistency {
    /// A state of the object has arrived.
    pub fn seen(&mut self, version: Option<&str>) {
        if let (Some(expected), Some(version)) = (&self.expected, version)
            && contains(&expected.version, version)
        {
            self.expected = None;
        }
    }

    /// A patch was made for the state of version `seen`.
    pub fn record_write(&mut self, written: Written<'_>, seen: Option<&str>, timeout: f64, now: Timestamp) {
        // Tracking is switched off.
        if timeout <= 0.0 {
            return;
        }
        // The patch changed nothing: there will be no event of it, and all is already seen.
        if !written.vanishing && seen == Some(written.version) {
            return;
        }
        self.expected = Some(Expectation { version: expected_version(written), until: now.plus(timeout) });
    }

    /// Nobody knows what the states that come in the next time are worth: a patch may have been applied with only its
    /// answer lost, or the object does not exist any more, and that is still to be told.
    pub fn mark_unknown(&mut self, timeout: f64, now: Timestamp) {
        self.record_write(Written { version: "", vanishing: true }, None, timeout, now);
    }

    /// Until when to wait; none if there is nothing to wait for.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.expected.as_ref().map(|expected| expected.until)
    }

    /// Whether the latest state contains all that we wrote, or must be taken as if it did.
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
    fn the_own_write_is_awaited() {
        let mut consistency = after_write("102", false, "101", 5.0);
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("99"));
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("102"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn a_later_state_contains_the_write_too() {
        let mut consistency = after_write("99", false, "98", 5.0);
        consistency.seen(Some("100"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn versions_that_are_not_numbers_have_no_order() {
        let mut consistency = after_write("b", false, "a", 5.0);
        consistency.seen(Some("c"));
        assert!(!consistency.is_reached(at(1.0)));
        consistency.seen(Some("b"));
        assert!(consistency.is_reached(at(1.0)));
    }

    #[test]
    fn but_not_forever() {
        let consistency = after_write("102", false, "101", 5.0);
        assert_eq!(consistency.deadline(), Some(at(5.0)));
        assert!(consistency.is_reached(at(5.0)));
    }

    #[test]
    fn a_write_that_changed_nothing_is_not_awaited() {
        assert!(after_write("101", false, "101", 5.0).is_reached(at(0.0)));
    }

    #[test]
    fn a_vanishing_object_never_comes_back() {
        let mut consistency = after_write("102", true, "101", 5.0);
        consistency.seen(Some("102"));
        assert!(!consistency.is_reached(at(0.0)));
        assert_eq!(&*expected_version(Written { version: "7", vanishing: true }), "7~which~never~arrives");
    }

    #[test]
    fn after_a_write_of_unknown_fate_no_state_is_trusted_for_a_while() {
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
    fn tracking_can_be_switched_off() {
        assert!(after_write("102", false, "101", 0.0).is_reached(at(0.0)));
    }
}
