//! The numbers of objects by what they wait for, for metrics.

use kopf_core::object_worker::SleepKind;
use kopf_core::slot::SlotState;
use kopf_core::time::Timestamp;

use super::Slots;
use crate::metrics::DispatcherSample;

impl Slots {
    /// The objects now; without the name of their resource.
    pub fn sample(&self, now: Timestamp) -> DispatcherSample {
        let mut sample = DispatcherSample { objects: self.map.len(), ..DispatcherSample::default() };
        for slot in self.map.values().filter(|slot| !slot.is_idle()) {
            let arrival = slot.worker.oldest_arrival();
            if slot.is_parked() {
                sample.initial += 1;
            } else if arrival.is_some() {
                sample.changed += 1;
            }
            if let Some(arrival) = arrival {
                sample.oldest = sample.oldest.max(now.seconds_since(arrival));
            }
            if slot.worker.is_running() {
                sample.active += 1;
                let opened = match slot.state() {
                    SlotState::Detached(cycle) => Some(cycle.opened),
                    SlotState::Working(signals) => signals.cycle_opened(),
                    _ => None,
                };
                sample.longest =
                    opened.map_or(sample.longest, |opened| sample.longest.max(now.seconds_since(opened)));
                continue;
            }
            match slot.worker.waits_for(now) {
                Some(SleepKind::Delay) => sample.delayed += 1,
                Some(SleepKind::Backoff) => sample.throttled += 1,
                None => {}
            }
        }
        sample
    }
}
