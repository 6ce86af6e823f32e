//! The oracle: observes the starts and ends of cycles, and the notifications of the host.

/// The observations so far.
#[derive(Clone, Debug, Default, Hash)]
pub struct Oracle {
    /// The first violation of a law.
    pub violation: Option<String>,
    /// The number of cycles in progress.
    running: u8,
    /// The newest version that a cycle was started for, and has not failed.
    pub handled: u8,
    /// How many slots were made, and how often the host was notified of the end of an object.
    slots: u8,
    forgotten: u8,
}

impl Oracle {
    /// A law is violated.
    pub fn violate(&mut self, text: &str) {
        self.violation.get_or_insert_with(|| text.to_owned());
    }

    /// A slot is made for an object without one.
    pub fn made(&mut self) {
        self.slots += 1;
    }

    /// The host is notified of the end of the object.
    pub fn forgot(&mut self) {
        self.forgotten += 1;
        if self.forgotten > self.slots {
            self.violate("the host is notified twice of the end of an object");
        }
    }

    /// A cycle starts.
    pub fn started(&mut self, is_gate_open: bool, is_allowed: bool) {
        self.running += 1;
        if self.running > 1 {
            self.violate("two cycles of the object are in progress");
        }
        if !is_gate_open {
            self.violate("a cycle starts while the index gate is closed");
        }
        if !is_allowed {
            self.violate("a cycle starts during a pause");
        }
    }

    /// A cycle ends that was about this version; `is_handled` if it has not failed.
    pub fn ended(&mut self, version: u8, is_handled: bool) {
        self.running = self.running.saturating_sub(1);
        if is_handled {
            self.handled = self.handled.max(version);
        }
    }

    /// Checks the laws of an idle state: `expected` is the version that must be handled, if any.
    pub fn check_idle(&mut self, has_slot: bool, expected: Option<u8>) {
        if self.running > 0 {
            self.violate("a cycle has not ended");
        }
        if expected.is_some_and(|expected| self.handled < expected) {
            self.violate("the latest state is not handled");
        }
        if has_slot && expected.is_none() {
            self.violate("a removed object has a slot");
        }
        if self.slots != self.forgotten + u8::from(has_slot) {
            self.violate("the host is not notified of the end of an object, or too early");
        }
    }
}
