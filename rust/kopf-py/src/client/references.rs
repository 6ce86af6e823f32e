//! Credentials to which a kubeconfig refers: those of exec plugins and token files. For commands; operators need none of this.

use kopf_engine::client::exec::plugin_credentials;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use secrecy::{ExposeSecret as _, SecretString};

use super::block_on;
use crate::kubeconfig::{current_user, unreadable};

/// The fields of `kopf.ConnectionInfo` from the exec plugin or the token file of the current user of the kubeconfigs, without those
/// that are not set; or the error of the plugin, as a string. A token file that cannot be read is an `OSError`.
#[pyfunction]
pub(crate) fn read_referenced_credentials(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let fields = PyDict::new(py);
    let user = current_user(py).unwrap_or_default();
    if let Some(plugin) = &user.exec {
        let credentials = match block_on(py, plugin_credentials(plugin))? {
            Ok(credentials) => credentials,
            Err(error) => return Ok(error.to_string().into_pyobject(py)?.into_any().unbind()),
        };
        let secret = |value: &Option<SecretString>| value.as_ref().map(|it| it.expose_secret().to_owned());
        set(&fields, "token", secret(&credentials.token))?;
        set(&fields, "certificate_data", credentials.certificate)?;
        set(&fields, "private_key_data", secret(&credentials.private_key))?;
    } else if let Some(path) = &user.token_file {
        let token = py.detach(|| std::fs::read_to_string(path)).map_err(|error| unreadable(path, &error))?;
        set(&fields, "token", Some(token.trim().to_owned()))?;
    }
    Ok(fields.into_any().unbind())
}

fn set(fields: &Bound<'_, PyDict>, name: &str, value: Option<String>) -> PyResult<()> {
    value.map_or(Ok(()), |value| fields.set_item(name, value))
}
