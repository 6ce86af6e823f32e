//! The engine's traces as debug lines of Python's logger `kopf.engine`.
//!
//! The subscriber is installed when the logger is enabled for the first time. While it is disabled, the maximum level of
//! `tracing` is `OFF`, so a span or an event costs one atomic load. Only targets of the engine are enabled: libraries below
//! it might show secrets. Loggers belong to the process, so any operator's queue delivers the lines of all.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::bridge::HostQueue;

/// The prefix of the targets of the engine's spans and events.
const TARGET: &str = "kopf_engine";

/// Whether any queue is enabled.
static IS_ENABLED: AtomicBool = AtomicBool::new(false);
/// The queues of operators whose logger is enabled.
static QUEUES: Mutex<Vec<Weak<HostQueue>>> = Mutex::new(Vec::new());

/// Enables or disables the traces for the operator of this queue.
pub(crate) fn set_enabled(queue: &Arc<HostQueue>, is_enabled: bool) {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let is_any = {
        let mut queues = queues();
        queues.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(queue)));
        if is_enabled {
            queues.push(Arc::downgrade(queue));
        }
        !queues.is_empty()
    };
    IS_ENABLED.store(is_any, Ordering::Relaxed);
    if is_any {
        INSTALLED.get_or_init(|| {
            let subscriber = tracing_subscriber::registry().with(PythonLayer);
            // It fails only if this library has a global subscriber already.
            let _installed = tracing::subscriber::set_global_default(subscriber);
        });
    }
    tracing::callsite::rebuild_interest_cache();
}

fn queues() -> MutexGuard<'static, Vec<Weak<HostQueue>>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(line: String) {
    let queue = queues().iter().find_map(Weak::upgrade);
    if let Some(queue) = queue {
        queue.trace(line);
    }
}

/// Writes one line per event, and one per span when it closes, with its duration.
///
/// A line has the fields of [`INHERITED`] of the spans around it, so that the lines of one cycle and of one cause are found by them.
struct PythonLayer;

/// The fields that the lines of inner spans have as well.
const INHERITED: [&str; 3] = ["cycle", "run", "cause"];

struct OpenSpan {
    begun: Instant,
    line: Line,
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for PythonLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target().starts_with(TARGET) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        IS_ENABLED.load(Ordering::Relaxed) && metadata.target().starts_with(TARGET)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if IS_ENABLED.load(Ordering::Relaxed) { LevelFilter::DEBUG } else { LevelFilter::OFF })
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut line = Line::new(attributes.metadata().name());
        attributes.record(&mut line);
        span.extensions_mut().insert(OpenSpan { begun: Instant::now(), line });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(&mut open.line);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::new(event.metadata().name());
        event.record(&mut line);
        send(line.text);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let open = span.extensions_mut().remove::<OpenSpan>();
        if let Some(OpenSpan { begun, mut line }) = open {
            line.add("duration", format_args!("{:.6}s", begun.elapsed().as_secs_f64()));
            for outer in span.scope().skip(1) {
                if let Some(outer) = outer.extensions().get::<OpenSpan>() {
                    line.inherit(&outer.line);
                }
            }
            send(line.text);
        }
    }
}

/// A line with the fields as `name=value`.
struct Line {
    text: String,
    inherited: [Option<String>; INHERITED.len()],
}

impl Line {
    fn new(name: &str) -> Self {
        Self { text: format!("{name}:"), inherited: Default::default() }
    }

    fn add(&mut self, name: &str, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = write!(self.text, " {name}={value}");
        if let Some(position) = INHERITED.iter().position(|inherited| *inherited == name) {
            self.inherited[position] = Some(value.to_string());
        }
    }

    /// Adds the inherited fields that the line does not have.
    fn inherit(&mut self, outer: &Self) {
        for (position, name) in INHERITED.into_iter().enumerate() {
            if let (None, Some(value)) = (&self.inherited[position], &outer.inherited[position]) {
                self.add(name, format_args!("{value}"));
            }
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), format_args!("{value:?}"));
    }
}
