//! Documents in responses.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::decoding;
use crate::json_text::text_to_python;

/// Maximum nesting of a response.
const MAX_DEPTH: usize = 300;

/// Decodes a document; one that is nested too deep is a `ValueError`.
pub(super) fn json_to_python<'py>(py: Python<'py>, body: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let text = std::str::from_utf8(body).map_err(decoding)?;
    if is_too_deep(text) {
        return Err(PyValueError::new_err("The response is nested too deep."));
    }
    text_to_python(py, text)
}

/// Whether the nesting exceeds the limit; the text may be malformed.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'{' | b'[' if !is_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' if !is_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
