//! A cycle in progress, with the spans of its traces.
//!
//! The span of a cycle is open from its start to its end, also if a worker continues it or writes its decision. The spans of its
//! activations, handler calls, writes and requests are inside. While traces are off, spans are empty and nothing is formatted.

use std::ops::{Deref, DerefMut};

use kopf_core::activation::{Activation, Command};
use kopf_core::cycle::{Cycle, CycleStart};
use kopf_core::resource::Resource;
use tracing::{Span, field};

use crate::spans::record_cause;

/// A cycle that is to be opened.
#[derive(Debug)]
pub struct PreparedCycle {
    /// Its inputs.
    pub start: CycleStart,
    /// See [`OpenCycle::pauses`].
    pub pauses: u64,
}

/// A cycle in progress.
#[derive(Debug)]
pub struct OpenCycle {
    running: Cycle,
    pauses: u64,
    span: Span,
}

impl OpenCycle {
    /// Starts the span of the cycle.
    pub fn new(running: Cycle, pauses: u64, resource: &Resource) -> Self {
        let (event, object) = (running.event(), running.object());
        let span = tracing::debug_span!(
            "cycle",
            cycle = running.id,
            %resource,
            namespace = object.namespace().unwrap_or_default(),
            object = object.name().unwrap_or_default(),
            event = event.kind.as_str().unwrap_or("LISTED"),
            reason = field::Empty,
            cause = field::Empty,
        );
        Self { running, pauses, span }
    }

    /// The number of pauses at the start of the last listing before the cycle. If there are more now, another operator may have
    /// handled the object since then.
    pub const fn pauses(&self) -> u64 {
        self.pauses
    }

    /// The span of the cycle.
    pub const fn span(&self) -> &Span {
        &self.span
    }

    /// Starts the span of an activation, and adds its cause to that of the cycle.
    pub fn activation_span(&self, activation: &Activation) -> Span {
        if let Some(handling) = activation.handling {
            record_cause(&self.span, handling, self.object());
        }
        tracing::debug_span!(parent: &self.span, "activation", handlers = calls_in(activation))
    }
}

impl Deref for OpenCycle {
    type Target = Cycle;

    fn deref(&self) -> &Cycle {
        &self.running
    }
}

impl DerefMut for OpenCycle {
    fn deref_mut(&mut self) -> &mut Cycle {
        &mut self.running
    }
}

/// The number of called event handlers and change handlers.
fn calls_in(activation: &Activation) -> usize {
    let is_call = |command: &&Command| {
        matches!(command, Command::CallChangeHandler { .. } | Command::CallEventHandler { .. })
    };
    activation.commands.iter().filter(is_call).count()
}
