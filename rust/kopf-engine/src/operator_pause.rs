//! The pause of an operator: a set of named reasons, any of which keeps it paused.
//!
//! Components set and remove their reasons, and wait for pauses to begin and end. Pauses are counted, so that waiting
//! tasks do not miss a short one.

use std::collections::BTreeSet;

use tokio::sync::watch;

/// The reasons for the pause; the operator is paused while there are any.
#[derive(Debug)]
pub struct Pause {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    blockers: BTreeSet<String>,
    count: u64,
}

impl Default for Pause {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }
}

impl Pause {
    /// Sets or removes a reason.
    pub fn turn(&self, name: &str, on: bool) {
        self.state.send_if_modified(|state| {
            if !on {
                return state.blockers.remove(name);
            }
            state.count += u64::from(state.blockers.is_empty());
            state.blockers.insert(name.to_owned())
        });
    }

    /// Whether the operator is paused.
    pub fn is_on(&self) -> bool {
        !self.state.borrow().blockers.is_empty()
    }

    /// Whether this reason is set.
    pub fn has(&self, name: &str) -> bool {
        self.state.borrow().blockers.contains(name)
    }

    /// The reasons, sorted.
    pub fn blockers(&self) -> Vec<String> {
        self.state.borrow().blockers.iter().cloned().collect()
    }

    /// The number of pauses begun so far.
    pub fn count(&self) -> u64 {
        self.state.borrow().count
    }

    /// Waits for a pause. Returns at once if one has begun since there were `count` of them, even if it is over.
    pub async fn paused_since(&self, count: u64) {
        self.until(|state| !state.blockers.is_empty() || state.count != count).await;
    }

    /// Waits for the end of the pause.
    pub async fn over(&self) {
        self.until(|state| state.blockers.is_empty()).await;
    }

    async fn until(&self, condition: impl FnMut(&State) -> bool) {
        // It cannot fail, as the sender belongs to `self`.
        let _ = self.state.subscribe().wait_for(condition).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_operator_is_paused_until_the_last_reason_is_removed() {
        let pause = Pause::default();
        assert!(pause.over().now_or_never().is_some());
        pause.turn("b", true);
        pause.turn("a", true);
        pause.turn("b", true);
        assert_eq!(pause.blockers(), ["a", "b"]);
        pause.turn("b", false);
        assert!(pause.is_on() && pause.has("a") && !pause.has("b"));
        assert!(pause.over().now_or_never().is_none());
        pause.turn("a", false);
        assert!(pause.over().now_or_never().is_some());
    }

    #[test]
    fn a_pause_that_is_over_already_is_still_noticed() {
        let pause = Pause::default();
        let before = pause.count();
        assert!(pause.paused_since(before).now_or_never().is_none());
        pause.turn("a", true);
        pause.turn("a", false);
        assert!(!pause.is_on());
        assert!(pause.paused_since(before).now_or_never().is_some());
        assert!(pause.paused_since(pause.count()).now_or_never().is_none());
    }
}
