//! The errors that Python gets from here, in one place.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// Text that was expected to be JSON is not.
pub(crate) fn decoding(error: impl Display) -> PyErr {
    PyValueError::new_err(format!("The JSON of the object cannot be decoded: {error}"))
}

/// What Python declared (handlers, settings) does not fit the core's types.
pub(crate) fn declaration(what: &str, error: impl Display) -> PyErr {
    PyValueError::new_err(format!("The {what} cannot be handed over to the engine: {error}"))
}

/// An operating-system resource is not available.
pub(crate) fn system(what: &str, error: impl Display) -> PyErr {
    PyRuntimeError::new_err(format!("{what}: {error}"))
}

/// A method was called out of its order.
pub(crate) fn misuse(problem: &'static str) -> PyErr {
    PyRuntimeError::new_err(problem)
}

/// The engine lives in another process, from which this one was forked.
pub(crate) fn forked(home: u32, here: u32) -> PyErr {
    PyRuntimeError::new_err(format!(
        "The operator's engine was started in the process {home} and cannot be used in its fork {here}: threads do \
         not survive a fork. Start processes with the 'spawn' or 'forkserver' method of multiprocessing, or start \
         the operator after forking."
    ))
}
