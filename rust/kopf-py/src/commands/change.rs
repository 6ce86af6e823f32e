//! `Change`: the change of the object's essence; `old`, `new` and `diff` are converted on access.

use std::sync::{Arc, OnceLock};

use kopf_core::handling::change;
use kopf_core::json::diff::{DiffItem, Op, reduce};
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::Value;
use kopf_core::object::{Found, text_at};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::convert::option_to_python;
use crate::json_text::text_to_python;

/// The old value, the new value, and the diff.
type Essences<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyList>);

/// A change of one object.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Change {
    native: Arc<change::Change>,
    old: OnceLock<Py<PyAny>>,
    new: OnceLock<Py<PyAny>>,
    diff: OnceLock<Py<PyList>>,
}

impl Change {
    pub(crate) fn new(native: Arc<change::Change>) -> Self {
        Self { native, old: OnceLock::new(), new: OnceLock::new(), diff: OnceLock::new() }
    }
}

#[pymethods]
impl Change {
    /// Authors may store anything in the values, even what refers to this change: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.old.get())?;
        visit.call(self.new.get())?;
        visit.call(self.diff.get())
    }

    /// The reason, such as `create`.
    #[getter]
    fn reason(&self) -> &'static str {
        self.native.reason.as_str()
    }

    /// Whether the object was found at the operator's start.
    #[getter]
    fn initial(&self) -> bool {
        self.native.initial
    }

    /// The essence at the last completed handling.
    #[getter]
    fn old<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        lazily(py, &self.old, self.native.old_text(), || self.native.old())
    }

    /// The current essence.
    #[getter(new)]
    fn new_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        lazily(py, &self.new, self.native.new_text(), || self.native.new_())
    }

    /// The diff, as tuples of the operation, the path, the old and the new value.
    #[getter]
    fn diff<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if let Some(known) = self.diff.get() {
            return Ok(known.bind(py).clone());
        }
        let diff = if self.native.has_old() {
            items(py, self.native.diff(), &self.old(py)?, &self.new_(py)?)?
        } else {
            addition(&self.new_(py)?)?
        };
        Ok(self.diff.get_or_init(|| diff.unbind()).bind(py).clone())
    }

    /// The old value, the new value and the diff of one field only.
    fn reduced<'py>(&self, py: Python<'py>, field: Vec<String>) -> PyResult<Essences<'py>> {
        let field = FieldPath::from_keys(field);
        let old = match scalar(py, &self.old, self.native.old_text(), &field)? {
            Some(old) => old,
            None => walk(py, self.old(py)?, &field)?,
        };
        let new = match scalar(py, &self.new, self.native.new_text(), &field)? {
            Some(new) => new,
            None => walk(py, self.new_(py)?, &field)?,
        };
        let diff = items(py, &reduce(self.native.diff(), &field), &old, &new)?;
        Ok((old, new, diff))
    }
}

/// Converts the text, if there is one: that takes less than the value.
fn lazily<'py, 'v>(
    py: Python<'py>,
    cell: &OnceLock<Py<PyAny>>,
    text: Option<&str>,
    value: impl Fn() -> Option<&'v Value>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(known) = cell.get() {
        return Ok(known.bind(py).clone());
    }
    // The conversion can run other code, which may fill the cell.
    let made = match text {
        Some(text) => text_to_python(py, text)?,
        None => option_to_python(py, value())?,
    };
    Ok(cell.get_or_init(|| made.unbind()).bind(py).clone())
}

/// The value of a field, from the text of an essence that is not converted yet; `None` if that must be converted: a dict or a list
/// is the same object in it.
fn scalar<'py>(
    py: Python<'py>,
    essence: &OnceLock<Py<PyAny>>,
    text: Option<&str>,
    field: &FieldPath,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(text) = text.filter(|_| essence.get().is_none()) else { return Ok(None) };
    match text_at(text, field.keys()) {
        Found::Text(value) if value.starts_with(['{', '[']) => Ok(None),
        Found::Text(value) => text_to_python(py, value).map(Some),
        Found::Missing(_) | Found::NotAMapping => option_to_python(py, None).map(Some),
    }
}

/// The diff of an object that was never handled: all of it is added. The core would copy the whole essence for it.
fn addition<'py>(new: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(new.py());
    if !new.is_none() {
        list.append(("add", PyTuple::empty(new.py()), new.py().None(), new))?;
    }
    Ok(list)
}

/// The diff with the same objects that `old` and `new` have, rather than copies of them.
fn items<'py>(
    py: Python<'py>,
    diff: &[DiffItem],
    old: &Bound<'py, PyAny>,
    new: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for item in diff {
        let op = match item.op {
            Op::Add => "add",
            Op::Change => "change",
            Op::Remove => "remove",
        };
        let path = PyTuple::new(py, item.path.keys().iter().map(|key| &**key))?;
        let side = |whole: &Bound<'py, PyAny>, value: Option<&Value>| match value {
            Some(Value::Object(_) | Value::Array(_)) => walk(py, whole.clone(), &item.path),
            scalar => option_to_python(py, scalar),
        };
        list.append((op, path, side(old, item.old.as_ref())?, side(new, item.new.as_ref())?))?;
    }
    Ok(list)
}

fn walk<'py>(py: Python<'py>, whole: Bound<'py, PyAny>, path: &FieldPath) -> PyResult<Bound<'py, PyAny>> {
    let mut value = whole;
    for key in path.keys() {
        let Ok(dict) = value.cast::<PyDict>() else { return option_to_python(py, None) };
        let Some(next) = dict.get_item(&**key)? else { return option_to_python(py, None) };
        value = next;
    }
    Ok(value)
}
