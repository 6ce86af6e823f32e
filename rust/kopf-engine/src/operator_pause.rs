//! The pause of an operator: a set of named reasons, any of which keeps it paused.
//!
//! Components set and remove their reasons, and wait for pauses to begin and end. Pauses are counted, so that waiting
//! tasks do not miss a short one.
//!
//! A replica that does not lead is paused by the reason [`STANDBY`]. A warm one keeps its streams: see [`Pause::holds_streams`].

use std::collections::BTreeSet;

use tokio::sync::watch;

/// The reason of a replica that does not lead.
pub const STANDBY: &str = "this replica is not the leader";

/// The reasons for the pause; the operator is paused while there are any.
#[derive(Debug)]
pub struct Pause {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    blockers: BTreeSet<String>,
    count: u64,
    /// How often the replica has become the leader.
    terms: u64,
    /// A standby keeps its streams.
    is_warm: bool,
}

/// The state of a pause at one moment.
#[derive(Clone, Copy, Debug)]
pub struct PauseSnapshot {
    /// The operator is paused.
    pub is_on: bool,
    /// The replica does not lead.
    pub is_standby: bool,
    /// The number of pauses begun so far, and of terms.
    pub count: u64,
}

impl State {
    fn holds_streams(&self) -> bool {
        let is_ignored = |blocker: &String| self.is_warm && blocker == STANDBY;
        !self.blockers.iter().all(is_ignored)
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::default()) }
    }
}

impl Pause {
    /// The replica does not lead from now on. If it is `warm`, its streams go on.
    pub fn stand_by(&self, is_warm: bool) {
        self.state.send_modify(|state| {
            state.is_warm = is_warm;
            // The end is counted: the streams begin again then, not now.
            state.blockers.insert(STANDBY.to_owned());
        });
    }

    /// The replica leads from now on. Its streams begin with new listings: those from before may not contain the last writes of
    /// the previous leader.
    pub fn lead(&self) {
        self.state.send_if_modified(|state| {
            let is_changed = state.blockers.remove(STANDBY);
            state.count += u64::from(is_changed);
            state.terms += u64::from(is_changed);
            is_changed
        });
    }

    /// The state of the pause now.
    pub fn snapshot(&self) -> PauseSnapshot {
        let state = self.state.borrow();
        PauseSnapshot {
            is_on: !state.blockers.is_empty(),
            is_standby: state.blockers.contains(STANDBY),
            count: state.count,
        }
    }

    /// How often the replica has become the leader.
    pub fn terms(&self) -> u64 {
        self.state.borrow().terms
    }

    /// Whether the replica does not lead.
    pub fn is_standby(&self) -> bool {
        self.has(STANDBY)
    }

    /// Waits until the replica does not lead.
    pub async fn standing_by(&self) {
        self.until(|state| state.blockers.contains(STANDBY)).await;
    }

    /// Waits until the replica leads. Without leader election, it always does.
    pub async fn leading(&self) {
        self.until(|state| !state.blockers.contains(STANDBY)).await;
    }

    /// Whether the streams wait for the end of the pause.
    pub fn holds_streams(&self) -> bool {
        self.state.borrow().holds_streams()
    }

    /// Waits until the streams may run.
    pub async fn streams_released(&self) {
        self.until(|state| !state.holds_streams()).await;
    }

    /// Waits until the streams have to be interrupted: they are held, or a pause has begun since there were `count`, or the
    /// replica has become the leader since then.
    pub async fn streams_interrupted(&self, count: u64) {
        self.until(|state| state.holds_streams() || state.count != count).await;
    }

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

    /// The number of pauses begun so far, and of terms.
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

    // contract: engine 1.7
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
    fn a_warm_standby_keeps_its_streams_and_starts_them_again_when_it_leads() {
        for is_warm in [true, false] {
            let pause = Pause::default();
            pause.stand_by(is_warm);
            assert!(pause.is_on() && pause.is_standby());
            assert_eq!(pause.holds_streams(), !is_warm);
            let count = pause.count();
            assert_eq!(pause.streams_interrupted(count).now_or_never().is_some(), !is_warm);
            pause.lead();
            assert!(!pause.is_on() && !pause.is_standby() && pause.leading().now_or_never().is_some());
            assert!(pause.streams_interrupted(count).now_or_never().is_some());
            assert!(pause.streams_interrupted(pause.count()).now_or_never().is_none());
            let (count, terms) = (pause.count(), pause.terms());
            pause.lead();
            assert_eq!((pause.count(), pause.terms()), (count, terms));
            pause.stand_by(is_warm);
            assert!(pause.is_standby() && pause.standing_by().now_or_never().is_some());
            assert_eq!(pause.streams_interrupted(count).now_or_never().is_some(), !is_warm);
            pause.lead();
            assert_eq!((pause.count(), pause.terms()), (count + 1, terms + 1));
        }
    }

    #[test]
    fn other_reasons_hold_the_streams_of_a_standby() {
        let pause = Pause::default();
        pause.stand_by(true);
        pause.turn("peer", true);
        assert!(pause.holds_streams());
        pause.lead();
        assert!(pause.holds_streams());
        pause.turn("peer", false);
        assert!(pause.streams_released().now_or_never().is_some());
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
