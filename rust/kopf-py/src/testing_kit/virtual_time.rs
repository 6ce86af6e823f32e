//! `VirtualTime`: the time of this process, which tests freeze and move.

use std::net::SocketAddr;

use kopf_apiserver::OpenConnection;
use kopf_core::time::Timestamp;
use kopf_engine::time::clock::Clock;
use kopf_engine::time::traffic::{Endpoint, in_transit, without_clients};
use kopf_engine::time::virtual_time;
use kopf_engine::time::worker_state::WorkerState;
use pyo3::prelude::*;

use crate::runtime::runtime;
use crate::time;

/// The time of the process, as tests control it; times are in microseconds since the epoch.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct VirtualTime {
    clock: &'static Clock,
    time: &'static virtual_time::VirtualTime,
}

#[pymethods]
impl VirtualTime {
    /// Enables virtual time: from now on, waiting tasks can be moved through time.
    #[new]
    fn new() -> Self {
        let time = time::virtual_time();
        time.use_it();
        Self { clock: time::clock(), time }
    }

    /// The current time.
    #[getter]
    fn now(&self) -> i64 {
        self.clock.now().micros()
    }

    /// Freezes time.
    fn freeze(&self) {
        self.clock.freeze();
        kopf_apiserver::set_time(Some(self.now()), 0);
    }

    /// Resumes time, with the current offset from real time.
    fn thaw(&self) {
        self.clock.thaw();
        let real = Clock::start().now();
        kopf_apiserver::set_time(None, self.now().saturating_sub(real.micros()));
    }

    /// Returns to real time.
    fn reset(&self) {
        self.time.reset();
        kopf_apiserver::set_time(None, 0);
    }

    /// Moves frozen time to the next time that an engine or a server waits for, but not beyond the limit; false if none waits.
    fn advance_to(&self, limit: i64) -> bool {
        let in_server = kopf_apiserver::next_wake_up().filter(|due| *due <= limit);
        let is_there_any = self.clock.advance_to(Timestamp::from_micros(in_server.unwrap_or(limit)));
        kopf_apiserver::set_time(Some(self.now()), 0);
        is_there_any || in_server.is_some()
    }

    /// The next time that an engine or a server waits for.
    #[getter]
    fn next(&self) -> Option<i64> {
        self.clock.next().map(Timestamp::micros).into_iter().chain(kopf_apiserver::next_wake_up()).min()
    }

    /// A number that changes when the thread of the engines has executed anything. If it is the same before and after
    /// `observe()`, and that has found nothing, all engines and servers are idle.
    #[staticmethod]
    fn turns() -> PyResult<u64> {
        Ok(WorkerState::of(&runtime()?.metrics()).parks)
    }

    /// Numbers that change with everything that the engines and servers do for objects: sleeps and operations, and bytes.
    fn activity(&self) -> (u64, u64) {
        let clients = self.time.connections().into_iter().map(|end| (end.read, end.written));
        let servers = kopf_apiserver::open_connections().into_iter().map(|end| (end.read, end.written));
        let bytes = clients
            .chain(servers)
            .fold(0, |sum: u64, (read, written)| sum.wrapping_add(read).wrapping_add(written));
        (self.time.count(), bytes)
    }

    /// The work of the engines and servers: operations that end by themselves; data in transit between them; and the watches of
    /// other clients, whose state is unknown.
    fn observe(&self) -> PyResult<(Vec<String>, Vec<String>, Vec<String>)> {
        let mut busy = self.time.busy_operations();
        let worker = WorkerState::of(&runtime()?.metrics());
        if !worker.is_idle() {
            busy.push("the thread of the engine".to_owned());
        }
        if self.clock.is_due() {
            busy.push("a task of the engine whose time has come".to_owned());
        }
        if kopf_apiserver::next_wake_up().is_some_and(|due| due <= self.now()) {
            busy.push("a task of the server whose time has come".to_owned());
        }
        if kopf_apiserver::background_operations() > 0 {
            busy.push("a deletion by the garbage collector".to_owned());
        }
        let clients = self.time.connections();
        let open = kopf_apiserver::open_connections();
        let servers: Vec<Endpoint> = open.iter().map(endpoint).collect();
        let listeners: Vec<SocketAddr> = kopf_apiserver::listeners();
        let mut watches = Vec::new();
        for index in without_clients(&servers, &clients) {
            let Some(other) = open.get(index) else { continue };
            if other.requests > 0 {
                busy.push(format!("a request of the other client {}", other.peer));
            }
            if other.streams > 0 {
                watches.push(format!("a watch of the other client {}", other.peer));
            }
        }
        Ok((busy, in_transit(&clients, &servers, &listeners), watches))
    }

    /// The number of other threads of the process that run or wait for a processor; 0 where the system does not know it.
    #[staticmethod]
    fn runnable_threads(py: Python<'_>) -> usize {
        // Detached: the threads that only wait for the interpreter continue.
        py.detach(runnable_threads)
    }
}

fn endpoint(connection: &OpenConnection) -> Endpoint {
    Endpoint {
        local: connection.local,
        peer: connection.peer,
        read: connection.read,
        written: connection.written,
        is_blocked: connection.is_blocked,
        is_pooled: false,
    }
}

#[cfg(target_os = "linux")]
fn runnable_threads() -> usize {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let here = std::fs::read_link("/proc/thread-self").ok();
    let here = here.as_deref().and_then(std::path::Path::file_name);
    threads
        .filter_map(Result::ok)
        .filter(|thread| Some(thread.file_name().as_os_str()) != here)
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .filter(|text| is_runnable(text))
        .count()
}

#[cfg(not(target_os = "linux"))]
fn runnable_threads() -> usize {
    0
}

/// Whether a line of `/proc/PID/task/TID/stat` is that of a thread in the state `R`. The state follows the name in parentheses,
/// which may contain anything.
#[cfg(target_os = "linux")]
fn is_runnable(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}
