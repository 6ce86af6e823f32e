//! Rejected patches: the parts of patches that the API server rejects, kept in memory and sent again with exponential
//! back-off.
//!
//! They are sent separately from progress and finalizers, so that a rejection does not block those.

use crate::backoff::Backoff;
use crate::json::merge_patch::{Patch, subtract};
use crate::json::value::{Map, Value};
use crate::time::Timestamp;

/// The delays between the attempts: 1, 2, 4, 8, ..., 600 seconds.
const RETRIES: Backoff = Backoff::doubling(1.0, 600.0);

/// The parts of patches for one object that the API server rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedPatch {
    patch: Map<String, Value>,
    /// Consecutive rejections.
    rejections: u32,
    /// The time of the next attempt; `None` if there is nothing to send.
    due: Option<Timestamp>,
}

impl RejectedPatch {
    /// The merge patch.
    pub fn patch(&self) -> &Map<String, Value> {
        &self.patch
    }

    /// The time of the next attempt; `None` if there is nothing to send.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Removes the fields that a newer patch has written: the older values must not replace them.
    pub fn remove(&mut self, written: &Map<String, Value>) {
        if !self.patch.is_empty() && !written.is_empty() {
            let patch = std::mem::take(&mut self.patch);
            self.set(subtract(patch, written));
        }
    }

    /// Keeps only these fields: the object already has all others.
    pub fn retain(&mut self, missing: Map<String, Value>) {
        if missing != self.patch {
            self.set(missing);
        }
    }

    /// Adds a rejected patch. Returns the seconds until the next attempt.
    pub fn reject(&mut self, rejected: Map<String, Value>, now: Timestamp) -> f64 {
        let mut patch = Patch(std::mem::take(&mut self.patch));
        patch.merge(rejected);
        self.patch = patch.0;
        let delay = RETRIES.step(self.rejections).unwrap_or_default();
        self.rejections = self.rejections.saturating_add(1);
        self.due = Some(now.plus(delay));
        delay
    }

    fn set(&mut self, patch: Map<String, Value>) {
        if patch.is_empty() {
            *self = Self::default();
        } else {
            self.patch = patch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value}") };
        map
    }

    #[test]
    fn delays_grow_up_to_ten_minutes() {
        let mut rejected = RejectedPatch::default();
        let now = Timestamp::from_micros(0);
        let patch = map(json!({"status": {"a": 1}}));
        let pauses: Vec<f64> = (0..12).map(|_| rejected.reject(patch.clone(), now)).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 600.0, 600.0]);
        assert_eq!(rejected.due(), Some(now.plus(600.0)));
    }

    #[test]
    fn newer_values_replace_older_ones() {
        let mut rejected = RejectedPatch::default();
        let now = Timestamp::from_micros(0);
        rejected.reject(map(json!({"status": {"a": 1, "b": 1}})), now);
        rejected.reject(map(json!({"status": {"a": 2}})), now);
        assert_eq!(rejected.patch(), &map(json!({"status": {"a": 2, "b": 1}})));
        rejected.remove(&map(json!({"status": {"a": 3}, "metadata": {}})));
        assert_eq!(rejected.patch(), &map(json!({"status": {"b": 1}})));
        assert!(rejected.due().is_some());
        rejected.remove(&map(json!({"status": {"b": 3}})));
        assert_eq!(rejected, RejectedPatch::default());
    }

    #[test]
    fn fields_that_the_object_already_has_are_not_sent() {
        let mut rejected = RejectedPatch::default();
        rejected.reject(map(json!({"status": {"a": 1, "b": 1}})), Timestamp::from_micros(0));
        rejected.retain(map(json!({"status": {"b": 1}})));
        assert_eq!(rejected.patch(), &map(json!({"status": {"b": 1}})));
        rejected.retain(Map::new());
        assert_eq!(rejected, RejectedPatch::default());
    }
}
