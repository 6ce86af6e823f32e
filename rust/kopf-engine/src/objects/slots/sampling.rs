//! The numbers of objects by what they wait for, for metrics.

use kopf_core::object_worker::SleepKind;
use kopf_core::time::Timestamp;

use super::Slots;
use crate::metrics::DispatcherSample;
use crate::objects::execution::Execution;

impl Slots {
    /// The objects now; without the name of their resource.
    pub fn sample(&self, now: Timestamp) -> DispatcherSample {
        let mut sample = DispatcherSample { objects: self.map.len(), ..DispatcherSample::default() };
        for slot in self.map.values().filter(|slot| !slot.worker.is_idle()) {
            let arrival = slot.worker.oldest_arrival();
            if slot.is_in_backlog() {
                sample.initial += 1;
            } else if arrival.is_some() {
                sample.changed += 1;
            }
            if let Some(arrival) = arrival {
                sample.oldest = sample.oldest.max(now.seconds_since(arrival));
            }
            if slot.worker.is_running() {
                sample.active += 1;
                let opened = match slot.execution.as_deref() {
                    Some(Execution::Detached(cycle)) => Some(cycle.opened),
                    Some(Execution::Worker(signals)) => signals.cycle_opened(),
                    None | Some(Execution::Backlog(_) | Execution::Predecessor) => None,
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
