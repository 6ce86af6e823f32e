//! An essence that is built when somebody looks at it: most handlers never do, and it costs more than all the rest of a cycle.
//!
//! Owns: building it at most once. Must not know: how.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::json::value::Value;

/// An essence that is built when it is first used. Usable from any thread.
pub struct LazyEssence {
    value: OnceLock<Value>,
    build: Option<Build>,
}

type Build = Box<dyn Fn() -> Value + Send + Sync>;

impl LazyEssence {
    /// One that is yet to be built.
    pub fn new(build: impl Fn() -> Value + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { value: OnceLock::new(), build: Some(Box::new(build)) })
    }

    /// One that is there already.
    pub fn of(value: Value) -> Arc<Self> {
        Arc::new(Self { value: OnceLock::from(value), build: None })
    }

    /// The essence.
    pub fn get(&self) -> &Value {
        self.value.get_or_init(|| self.build.as_ref().map(|build| build()).unwrap_or_default())
    }

    /// Whether it is built.
    pub fn is_built(&self) -> bool {
        self.value.get().is_some()
    }
}

impl fmt::Debug for LazyEssence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
