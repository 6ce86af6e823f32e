//! The time of this process: its one clock, and `VirtualTime`, by which tests stop it and move it.
//!
//! All engines of the process, the rules that Python asks, and the embedded API server go by this clock. It goes as real time
//! does, and it costs nothing, until a test takes it in use.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kopf_core::time::Timestamp;
use kopf_engine::time::clock::Clock;
use kopf_engine::time::virtual_time;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::runtime::runtime;

/// How long we wait at most until the runtime's thread has fallen asleep; and how long between two looks.
const SLUMBER: Duration = Duration::from_millis(5);
const LOOK: Duration = Duration::from_micros(20);

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

/// The present moment.
pub(crate) fn now() -> Timestamp {
    clock().now()
}

/// The time of the process, as tests move it; moments are in microseconds since the epoch.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct VirtualTime(&'static Time);

#[pymethods]
impl VirtualTime {
    /// Takes it in use: whoever begins to wait from now on, can be moved through time.
    #[new]
    fn new() -> Self {
        let time = time();
        time.time.use_it();
        Self(time)
    }

    /// The present moment.
    #[getter]
    fn now(&self) -> i64 {
        self.0.clock.now().micros()
    }

    /// Stops time where it is.
    fn freeze(&self) {
        self.0.clock.freeze();
        kopf_apiserver::set_time(Some(self.now()), 0);
    }

    /// Lets time go on from where it is; as much ahead of the real one as it was moved.
    fn thaw(&self) {
        self.0.clock.thaw();
        let real = Clock::start().now();
        kopf_apiserver::set_time(None, self.now().saturating_sub(real.micros()));
    }

    /// Goes with real time again.
    fn reset(&self) {
        self.0.time.reset();
        kopf_apiserver::set_time(None, 0);
    }

    /// Moves frozen time to the next moment for which an engine waits, but not beyond the limit; whether any does.
    fn leap(&self, limit: i64) -> bool {
        let is_there_any = self.0.clock.leap(Timestamp::from_micros(limit));
        kopf_apiserver::set_time(Some(self.now()), 0);
        is_there_any
    }

    /// The next moment for which an engine waits.
    #[getter]
    fn next(&self) -> Option<i64> {
        self.0.clock.next().map(Timestamp::micros)
    }

    /// Whether an engine does something that takes real time, such as a request.
    #[getter]
    fn is_busy(&self) -> bool {
        self.0.time.is_busy()
    }

    /// Whether nothing happens in the engines and servers of this process, apart from what waits for a moment, for Python, or
    /// for others; nothing is on its way between them either.
    fn is_still(&self, py: Python<'_>) -> PyResult<bool> {
        let runtime = runtime()?;
        if self.0.time.is_busy() {
            return Ok(false);
        }
        Ok(py.detach(|| is_still(runtime)) && !self.0.time.is_busy())
    }
}

/// Whether the runtime's thread has nothing to do but to answer us. Whatever comes from a socket or from another thread wakes
/// it up once more than we do. Two rounds: what was coming in the moment of the first one is seen in the second.
fn is_still(runtime: &Runtime) -> bool {
    (0..2).all(|_| {
        let Some(before) = wait_idle(runtime) else { return false };
        let answered = runtime.block_on(async { tokio::spawn(async {}).await.is_ok() });
        answered && wait_idle(runtime) == Some(before.wrapping_add(2))
    })
}

/// Waits until the runtime's thread sleeps; how often it has fallen asleep and woken up so far.
#[expect(clippy::disallowed_methods, reason = "the runtime is watched from outside, in real time")]
fn wait_idle(runtime: &Runtime) -> Option<u64> {
    let metrics = runtime.metrics();
    let until = std::time::Instant::now() + SLUMBER;
    loop {
        let count = metrics.worker_park_unpark_count(0);
        if count % 2 == 1 && metrics.global_queue_depth() == 0 {
            return Some(count);
        }
        if std::time::Instant::now() > until {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}
