//! The time of this process: its single clock, which tests freeze and move by `VirtualTime`.
//!
//! All engines of the process, the rules called from Python, and the embedded API server use this clock. It follows real time
//! at no cost until a test uses `VirtualTime`.

use std::sync::{Arc, OnceLock};

use kopf_core::time::Timestamp;
use kopf_engine::time::clock::Clock;
use kopf_engine::time::virtual_time::VirtualTime;

struct Time {
    clock: Clock,
    virtual_time: Arc<VirtualTime>,
}

fn time() -> &'static Time {
    static TIME: OnceLock<Time> = OnceLock::new();
    TIME.get_or_init(|| {
        let virtual_time = Arc::<VirtualTime>::default();
        Time { clock: Clock::under(Arc::clone(&virtual_time)), virtual_time }
    })
}

/// The clock of the process.
pub(crate) fn clock() -> &'static Clock {
    &time().clock
}

/// The virtual time of that clock.
pub(crate) fn virtual_time() -> &'static VirtualTime {
    &time().virtual_time
}

/// The current time.
pub(crate) fn now() -> Timestamp {
    clock().now()
}
