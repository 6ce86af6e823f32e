//! The waits of a worker between cycles and for its own writes: what ends them.

use kopf_core::object_worker::SleepKind;
use kopf_core::time::Timestamp;

use super::Worker;
use crate::time::duration::seconds;

impl Worker {
    /// Sleeps until this time; true if the sleep was not interrupted. None if the worker ends: the operator is stopping, and the
    /// object is held after an error.
    pub(super) async fn sleep(&self, until: Timestamp, kind: SleepKind, pauses: u64) -> Option<bool> {
        let shared = self.shared();
        let _nap = (shared.sleeping(), self.signals.wait_outside());
        let sleep = shared.base.clock.sleep(seconds(until.seconds_since(shared.base.clock.now())));
        if kind == SleepKind::Backoff {
            return tokio::select! {
                () = sleep => Some(true),
                () = self.early_end_of_backoff() => Some(false),
                () = shared.base.stopping.cancelled() => None,
                () = self.term.ending.cancelled() => {
                    if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                        slot.worker.on_term_lost();
                    }
                    Some(false)
                }
            };
        }
        tokio::select! {
            () = sleep => return Some(true),
            () = self.arrival() => {}
            () = shared.pause.paused_since(pauses) => {
                if let Some(slot) = self.dispatcher.slots().get(&self.key) {
                    slot.worker.on_pause();
                }
            }
            () = shared.base.stopping.cancelled() => {}
        }
        Some(false)
    }

    /// Waits until nothing is to be awaited any more: the object does not exist, or another worker continues with it.
    async fn early_end_of_backoff(&self) {
        let is_held = || {
            let now = self.shared().base.clock.now();
            self.dispatcher.slots().get(&self.key).is_some_and(|slot| slot.worker.is_held(now))
        };
        while is_held() {
            self.signals.arrived.notified().await;
        }
    }

    /// Waits for the next event of the object.
    async fn arrival(&self) {
        while !self.has_events() {
            self.signals.arrived.notified().await;
        }
    }

    fn has_events(&self) -> bool {
        self.dispatcher.slots().get(&self.key).is_some_and(|slot| slot.worker.has_events())
    }

    /// Waits for the watch event caused by our write until its timeout; false if another event or a pause came before.
    pub(super) async fn await_consistency(&self) -> bool {
        let shared = self.shared();
        let _outside = self.signals.wait_outside();
        let mut now = shared.base.clock.now();
        loop {
            let pauses = shared.pause.count();
            let deadline = match self.consistency(now) {
                Some(Err(deadline)) => deadline,
                Some(Ok(is_reached)) => return is_reached,
                None => return true,
            };
            tokio::select! {
                () = shared.base.clock.sleep(seconds(deadline.seconds_since(now))) => {
                    now = shared.base.clock.now().max(deadline);
                }
                () = self.arrival() => return false,
                () = shared.pause.paused_since(pauses), if !shared.base.startup_config.settings.compat => {}
                () = shared.base.stopping.cancelled() => return false,
            }
        }
    }

    /// Whether the cycle may continue, or the end of its wait; none if there is no slot.
    fn consistency(&self, now: Timestamp) -> Option<Result<bool, Timestamp>> {
        let current = self.shared().base.live_config.get();
        let mut slots = self.dispatcher.slots();
        let operator = self.dispatcher.operator_state(&slots);
        let worker = &mut slots.get(&self.key)?.worker;
        Some(worker.await_consistency(self.dispatcher.worker_context(&current), operator, now))
    }
}
