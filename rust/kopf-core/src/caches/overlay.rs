//! Read-your-writes: the responses to own writes, shown until the watch has delivered them (W1–W6).

use crate::persistence::consistency::contains;
use crate::time::Timestamp;

/// The number of a list, in the order in which lists start and responses arrive, across both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u64);

/// A state of an object, with its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<T> {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub version: Box<str>,
    /// The body.
    pub body: T,
}

/// The response to an own write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResponse<T> {
    /// The object in the response: also one that is marked for deletion (W4).
    Written(Version<T>),
    /// The object with this uid is gone (W4).
    Gone(Box<str>),
    /// A dry run, or a rejected write (W6).
    Without,
    /// The response is lost: the write may have been executed (W6).
    Uncertain,
}

/// One object of a cache: its newest delivered state, and the responses to own writes that are newer.
///
/// Resource versions are compared as numbers; if they are not numbers, only their equality counts, and lists. The response to a
/// deletion has no version: if own writes and deletions of one object overlap, the later response counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedObject<T> {
    /// The newest state that the stream has delivered.
    delivered: Option<Version<T>>,
    overlay: Option<Overlay<T>>,
    /// The number of writes whose response has not arrived.
    writes: u32,
    /// The versions and deletions that were delivered during a write (W3).
    seen: Vec<Seen>,
    /// Until then, or until a later list, the result of a write is unknown (W6).
    uncertain: Option<Wait>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Version(Box<str>),
    Deletion(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlay<T> {
    state: Shown<T>,
    wait: Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown<T> {
    Present(Version<T>),
    /// `is_delivered` is whether the stream has delivered a state of this uid: then other uids are later objects.
    Absent {
        uid: Box<str>,
        is_delivered: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    until: Timestamp,
    /// Lists with a greater number have started after the response.
    after: ListId,
}

impl<T> Default for CachedObject<T> {
    fn default() -> Self {
        Self { delivered: None, overlay: None, writes: 0, seen: Vec::new(), uncertain: None }
    }
}

impl<T> CachedObject<T> {
    /// The state that readers see: the overlay, else the delivered state.
    pub fn read(&self) -> Option<&Version<T>> {
        match &self.overlay {
            Some(Overlay { state: Shown::Present(state), .. }) => Some(state),
            Some(Overlay { state: Shown::Absent { .. }, .. }) => None,
            None => self.delivered.as_ref(),
        }
    }

    /// The newest state that the stream has delivered.
    pub fn delivered(&self) -> Option<&Version<T>> {
        self.delivered.as_ref()
    }

    /// Records that a write is being sent.
    pub fn start_write(&mut self) {
        self.writes = self.writes.saturating_add(1);
    }

    /// Records the response to a write (W1, W3, W4, W6). `after` is the number of the last list that has started; `timeout` the
    /// consistency timeout in seconds.
    pub fn finish_write(&mut self, response: WriteResponse<T>, after: ListId, timeout: f64, now: Timestamp) {
        let wait = Wait { until: now.plus(timeout), after };
        match response {
            WriteResponse::Written(state) => {
                if !self.is_delivered(&state) && !self.is_superseded(&state) {
                    self.overlay = Some(Overlay { state: Shown::Present(state), wait });
                }
            }
            WriteResponse::Gone(uid) => {
                if !self.seen.contains(&Seen::Deletion(uid.clone())) {
                    let is_delivered = self.delivered.as_ref().is_some_and(|known| known.uid == uid);
                    self.overlay = Some(Overlay { state: Shown::Absent { uid, is_delivered }, wait });
                }
            }
            WriteResponse::Without => {}
            WriteResponse::Uncertain => self.uncertain = Some(wait),
        }
        self.writes = self.writes.saturating_sub(1);
        if self.writes == 0 {
            self.seen.clear();
        }
    }

    /// Records a state that the watch has delivered (W2).
    pub fn deliver(&mut self, state: Version<T>) {
        let is_reached = self.overlay.as_mut().is_some_and(|overlay| match &mut overlay.state {
            Shown::Present(shown) => contains(&shown.version, &state.version),
            Shown::Absent { uid, is_delivered } => {
                let is_other = *uid != state.uid;
                *is_delivered |= !is_other;
                is_other && *is_delivered
            }
        });
        if is_reached {
            self.overlay = None;
        }
        if self.writes > 0 {
            self.seen.push(Seen::Version(state.version.clone()));
            // A list may skip the deletion of the previous object of the name.
            if let Some(known) = self.delivered.as_ref().filter(|known| known.uid != state.uid) {
                self.seen.push(Seen::Deletion(known.uid.clone()));
            }
        }
        self.delivered = Some(state);
    }

    /// Records a deletion that the watch has delivered (W2).
    pub fn deliver_deletion(&mut self, uid: &str) {
        let is_reached = self.overlay.as_ref().is_some_and(|overlay| match &overlay.state {
            Shown::Present(shown) => *shown.uid == *uid,
            Shown::Absent { uid: shown, .. } => **shown == *uid,
        });
        if is_reached {
            self.overlay = None;
        }
        if self.writes > 0 {
            self.seen.push(Seen::Deletion(uid.into()));
        }
        self.delivered = None;
    }

    /// Records the state in a list, or the absence from it (W2). `list` is the number of the list, `version` its resource
    /// version.
    pub fn deliver_list(&mut self, state: Option<Version<T>>, list: ListId, version: &str) {
        let is_reached = self.overlay.as_ref().is_some_and(|overlay| {
            list > overlay.wait.after
                || matches!(&overlay.state, Shown::Present(shown) if contains(&shown.version, version))
        });
        if is_reached {
            self.overlay = None;
        }
        if self.writes > 0 {
            self.seen.push(Seen::Version(version.into()));
        }
        if self.uncertain.is_some_and(|wait| list > wait.after) {
            self.uncertain = None;
        }
        if let Some(state) = state {
            return self.deliver(state);
        }
        if self.writes > 0
            && let Some(gone) = self.delivered.as_ref()
        {
            self.seen.push(Seen::Deletion(gone.uid.clone()));
        }
        self.delivered = None;
    }

    /// Ends waits whose time is over (W2). Returns whether an overlay was removed: this is logged at debug.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        if self.uncertain.is_some_and(|wait| now >= wait.until) {
            self.uncertain = None;
        }
        let is_over = self.overlay.as_ref().is_some_and(|overlay| now >= overlay.wait.until);
        if is_over {
            self.overlay = None;
        }
        is_over
    }

    /// The end of the current wait; none if all own writes are visible (W5).
    pub fn deadline(&self) -> Option<Timestamp> {
        let overlay = self.overlay.as_ref().map(|overlay| overlay.wait.until);
        overlay.max(self.uncertain.map(|wait| wait.until))
    }

    /// Whether all own writes have ended, and are visible: only the delivered state is needed any more.
    pub fn is_settled(&self) -> bool {
        self.overlay.is_none() && self.writes == 0 && self.uncertain.is_none()
    }

    /// Whether the responses to all own writes have arrived, and the stream has delivered no state of the object.
    pub fn is_undelivered(&self) -> bool {
        self.delivered.is_none() && self.writes == 0 && self.uncertain.is_none()
    }

    /// Whether the stream has delivered this state or a later one, or the deletion of the object (W3). A write that changed
    /// nothing returns the delivered version.
    fn is_delivered(&self, state: &Version<T>) -> bool {
        let is_known = self.delivered.as_ref().is_some_and(|known| contains(&state.version, &known.version));
        is_known
            || self.seen.iter().any(|seen| match seen {
                Seen::Version(version) => contains(&state.version, version),
                Seen::Deletion(uid) => *uid == state.uid,
            })
    }

    /// Whether a later own write has been answered before.
    fn is_superseded(&self, state: &Version<T>) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| match &overlay.state {
            Shown::Present(shown) => contains(&state.version, &shown.version),
            Shown::Absent { uid, .. } => *uid == state.uid,
        })
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
