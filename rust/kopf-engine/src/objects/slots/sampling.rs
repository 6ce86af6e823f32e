//! The numbers of objects by what they wait for, for metrics.

use kopf_core::object_worker::SleepKind;
use kopf_core::time::Timestamp;

use super::Slots;
use crate::metrics::DispatcherSample;

impl Slots {
    /// The objects now; without the name of their resource.
    pub fn sample(&self, now: Timestamp) -> DispatcherSample {
        let mut sample = DispatcherSample { objects: self.map.len(), ..DispatcherSample::default() };
        for slot in self.map.values().filter(|slot| !slot.worker.is_idle()) {
            let execution = slot.execution.as_ref();
            let is_in_backlog = execution.is_some_and(|execution| execution.backlog_bytes.is_some());
            let arrival = slot.worker.oldest_arrival();
            if is_in_backlog {
                sample.initial += 1;
            } else if arrival.is_some() {
                sample.changed += 1;
            }
            if let Some(arrival) = arrival {
                sample.oldest = sample.oldest.max(now.seconds_since(arrival));
            }
            if slot.worker.is_running() {
                sample.active += 1;
                let opened = execution.and_then(|execution| {
                    let detached = execution.detached_cycle.as_ref().map(|cycle| cycle.opened);
                    detached.or_else(|| execution.signals.cycle_opened())
                });
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
