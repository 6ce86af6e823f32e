//! An essence that is built on first use: most handlers never read it, and building it costs more than the rest of a cycle.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::json::value::Value;

/// An essence that is built on first use, at most once. Usable from any thread.
pub struct LazyEssence {
    value: OnceLock<Value>,
    build: Option<Build>,
}

type Build = Box<dyn Fn() -> Value + Send + Sync>;

impl LazyEssence {
    /// An essence that is built by this function on first use.
    pub fn new(build: impl Fn() -> Value + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { value: OnceLock::new(), build: Some(Box::new(build)) })
    }

    /// An essence that is built already.
    pub fn of(value: Value) -> Arc<Self> {
        Arc::new(Self { value: OnceLock::from(value), build: None })
    }

    /// The essence; builds it on first use.
    pub fn get(&self) -> &Value {
        self.value.get_or_init(|| self.build.as_ref().map(|build| build()).unwrap_or_default())
    }

    /// Whether the essence is built.
    pub fn is_built(&self) -> bool {
        self.value.get().is_some()
    }
}

impl fmt::Debug for LazyEssence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
