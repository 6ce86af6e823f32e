//! The errors raised in Python, in one place.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// A text is not valid JSON.
pub(crate) fn decoding(error: impl Display) -> PyErr {
    PyValueError::new_err(format!("The JSON of the object cannot be decoded: {error}"))
}

/// A declaration from Python (handlers, settings) cannot be converted to the core's types.
pub(crate) fn declaration(what: &str, error: impl Display) -> PyErr {
    PyValueError::new_err(format!("The {what} cannot be handed over to the engine: {error}"))
}

/// An operating-system resource is not available.
pub(crate) fn system(what: &str, error: impl Display) -> PyErr {
    PyRuntimeError::new_err(format!("{what}: {error}"))
}

/// A method was called in the wrong order.
pub(crate) fn misuse(problem: &'static str) -> PyErr {
    PyRuntimeError::new_err(problem)
}

/// The engine runs in another process, from which this one was forked.
pub(crate) fn forked(pid: u32, here: u32) -> PyErr {
    PyRuntimeError::new_err(format!(
        "The operator's engine was started in the process {pid} and cannot be used in its fork {here}: threads do \
         not survive a fork. Start processes with the 'spawn' or 'forkserver' method of multiprocessing, or start \
         the operator after forking."
    ))
}
