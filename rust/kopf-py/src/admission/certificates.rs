//! Certificates for users who create or inspect them themselves.

use kopf_engine::admission::tls::certificates::{described, self_signed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::peer_to_python;

/// Makes a self-signed certificate and its private key, both in PEM; the key is encrypted if there is a password.
#[pyfunction]
#[pyo3(signature = (hostnames, password=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn build_certificate(
    py: Python<'_>,
    hostnames: Vec<String>,
    password: Option<String>,
) -> PyResult<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)> {
    let made = py.detach(|| self_signed(&hostnames, password.as_deref()));
    let (certificate, key) = made.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((PyBytes::new(py, certificate.as_bytes()), PyBytes::new(py, key.as_bytes())))
}

/// Describes a certificate (DER) as `getpeercert()` does; `None` if it is not one.
#[pyfunction]
pub(crate) fn describe_certificate<'py>(py: Python<'py>, der: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
    described(der).map(|peer| peer_to_python(py, &peer)).transpose()
}
