//! The time of this process: its single clock, and `VirtualTime`, by which tests freeze and move it.
//!
//! All engines of the process, the rules called from Python, and the embedded API server use this clock. It follows real time
//! at no cost until a test uses `VirtualTime`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kopf_core::time::Timestamp;
use kopf_engine::time::clock::Clock;
use kopf_engine::time::virtual_time;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::runtime::runtime;

/// Maximum time to wait until the runtime's thread is idle, and the interval of the checks.
const IDLE_TIMEOUT: Duration = Duration::from_millis(5);
const POLL_INTERVAL: Duration = Duration::from_micros(20);

struct Time {
    clock: Clock,
    time: Arc<virtual_time::VirtualTime>,
}

fn time() -> &'static Time {
    static TIME: OnceLock<Time> = OnceLock::new();
    TIME.get_or_init(|| {
        let time = Arc::<virtual_time::VirtualTime>::default();
        Time { clock: Clock::under(Arc::clone(&time)), time }
    })
}

/// The clock of the process.
pub(crate) fn clock() -> &'static Clock {
    &time().clock
}

/// The current time.
pub(crate) fn now() -> Timestamp {
    clock().now()
}

/// The time of the process, as tests control it; times are in microseconds since the epoch.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct VirtualTime(&'static Time);

#[pymethods]
impl VirtualTime {
    /// Enables virtual time: from now on, waiting tasks can be moved through time.
    #[new]
    fn new() -> Self {
        let time = time();
        time.time.use_it();
        Self(time)
    }

    /// The current time.
    #[getter]
    fn now(&self) -> i64 {
        self.0.clock.now().micros()
    }

    /// Freezes time.
    fn freeze(&self) {
        self.0.clock.freeze();
        kopf_apiserver::set_time(Some(self.now()), 0);
    }

    /// Resumes time, with the current offset from real time.
    fn thaw(&self) {
        self.0.clock.thaw();
        let real = Clock::start().now();
        kopf_apiserver::set_time(None, self.now().saturating_sub(real.micros()));
    }

    /// Returns to real time.
    fn reset(&self) {
        self.0.time.reset();
        kopf_apiserver::set_time(None, 0);
    }

    /// Moves frozen time to the next time that an engine waits for, but not beyond the limit; false if no engine waits.
    fn advance_to(&self, limit: i64) -> bool {
        let is_there_any = self.0.clock.advance_to(Timestamp::from_micros(limit));
        kopf_apiserver::set_time(Some(self.now()), 0);
        is_there_any
    }

    /// The next time that an engine waits for.
    #[getter]
    fn next(&self) -> Option<i64> {
        self.0.clock.next().map(Timestamp::micros)
    }

    /// Whether an engine has an operation in progress that takes real time, such as a request.
    #[getter]
    fn is_busy(&self) -> bool {
        self.0.time.is_busy()
    }

    /// Whether all engines and servers of this process are idle: they only wait for a time, for Python, or for others, and
    /// nothing is in transit between them.
    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        let runtime = runtime()?;
        if self.0.time.is_busy() {
            return Ok(false);
        }
        Ok(py.detach(|| is_idle(runtime)) && !self.0.time.is_busy())
    }
}

/// Whether the runtime's thread has no work but to respond to this check. Data from a socket or another thread wakes it up more
/// often than the check does. Two rounds: data that arrives during the first one is observed in the second.
fn is_idle(runtime: &Runtime) -> bool {
    (0..2).all(|_| {
        let Some(before) = wait_idle(runtime) else { return false };
        let is_completed = runtime.block_on(async { tokio::spawn(async {}).await.is_ok() });
        is_completed && wait_idle(runtime) == Some(before.wrapping_add(2))
    })
}

/// Waits until the runtime's thread is parked; returns the number of times it was parked or unparked so far.
#[expect(clippy::disallowed_methods, reason = "the runtime is watched from outside, in real time")]
fn wait_idle(runtime: &Runtime) -> Option<u64> {
    let metrics = runtime.metrics();
    let until = std::time::Instant::now() + IDLE_TIMEOUT;
    loop {
        let count = metrics.worker_park_unpark_count(0);
        if count % 2 == 1 && metrics.global_queue_depth() == 0 {
            return Some(count);
        }
        if std::time::Instant::now() > until {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
