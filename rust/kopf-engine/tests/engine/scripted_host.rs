//! The test's host: handlers scripted by the exceptions that they raise, and a record of their calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use kopf_core::activation::{Command, CommandResult, Completion, FilterResult};
use kopf_core::cause::EventType;
use kopf_core::handling::attempt::CallResult;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_engine::host::credentials::{Credentials, Login};
use kopf_engine::host::{ActivationTask, Host, HostTask, LogRecord, MatchNamespacesTask};
use kopf_engine::time::clock::Clock;
use serde_json::Value;

/// One call of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The index of the handler.
    pub(crate) handler: usize,
    /// The object's name.
    pub(crate) name: String,
    /// The object's spec at the call.
    pub(crate) spec: Option<String>,
    /// Number of earlier attempts.
    pub(crate) retry: u64,
    /// The type of the watch event.
    pub(crate) event: EventType,
    /// The time of the call, in virtual seconds.
    pub(crate) at: f64,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    scripts: HashMap<usize, VecDeque<CallResult>>,
    /// The values that handlers put into the status.
    statuses: HashMap<usize, Value>,
    /// The value that the handlers' transformation functions set in the spec; none without such functions.
    function: Option<Value>,
    transformed: usize,
    holding: bool,
    /// If set, only the handlers of the object of this name are held.
    whose: Option<String>,
    held: Vec<ActivationTask>,
    matching: Vec<MatchNamespacesTask>,
    most_held: usize,
    cancelled: usize,
    forgotten: Vec<String>,
    closed: usize,
    /// The names of the steps that panic, with the number of panics left.
    explosive: HashMap<&'static str, usize>,
    log: Vec<(Level, String)>,
}

/// The scripted host of one test.
pub(crate) struct ScriptedHost {
    clock: Clock,
    start: tokio::time::Instant,
    credentials: Credentials,
    state: Mutex<State>,
}

impl ScriptedHost {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self {
            clock: Clock::start(),
            start: tokio::time::Instant::now(),
            credentials,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes the handler raise these exceptions, one per call; after that, it succeeds.
    pub(crate) fn let_raise(&self, handler: usize, activation: impl IntoIterator<Item = CallResult>) {
        self.state().scripts.insert(handler, activation.into_iter().collect());
    }

    /// Makes the handler put this into the status at each call.
    pub(crate) fn let_report(&self, handler: usize, status: Value) {
        self.state().statuses.insert(handler, status);
    }

    /// Makes the handlers add a function that sets `spec.made` to this.
    pub(crate) fn let_transform(&self, made: Option<Value>) {
        self.state().function = made;
    }

    /// Number of calls of transformation functions.
    pub(crate) fn transformed(&self) -> usize {
        self.state().transformed
    }

    /// Number of log lines that contain the text.
    pub(crate) fn count_logged(&self, text: &str) -> usize {
        self.state().log.iter().filter(|(_, line)| line.contains(text)).count()
    }

    /// From now on, handlers start but do not end.
    pub(crate) fn hold(&self) {
        self.state().holding = true;
    }

    /// From now on, handlers of this object start but do not end.
    pub(crate) fn hold_only(&self, name: &str) {
        self.state().whose = Some(name.to_owned());
        self.hold();
    }

    /// Ends the held calls, and holds no further ones.
    pub(crate) fn release(&self) {
        let held = {
            let mut state = self.state();
            (state.holding, state.whose) = (false, None);
            std::mem::take(&mut state.held)
        };
        for task in held {
            self.perform(task, false);
        }
    }

    /// Makes a command panic so many times: `activation` of an object named "poison", `stream`, or `select`.
    pub(crate) fn explode_on(&self, what: &'static str, times: usize) {
        self.state().explosive.insert(what, times);
    }

    /// Number of matchings of namespaces that are not answered.
    pub(crate) fn awaited_matchings(&self) -> usize {
        self.state().matching.len()
    }

    /// Lets all namespaces match so far.
    pub(crate) fn match_namespaces(&self) {
        let matching = std::mem::take(&mut self.state().matching);
        for task in matching {
            let _ = task.reply.send(vec![true; task.names.len()]);
        }
    }

    fn explode(&self, what: &str) {
        let explodes = self.state().explosive.get_mut(what).is_some_and(|left| {
            let explodes = *left > 0;
            *left -= usize::from(explodes);
            explodes
        });
        assert!(!explodes, "an injected panic");
    }

    /// All calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Number of calls of the handler.
    pub(crate) fn called(&self, handler: usize) -> usize {
        self.state().calls.iter().filter(|call| call.handler == handler).count()
    }

    pub(crate) fn held(&self) -> usize {
        self.state().held.len()
    }

    /// The maximum number of calls that were held at the same time.
    pub(crate) fn most_held(&self) -> usize {
        self.state().most_held
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.state().cancelled
    }

    pub(crate) fn forgotten(&self) -> usize {
        self.state().forgotten.len()
    }

    pub(crate) fn closed(&self) -> usize {
        self.state().closed
    }

    /// Whether a line of this level contains the text.
    pub(crate) fn has_logged(&self, level: Level, text: &str) -> bool {
        self.state().log.iter().any(|(its, line)| *its == level && line.contains(text))
    }

    /// A number that changes with every activity of the engine.
    pub(crate) fn beats(&self) -> usize {
        let state = self.state();
        state.calls.len() + state.closed + state.forgotten.len() + state.cancelled + state.log.len()
    }

    fn holds(&self, task: &ActivationTask) -> bool {
        let state = self.state();
        state.holding && state.whose.as_deref().is_none_or(|name| task.object.name() == Some(name))
    }

    fn perform(&self, task: ActivationTask, calling: bool) {
        let results =
            task.activation.commands.iter().map(|command| self.execute(&task, command, calling)).collect();
        let mut patch = Patch(task.activation.initial_patch.clone().unwrap_or_default());
        let state = self.state();
        let mut fns = false;
        for command in &task.activation.commands {
            let Command::CallChangeHandler { attempt } = command else { continue };
            if let Some(status) = state.statuses.get(&attempt.handler) {
                patch.set(&["status"], status.clone());
            }
            fns |= state.function.is_some();
        }
        drop(state);
        let patch = (!patch.is_empty()).then_some(patch.0);
        task.reply.send(Some(Completion { results, patch, fns, ..Completion::default() }));
    }

    fn execute(&self, task: &ActivationTask, command: &Command, calling: bool) -> CommandResult {
        match command {
            Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => {
                if calling {
                    self.note(task, attempt.handler, attempt.retry);
                }
                let activation = |state: &mut State| state.scripts.get_mut(&attempt.handler)?.pop_front();
                let raised = activation(&mut self.state()).unwrap_or(CallResult::Nothing);
                CommandResult::Attempted(attempt.evaluate(&raised, self.clock.now()).outcome)
            }
            Command::FilterHandlers { handlers } => {
                CommandResult::Filtered(vec![FilterResult { prematch: true, full: true }; handlers.len()])
            }
            Command::SelectHandlers { handlers, .. } => {
                CommandResult::Selected(handlers.iter().map(|(handler, _)| *handler).collect())
            }
            other => panic!("no handler of these tests needs {other:?}"),
        }
    }

    fn note(&self, task: &ActivationTask, handler: usize, retry: u64) {
        self.state().calls.push(Call {
            handler,
            name: task.object.name().unwrap_or_default().to_owned(),
            spec: task.object.top_level("spec").map(str::to_owned),
            retry,
            event: task.event,
            at: self.start.elapsed().as_secs_f64(),
        });
    }
}

impl Host for ScriptedHost {
    fn backlog(&self) -> usize {
        self.explode("stream");
        0
    }

    fn submit(&self, task: HostTask) {
        match &task {
            HostTask::Activation(activation) if activation.object.name() == Some("poison") => {
                self.explode("script");
            }
            HostTask::MatchResources(_) => self.explode("select"),
            _ => {}
        }
        match task {
            HostTask::Login(login) => {
                let credentials = vec![("host".to_owned(), self.credentials.clone())];
                let _ = login.reply.send(Ok(Login::Provided(credentials)));
            }
            HostTask::MatchResources(select) => {
                let all = vec![vec![true; select.resources.len()]; select.handlers.len()];
                let _ = select.reply.send(Ok(all));
            }
            HostTask::MatchNamespaces(matching) => self.state().matching.push(matching),
            HostTask::ApplyPatchFns(transform) => {
                let mut state = self.state();
                state.transformed += 1;
                let mut value = transform.object.to_value();
                if let Some(made) = &state.function {
                    value["spec"]["made"] = made.clone();
                }
                let _ = transform.reply.send(Ok(value));
            }
            HostTask::Activation(activation) if self.holds(&activation) => {
                for command in &activation.activation.commands {
                    if let Command::CallChangeHandler { attempt }
                    | Command::CallEventHandler { attempt, .. } = command
                    {
                        self.note(&activation, attempt.handler, attempt.retry);
                    }
                }
                let mut state = self.state();
                state.held.push(activation);
                state.most_held = state.most_held.max(state.held.len());
            }
            HostTask::Activation(activation) => self.perform(activation, true),
            HostTask::CycleClosed { .. } => self.state().closed += 1,
            HostTask::ObjectDeleted(uid) => self.state().forgotten.push(uid.to_string()),
            HostTask::CancelCycle(cancelled) => {
                let mut state = self.state();
                state.cancelled += 1;
                state.held.retain(|task| task.cycle != cancelled.cycle);
            }
            other => panic!("no handler of these tests needs {other:?}"),
        }
    }

    fn log(&self, entry: LogRecord) {
        self.state().log.push((entry.level, entry.text));
    }

    fn enabled(&self, level: Level) -> bool {
        level != Level::Debug
    }
}
