//! The filling of the indices: all objects of the indexed kinds are indexed before any other handler of any kind is called.
//!
//! A barrier is closed at the start of an operator that has indices. Until it opens, the events of indexed kinds wait in
//! their slots, and the first state of each object is indexed, a few at a time: there are no workers for that, and so their
//! limit cannot be in the way. Streams of other kinds are not even begun. Whatever blocks the barrier is a value that is
//! dropped with its stream, so that a stream that ends cannot block it for ever.
//! Once open, it never closes: kinds that appear later are indexed along with their handling. Operators without indices have
//! no barrier. Rules: contract/engine 10; who is called is the core's to say.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::cause::EventType;
use kopf_core::indexing::Round;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::script::{Reply, Script, Step, StepReply};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api::seconds;
use crate::dispatch::{DispatchSink, Dispatcher};
use crate::error::RequestError;
use crate::health::Health;
use crate::invoke::{CycleId, Entry, Invoker, Job, Reporter, ScriptJob};
use crate::slots::{Event, Slot, key_of};
use crate::watch::{Sink as _, Stream};

/// How many objects of one stream are indexed at once.
const WINDOW: usize = 1_000;

const LOGGER: &str = "kopf._core.reactor.orchestration";
/// Seconds until it is said why no handlers are called yet; the last pause repeats.
const COMPLAINTS: [f64; 2] = [30.0, 120.0];
const LAST_COMPLAINT: f64 = 600.0;

/// Closed until nothing blocks it any longer; then open for ever.
#[derive(Debug, Default)]
pub struct Barrier {
    /// How many there are, by what they wait for.
    blockers: Mutex<BTreeMap<Arc<str>, usize>>,
    opened: CancellationToken,
}

/// Keeps a barrier closed until it is dropped.
#[derive(Debug)]
pub struct Blocker {
    barrier: Arc<Barrier>,
    what: Arc<str>,
}

impl Barrier {
    /// Blocks it until something has come; nothing if it is open already.
    pub fn block(self: &Arc<Self>, what: impl Into<Arc<str>>) -> Option<Blocker> {
        let mut blockers = self.blockers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.opened.is_cancelled() {
            return None;
        }
        let what = what.into();
        *blockers.entry(Arc::clone(&what)).or_default() += 1;
        Some(Blocker { barrier: Arc::clone(self), what })
    }

    /// What is waited for.
    fn blockers(&self) -> Vec<Arc<str>> {
        self.blockers.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Says what is waited for if that takes long; rarely.
    pub async fn complain(&self, health: &Health, invoker: &dyn Invoker) {
        for pause in COMPLAINTS.iter().copied().chain(std::iter::repeat(LAST_COMPLAINT)) {
            tokio::select! {
                () = self.opened() => return,
                () = sleep(seconds(pause)) => {}
            }
            let whats = self.blockers().into_iter().map(|what| {
                let error = health.error_of(&what).map(|error| format!(" ({error})"));
                format!("{what}{}", error.unwrap_or_default())
            });
            let whats = whats.collect::<Vec<_>>().join("; ");
            let text = format!(
                "No handlers are called yet: the indices are not filled. They wait for the objects of: {whats}."
            );
            invoker.log(Entry::general(Level::Warning, LOGGER, text));
        }
    }

    /// Waits until it is open.
    pub async fn opened(&self) {
        self.opened.cancelled().await;
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        let mut blockers = self.barrier.blockers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = blockers.get_mut(&self.what).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            blockers.remove(&self.what);
        }
        if blockers.is_empty() {
            self.barrier.opened.cancel();
        }
    }
}

/// Follows a stream of objects; if there is a barrier, not before all indices are filled.
///
/// # Errors
/// As of the stream itself.
pub async fn follow(stream: &Stream, dispatcher: Arc<Dispatcher>) -> Result<Infallible, RequestError> {
    let mut sink = DispatchSink { dispatcher: Arc::clone(&dispatcher), filling: None };
    let Some(barrier) = dispatcher.shared.barrier.clone() else { return stream.follow(&mut sink).await };
    if dispatcher.plan.indexing.is_empty() {
        barrier.opened().await;
        return stream.follow(&mut sink).await;
    }
    // It blocks from before its first listing until it has been listed.
    let Some(blocker) = dispatcher.take_blocker() else { return stream.follow(&mut sink).await };
    dispatcher.is_filling.store(true, Ordering::Release);
    // There is one message per object at most.
    let (sender, receiver) = unbounded_channel();
    let what = Arc::clone(&blocker.what);
    sink.filling = Some(Filling { barrier: Arc::clone(&barrier), what, listing: Some(blocker), sender });
    let filler = Filler { dispatcher, receiver };
    tokio::select! {
        ended = stream.follow(&mut sink) => ended,
        never = filler.run(&barrier) => match never {},
    }
}

/// The side of the stream: holds what comes before the barrier is open.
#[derive(Debug)]
pub struct Filling {
    barrier: Arc<Barrier>,
    what: Arc<str>,
    listing: Option<Blocker>,
    sender: UnboundedSender<(Arc<str>, Blocker)>,
}

impl Filling {
    /// Holds an event. It is given back if its object is not to be held any longer.
    pub fn hold(&self, dispatcher: &Dispatcher, kind: EventType, object: Object) -> Option<Object> {
        let key = key_of(&object);
        let mut slots = dispatcher.slots();
        let active = &mut slots.notice(&key, kind).active;
        if active.is_none() {
            let Some(blocker) = self.barrier.block(Arc::clone(&self.what)) else { return Some(object) };
            // The filler is there as long as the stream is.
            let _ = self.sender.send((key, blocker));
        }
        let event = Event { kind, object: Arc::new(object), woken: false, indexed: false, told: None };
        let active = active.get_or_insert_default();
        if !dispatcher.shared.rules.settings.compat {
            // The first one is being indexed; of those that follow, the newest is enough, however long it takes.
            active.pending.truncate(1);
        }
        active.pending.push_back(event);
        active.arrived.notify_one();
        None
    }

    /// The first listing is over.
    pub fn listed(&mut self) {
        self.listing = None;
    }
}

/// The other side: indexes what is held, and lets it go when the barrier is open.
struct Filler {
    dispatcher: Arc<Dispatcher>,
    receiver: UnboundedReceiver<(Arc<str>, Blocker)>,
}

/// An object that is being indexed.
struct Asked {
    key: Arc<str>,
    cycle: CycleId,
    round: Round,
    reply: oneshot::Receiver<Reply>,
    _blocker: Blocker,
}

impl Filler {
    async fn run(mut self, barrier: &Barrier) -> Infallible {
        let limit = self.dispatcher.shared.rules.settings.queueing.worker_limit;
        let window = limit.unwrap_or(WINDOW).clamp(1, WINDOW);
        let mut held = vec![];
        let mut asked = VecDeque::new();
        loop {
            while asked.len() < window
                && let Ok((key, blocker)) = self.receiver.try_recv()
            {
                held.push(Arc::clone(&key));
                asked.extend(self.ask(key, blocker));
            }
            if let Some(first) = asked.pop_front() {
                self.learn(first).await;
                continue;
            }
            tokio::select! {
                Some((key, blocker)) = self.receiver.recv() => {
                    held.push(Arc::clone(&key));
                    asked.extend(self.ask(key, blocker));
                }
                () = barrier.opened() => break,
            }
        }
        let room = DispatchSink { dispatcher: Arc::clone(&self.dispatcher), filling: None };
        for key in held {
            self.dispatcher.release(&key);
            room.room().await;
        }
        self.dispatcher.is_filling.store(false, Ordering::Release);
        std::future::pending().await
    }

    /// Begins to index the first state of an object, if there is anything to do with it.
    fn ask(&self, key: Arc<str>, blocker: Blocker) -> Option<Asked> {
        let Dispatcher { shared, plan, .. } = &*self.dispatcher;
        let mut slots = self.dispatcher.slots();
        let slot = slots.get(&key)?;
        let event = slot.active.as_ref()?.pending.front()?.clone();
        let round = self.dispatcher.round(slot, &event);
        let Some(round) = round else {
            mark_indexed(slot);
            return None;
        };
        drop(slots);
        let (sender, reply) = oneshot::channel();
        let cycle = shared.next_cycle();
        shared.invoker.submit(Job::Script(ScriptJob {
            cycle,
            uid: Arc::clone(&key),
            resource: Arc::clone(&plan.resource),
            event: event.kind,
            object: event.object,
            script: Script { steps: vec![Step::Index(round.clone())], ..Script::default() },
            reply: Reporter::through(sender),
        }));
        Some(Asked { key, cycle, round, reply, _blocker: blocker })
    }

    /// Takes what came of it. If a filter has failed, the object is indexed once more when it is handled, with all that follows
    /// from errors there; but the others do not wait for that.
    async fn learn(&self, asked: Asked) {
        let reply = asked.reply.await;
        let shared = &self.dispatcher.shared;
        shared.invoker.submit(Job::Close { cycle: asked.cycle, carry: false });
        let Ok(mut reply) = reply else { return };
        if let Some(slot) = self.dispatcher.slots().get(&asked.key)
            && learn(&self.dispatcher, slot, &asked.round, &mut reply)
        {
            mark_indexed(slot);
        }
    }
}

fn mark_indexed(slot: &mut Slot) {
    if let Some(event) = slot.active.as_mut().and_then(|active| active.pending.front_mut()) {
        event.indexed = true;
    }
}

/// Takes the outcomes of a round out of the reply of its script; false if it came to no end.
pub fn learn(dispatcher: &Dispatcher, slot: &mut Slot, round: &Round, reply: &mut Reply) -> bool {
    let indexing = slot.indexing.get_or_insert_default();
    if !matches!(reply.steps.first(), Some(StepReply::Indexed(_))) {
        indexing.fail();
        return false;
    }
    if let StepReply::Indexed(outcomes) = reply.steps.remove(0) {
        indexing.learn(round, &outcomes, &dispatcher.shared.rules.registry);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_opens_with_its_last_blocker_and_stays_open() {
        let barrier = Arc::new(Barrier::default());
        let (first, second) = (barrier.block("a"), barrier.block("b"));
        assert!(first.is_some() && second.is_some());
        assert_eq!(barrier.blockers(), [Arc::from("a"), Arc::from("b")]);
        drop(first);
        assert!(!barrier.opened.is_cancelled());
        drop(second);
        assert!(barrier.opened.is_cancelled());
        assert!(barrier.block("a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_it_closed_is_said_rarely() {
        let other_side = crate::testing::OtherSide::default();
        let health = Health::new(crate::clock::Clock::start());
        health.troubled("things cluster-wide", crate::health::Trouble::Refused, Some("403".to_owned()));
        let barrier = Arc::new(Barrier::default());
        let blocker = barrier.block("things cluster-wide");
        let complaining = barrier.complain(&health, &other_side);
        let waiting = async {
            sleep(seconds(29.0)).await;
            assert_eq!(other_side.lines("").len(), 0);
            sleep(seconds(2.0)).await;
            assert_eq!(other_side.lines("").len(), 1);
            sleep(seconds(600.0)).await;
            assert_eq!(other_side.lines("They wait for the objects of: things cluster-wide (403).").len(), 2);
            drop(blocker);
        };
        tokio::join!(complaining, waiting);
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_is_held_the_first_and_the_newest_are_kept() {
        let stage = crate::testing::Stage::new(&serde_json::json!({}), |_| (200, None));
        let things = crate::testing::resource("example.com", "things", true);
        let plan = Arc::new(stage.shared.rules.registry.plan(&things, &|_| true));
        let dispatcher = Dispatcher::new(Arc::clone(&stage.shared), plan, None);
        let barrier = Arc::new(Barrier::default());
        let (sender, mut receiver) = unbounded_channel();
        let filling = Filling { listing: barrier.block("x"), barrier, what: Arc::from("x"), sender };
        for version in 1..=5 {
            let text = format!(r#"{{"metadata":{{"name":"n","uid":"u","resourceVersion":"{version}"}}}}"#);
            let object = Object::decode(&text).unwrap();
            assert!(filling.hold(&dispatcher, EventType::Modified, object).is_none());
        }
        assert!(receiver.try_recv().is_ok() && receiver.try_recv().is_err(), "one message per object");
        let mut slots = dispatcher.slots();
        let pending = &slots.get("u").unwrap().active.as_ref().unwrap().pending;
        let versions: Vec<_> = pending.iter().filter_map(|event| event.object.resource_version()).collect();
        assert_eq!(versions, ["1", "5"]);
    }
}
