//! Kubeconfigs and service accounts for login handlers in Python, as the engine reads them.

use kopf_engine::client::connection::{self, ServiceAccount};
use kopf_engine::client::kubeconfig::{self, AuthInfo, Current, ReadError, token_of};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use secrecy::{ExposeSecret as _, SecretString};

/// The fields of `kopf.ConnectionInfo` for the current context of the kubeconfigs; or the kind (`corrupted`, `missing`,
/// `unusable`) and the message of the error. A file that cannot be read is an `OSError`.
#[pyfunction]
pub(crate) fn read_kubeconfig(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let (kind, message) = match py.detach(kubeconfig::read).and_then(|file| Current::of(&file)) {
        Ok(current) => match current.required_user() {
            Ok(_) => return Ok(fields_of(py, &current)?.into_any().unbind()),
            Err(error) => ("missing", error.to_string()),
        },
        Err(ReadError::Unreadable { path, error }) => {
            return Err(unreadable(&path.display().to_string(), &error));
        }
        Err(error @ ReadError::Corrupted(_)) => ("corrupted", error.to_string()),
        Err(error @ ReadError::Missing(_)) => ("missing", error.to_string()),
        Err(error @ ReadError::Unusable(_)) => ("unusable", error.to_string()),
    };
    Ok((kind, message).into_pyobject(py)?.into_any().unbind())
}

/// The name of the current context, its file, and the address of its cluster; none if the kubeconfigs are unusable.
#[pyfunction]
pub(crate) fn current_address(py: Python<'_>) -> Option<(String, String, String)> {
    let found = py.detach(kubeconfig::current_address)?;
    Some((found.context, found.path.display().to_string(), found.server))
}

/// Whether the credentials of the current user of the kubeconfigs come from an exec plugin.
#[pyfunction]
pub(crate) fn has_exec_plugin(py: Python<'_>) -> bool {
    current_user(py).is_some_and(|user| user.exec.is_some())
}

/// The current user of the kubeconfigs; none if they are unusable: [`read_kubeconfig`] has the error.
pub(crate) fn current_user(py: Python<'_>) -> Option<AuthInfo> {
    py.detach(kubeconfig::read).and_then(|file| Current::of(&file)).ok()?.user
}

fn fields_of<'py>(py: Python<'py>, current: &Current) -> PyResult<Bound<'py, PyDict>> {
    let Current { cluster, context, .. } = current;
    let user = current.user.clone().unwrap_or_default();
    let secret = |value: &Option<SecretString>| value.as_ref().map(|it| it.expose_secret().to_owned());
    let fields = PyDict::new(py);
    fields.set_item("server", cluster.server.as_deref())?;
    fields.set_item("ca_path", cluster.certificate_authority.as_deref())?;
    fields.set_item("ca_data", cluster.certificate_authority_data.as_deref())?;
    fields.set_item("insecure", cluster.insecure_skip_tls_verify)?;
    fields.set_item("proxy_url", cluster.proxy_url.as_deref())?;
    fields.set_item("certificate_path", user.client_certificate.as_deref())?;
    fields.set_item("certificate_data", user.client_certificate_data.as_deref())?;
    fields.set_item("private_key_path", user.client_key.as_deref())?;
    fields.set_item("private_key_data", secret(&user.client_key_data))?;
    fields.set_item("username", user.username.as_deref())?;
    fields.set_item("password", secret(&user.password))?;
    fields.set_item("token", token_of(&user))?;
    fields.set_item("default_namespace", context.namespace.as_deref())?;
    Ok(fields)
}

/// The fields of `kopf.ConnectionInfo` for the service account of the pod, without the server; none if there is no token.
#[pyfunction]
pub(crate) fn read_service_account(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let account = ServiceAccount::read().map_err(|error| unreadable("service account", &error))?;
    let Some(ServiceAccount { token, ca_path, namespace }) = account else { return Ok(None) };
    let fields = PyDict::new(py);
    fields.set_item("token", token.as_ref().map(SecretString::expose_secret))?;
    fields.set_item("ca_path", ca_path)?;
    fields.set_item("default_namespace", namespace)?;
    Ok(Some(fields))
}

/// Whether there is a kubeconfig: named in the environment or at its default path.
#[pyfunction]
pub(crate) fn has_kubeconfig() -> bool {
    connection::has_kubeconfig()
}

/// Whether any of the kubeconfigs named in the environment exists.
#[pyfunction]
pub(crate) fn has_named_kubeconfig() -> bool {
    connection::has_named_kubeconfig()
}

/// Whether this is a pod with a service account.
#[pyfunction]
pub(crate) fn has_service_account() -> bool {
    connection::has_service_account()
}

/// The `OSError` for a file. Python selects the class by the number.
pub(crate) fn unreadable(path: &str, error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.to_owned()))
        }
        None => PyOSError::new_err(format!("{path}: {error}")),
    }
}
