//! Own writes of the objects of a cache (W1–W6).

use std::sync::Arc;

use super::key::CacheKey;
use super::overlay::{ListId, WriteResponse};
use super::store::{ObjectStore, OwnWrite, StoredObject, versioned};
use crate::time::Timestamp;

impl ObjectStore {
    /// Records that a write of the object is being sent. The ticket identifies it.
    pub fn start_write(&mut self, key: CacheKey, ticket: u64) {
        let known = self.entry(&key).map(|entry| entry.state.clone());
        let write = self.writes.entry(Arc::new(key)).or_insert_with(|| {
            let mut write = OwnWrite::default();
            if let Some(state) = known {
                write.cached.deliver(versioned(state));
            }
            write
        });
        write.cached.start_write();
        write.tickets.push(ticket);
    }

    /// Records the response to a write (W1, W3, W4, W6). `timeout` is the consistency timeout in seconds.
    pub fn finish_write(
        &mut self,
        key: &CacheKey,
        response: WriteResponse<StoredObject>,
        timeout: f64,
        now: Timestamp,
    ) {
        let after = ListId(self.lists);
        if let Some(write) = self.writes.get_mut(key) {
            write.cached.finish_write(response, after, timeout, now);
            self.settle(key, now);
        }
    }

    /// Records that a creation is being sent for which the server makes the name.
    pub fn start_unnamed(&mut self) {
        self.unnamed += 1;
    }

    /// Records the response to such a creation.
    pub fn finish_unnamed(
        &mut self,
        created: Option<StoredObject>,
        ticket: u64,
        timeout: f64,
        now: Timestamp,
    ) {
        self.unnamed = self.unnamed.saturating_sub(1);
        let is_gone = |state: &StoredObject| self.gone.contains(state.object.uid().unwrap_or_default());
        let created = created.filter(|state| !is_gone(state));
        if self.unnamed == 0 {
            self.gone.clear();
        }
        let Some(state) = created else { return self.settled.push(ticket) };
        let key = CacheKey::of(&state.object);
        self.start_write(key.clone(), ticket);
        self.finish_write(&key, WriteResponse::Written(versioned(state)), timeout, now);
    }

    /// Ends the waits for own writes whose time is over (W2). Returns the objects whose overlays were removed by that.
    pub fn expire(&mut self, now: Timestamp) -> Vec<CacheKey> {
        let keys: Vec<_> = self.writes.keys().cloned().collect();
        let mut expired = Vec::new();
        for key in keys {
            let write = self.writes.get_mut(&key);
            // Without a ticket, the event of the write is not expected.
            if write.is_some_and(|write| write.cached.expire(now) && !write.tickets.is_empty()) {
                expired.push((*key).clone());
            }
            self.settle(&key, now);
        }
        expired
    }

    /// The time of the next [`ObjectStore::expire`]; none if there are no such waits.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.writes.values().filter_map(|write| write.cached.deadline()).min()
    }

    /// Takes the tickets of the writes that have ended, and that are visible if they were accepted.
    pub fn take_settled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.settled)
    }
}
