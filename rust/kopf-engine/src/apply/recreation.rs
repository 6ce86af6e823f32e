//! Deleting an object, so that it can be created again.

use std::time::Duration;

use kopf_core::json::value::Value;

use super::Run;
use super::requests::Target;
use crate::user_client::CallError;

/// How long the deletion of an object is awaited. Afterwards, a later call continues.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The delay before the object is read for the first time; it is doubled up to the maximum.
const DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Deletes the object with its dependents, and waits for that. Returns whether it is gone.
    pub(super) async fn replaced(&self, target: Target<'_>, live: &Value) -> Result<bool, CallError> {
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        if !self.requests.delete(target, uid, "Foreground").await? {
            return Ok(true);
        }
        let clock = self.requests.clock();
        let deadline = clock.now().plus(TIMEOUT.as_secs_f64());
        let mut delay = DELAY;
        while clock.now() < deadline {
            clock.sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            let found = self.requests.find(target, true).await?;
            let found_uid =
                found.as_ref().and_then(|found| found.pointer("/metadata/uid")).and_then(Value::as_str);
            if found_uid != Some(uid) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
