//! An essence that is built on first use: most handlers never read it, and building it costs more than the rest of a cycle.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::json::path::{FieldPath, resolve};
use crate::json::value::{Value, equal, parse_checked, to_python_json};
use crate::object::{Found, text_at};

/// An essence that is built on first use, at most once: as a value, and as text. Usable from any thread.
pub struct LazyEssence {
    value: OnceLock<Arc<Value>>,
    text: OnceLock<Option<String>>,
    build: Option<Build<Value>>,
    serialize: Option<Build<Option<String>>>,
}

type Build<T> = Box<dyn Fn() -> T + Send + Sync>;

impl LazyEssence {
    /// An essence that is built by these functions on first use: as a value; and as text, if that needs no value (see
    /// [`serialize_raw`](super::serialize_raw)).
    pub fn new(
        build: impl Fn() -> Value + Send + Sync + 'static,
        serialize: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (value, text) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { value, text, build: Some(Box::new(build)), serialize: Some(Box::new(serialize)) })
    }

    /// An essence that is built already.
    pub fn of(value: Value) -> Arc<Self> {
        Arc::new(Self {
            value: OnceLock::from(Arc::new(value)),
            text: OnceLock::from(None),
            build: None,
            serialize: None,
        })
    }

    /// An essence whose text is known; it must be JSON.
    pub fn of_text(text: String) -> Arc<Self> {
        let (value, text) = (OnceLock::new(), OnceLock::from(Some(text)));
        Arc::new(Self { value, text, build: None, serialize: None })
    }

    /// The essence; builds it on first use.
    pub fn get(&self) -> &Value {
        self.shared()
    }

    /// The essence, to be kept without a copy; builds it on first use.
    pub fn shared(&self) -> &Arc<Value> {
        self.value.get_or_init(|| {
            Arc::new(match &self.build {
                Some(build) => build(),
                None => self.text().and_then(|text| parse_checked(text).ok()).unwrap_or_default(),
            })
        })
    }

    /// The serialized essence, if it can be had without the value: that takes half of the time.
    pub fn text(&self) -> Option<&str> {
        let text = self.text.get_or_init(|| self.serialize.as_ref().and_then(|serialize| serialize()));
        text.as_deref()
    }

    /// The value of a field. If the essence has a text and is not built, only the field is parsed.
    pub fn field(&self, path: &FieldPath) -> Option<Cow<'_, Value>> {
        if !self.is_built()
            && let Some(text) = self.text()
        {
            let Found::Text(field) = text_at(text, path.keys()) else { return None };
            return parse_checked(field).ok().map(Cow::Owned);
        }
        resolve(self.get(), path.keys()).map(Cow::Borrowed)
    }

    /// Whether the essence equals a value. If both have the same text, the essence is not built.
    pub fn equals(&self, value: &Value) -> bool {
        let is_same = |text: &str| to_python_json(value) == text;
        (!self.is_built() && self.text().is_some_and(is_same)) || equal(self.get(), value)
    }

    /// Whether the essence is built as a value.
    pub fn is_built(&self) -> bool {
        self.value.get().is_some()
    }
}

impl PartialEq for LazyEssence {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for LazyEssence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
