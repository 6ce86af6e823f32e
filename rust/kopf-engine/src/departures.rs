//! Departures: what becomes of objects that a derived selector does not let through any longer.
//!
//! To the server it is the same whether an object is deleted or only changed so that the selector does not fit it any more: the
//! stream tells of a deletion, and a new listing of nothing at all. For the handlers it is not the same. So the server is asked
//! what has become of the object. If it is still there, it is a change as any other, and the object is forgotten when nothing
//! is left to be done for it. Nothing tells of it meanwhile, so that the server is asked again whenever we have changed it.
//! If it is gone, it was a deletion. Rules of the selectors themselves: `kopf_core::derivation`.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kopf_core::cause::EventType;
use kopf_core::derivation::{self, Derivation};
use kopf_core::notes::Level;
use kopf_core::object::Object;
use tokio::sync::Notify;

use crate::api::seconds;
use crate::dispatch::Dispatcher;
use crate::error::RequestError;
use crate::indexing;
use crate::invoke::Entry;
use crate::slots::{Event, Slots, key_of};
use crate::watch::{Stream, pause_after};

mod leftovers;

const LOGGER: &str = "kopf._cogs.clients.watching";
/// For how many objects the server is asked at once.
const AT_ONCE: usize = 8;
/// If so many are to be asked for, the stream is not read any further.
const MOST: usize = 500;

/// Where an object is, as far as the selector of its stream is concerned.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// The stream tells of it.
    #[default]
    Inside,
    /// The stream does not tell of it any more.
    Outside,
    /// The same, and it is not now as the server has last told it.
    Stirred,
}

/// The departures of one stream.
#[derive(Debug)]
pub struct Departures {
    selector: Derivation,
    /// Where the known objects are to be asked for: namespaces and names by keys.
    addresses: HashMap<Arc<str>, Box<str>>,
    sought: HashMap<Arc<str>, Sought>,
    queue: VecDeque<(Arc<str>, u64)>,
    tickets: u64,
    news: Arc<Notify>,
    listed: Arc<Notify>,
}

/// An object that is to be asked for.
#[derive(Debug)]
struct Sought {
    /// What the answer must be for, to be of any use.
    ticket: u64,
    /// What the stream has told of its deletion; nothing if a listing did not have it.
    last: Option<Arc<Object>>,
}

impl Departures {
    /// From a stream with this selector.
    pub fn from(selector: Derivation) -> Self {
        Self {
            selector,
            addresses: HashMap::new(),
            sought: HashMap::new(),
            queue: VecDeque::new(),
            tickets: 0,
            news: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// The stream tells of the object: whoever looks for it may stop.
    fn arrived(&mut self, key: &Arc<str>, object: &Object) {
        self.sought.remove(key);
        self.note(key, object);
    }

    fn note(&mut self, key: &Arc<str>, object: &Object) {
        let address =
            || [object.namespace().unwrap_or_default(), object.name().unwrap_or_default()].join("/");
        self.addresses.entry(Arc::clone(key)).or_insert_with(|| address().into_boxed_str());
    }

    /// Has the server asked for an object; false if it is not known where that is.
    fn seek(&mut self, key: &Arc<str>, last: Option<Arc<Object>>) -> bool {
        if !self.addresses.contains_key(key) {
            return false;
        }
        if last.is_some() || !self.sought.contains_key(key) {
            self.tickets += 1;
            self.sought.insert(Arc::clone(key), Sought { ticket: self.tickets, last });
            self.queue.push_back((Arc::clone(key), self.tickets));
            self.news.notify_one();
        }
        true
    }

    fn is_sought(&self, key: &str, ticket: u64) -> bool {
        self.sought.get(key).is_some_and(|sought| sought.ticket == ticket)
    }

    /// The next object to ask for, where it is, and the ticket.
    fn next(&mut self) -> Option<(Arc<str>, Box<str>, u64)> {
        while let Some((key, ticket)) = self.queue.pop_front() {
            if self.is_sought(&key, ticket)
                && let Some(address) = self.addresses.get(&key)
            {
                let address = address.clone();
                return Some((key, address, ticket));
            }
        }
        None
    }

    /// The task that asks has ended, though there may be something to ask for: starts it again.
    fn restart(&mut self) {
        let mut tickets: Vec<_> =
            self.sought.iter().map(|(key, sought)| (Arc::clone(key), sought.ticket)).collect();
        tickets.sort_unstable_by_key(|(_, ticket)| *ticket);
        self.queue = tickets.into();
    }

    /// An object is forgotten.
    fn forget(&mut self, key: &str) {
        self.addresses.remove(key);
        self.sought.remove(key);
    }

    /// Takes over what another stream has left of the same objects.
    pub fn inherit(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        for (key, sought) in other.sought {
            self.seek(&key, sought.last);
        }
    }
}

impl Slots {
    /// Seeks the objects that the listing did not have, if that does not mean that they are gone.
    pub(crate) fn seek_missing(&mut self) {
        let missing = self.missing();
        let Some(departures) = &mut self.departures else { return };
        let sought: Vec<_> = missing.into_iter().filter(|key| departures.seek(key, None)).collect();
        for key in sought {
            self.depart(&key);
        }
    }

    /// A listing is over: forgets where those objects are that are not known any more.
    pub(crate) fn end_departing(&mut self) {
        if let Some(mut departures) = self.departures.take() {
            departures.listed.notify_one();
            departures
                .addresses
                .retain(|key, _| self.get(key).is_some() || departures.sought.contains_key(key));
            self.departures = Some(departures);
        }
    }

    /// The stream has lost the object.
    fn depart(&mut self, key: &str) {
        let listing = self.listing();
        if let Some(slot) = self.get(key) {
            slot.place = Whereabouts::Outside;
            // It is not forgotten with those that are gone.
            slot.seen = listing;
        }
    }

    /// Nothing is left to be done for an object that the stream has lost: it is forgotten if that was all; then true.
    pub(crate) fn leave(&mut self, key: &Arc<str>) -> bool {
        let Some(slot) = self.get(key) else { return false };
        let place = slot.place;
        // Those who do not stop are not to be started again beside themselves.
        let is_staffed = slot.subject.as_ref().is_some_and(|subject| subject.is_staffed());
        let Some(departures) = &mut self.departures else { return false };
        let is_sought = departures.sought.contains_key(key);
        if is_sought || (place == Whereabouts::Stirred && departures.seek(key, None)) || is_staffed {
            return false;
        }
        departures.forget(key);
        self.remove(key);
        true
    }

    /// Whether there is so much to ask for that there should not be more.
    pub(crate) fn is_seeking_much(&self) -> bool {
        self.departures.as_ref().is_some_and(|departures| departures.sought.len() > MOST)
    }
}

impl Dispatcher {
    /// Sees whether an event of a stream is what it seems to be; gives the object back if so.
    pub(crate) fn sift(&self, kind: EventType, object: Object) -> Option<Object> {
        if self.derived.is_none() {
            return Some(object);
        }
        let mut slots = self.slots();
        let Some(departures) = &mut slots.departures else { return Some(object) };
        let key = key_of(&object);
        if kind != EventType::Deleted {
            departures.arrived(&key, &object);
            return Some(object);
        }
        departures.note(&key, &object);
        departures.seek(&key, Some(Arc::new(object)));
        slots.depart(&key);
        None
    }

    /// The server has told what has become of an object.
    fn found(self: &Arc<Self>, key: &Arc<str>, ticket: u64, found: Option<Object>) {
        let vanished = self.with_slots(|slots, effects| {
            let departures = slots.departures.as_mut().filter(|it| it.is_sought(key, ticket))?;
            let sought = departures.sought.remove(key);
            let is_back = found.as_ref().is_some_and(|object| departures.selector.matches(object));
            if found.is_none() {
                departures.forget(key);
            }
            let event = |kind, object| Event { kind, object, woken: false, indexed: false, told: None };
            match (found, sought.and_then(|sought| sought.last)) {
                // The stream will tell of that.
                (Some(_), _) if is_back => None,
                (Some(object), _) => {
                    // What was written after the question, is not in the answer.
                    let is_stirred = slots.get(key).is_some_and(|slot| slot.place == Whereabouts::Stirred);
                    let place = if is_stirred { Whereabouts::Stirred } else { Whereabouts::Outside };
                    slots.notice(key, EventType::Modified).place = place;
                    let event = event(EventType::Modified, Arc::new(object));
                    self.queue(slots, Arc::clone(key), event, effects);
                    None
                }
                (None, Some(last)) => {
                    slots.notice(key, EventType::Deleted);
                    self.queue(slots, Arc::clone(key), event(EventType::Deleted, last), effects);
                    None
                }
                (None, None) => slots.vanish(key),
            }
        });
        self.see_off(vanished.into_iter().collect());
        self.shared.freed.notify_waiters();
    }

    /// The stream is over, with all that it could have told of: what seemed to be deleted, is.
    pub(crate) fn end_departures(self: &Arc<Self>) {
        let sought: Vec<_> = {
            let mut slots = self.slots();
            let sought = slots.departures.as_mut().map(|departures| std::mem::take(&mut departures.sought));
            sought.into_iter().flatten().collect()
        };
        for (key, Sought { ticket, last }) in sought {
            if last.is_some() {
                if let Some(departures) = &mut self.slots().departures {
                    departures.sought.insert(Arc::clone(&key), Sought { ticket, last });
                }
                self.found(&key, ticket, None);
            }
        }
    }
}

/// Follows a stream of objects; if its selector is derived, finds out what becomes of those that it loses.
///
/// # Errors
/// As of the stream itself.
pub async fn follow(stream: &Stream, dispatcher: Arc<Dispatcher>) -> Result<Infallible, RequestError> {
    let told = |it: &Departures| (Arc::clone(&it.news), Arc::clone(&it.listed));
    let told = dispatcher.slots().departures.as_deref().map(told);
    let Some((news, listed)) = told else { return indexing::follow(stream, dispatcher).await };
    if let Some(departures) = &mut dispatcher.slots().departures {
        departures.restart();
    }
    let seeker = Seeker { stream, dispatcher: &dispatcher };
    tokio::select! {
        ended = indexing::follow(stream, Arc::clone(&dispatcher)) => ended,
        ended = seeker.run(&news) => ended,
        ended = seeker.clear(&listed), if derivation::holds(&dispatcher.plan, &dispatcher.shared.rules.registry) => ended,
    }
}

/// Asks for what a stream has lost.
struct Seeker<'a> {
    stream: &'a Stream,
    dispatcher: &'a Arc<Dispatcher>,
}

impl Seeker<'_> {
    async fn run(&self, news: &Notify) -> Result<Infallible, RequestError> {
        // Until then, nothing is handled, whatever it is.
        if let Some(barrier) = &self.dispatcher.shared.barrier {
            barrier.opened().await;
        }
        let mut asking = FuturesUnordered::new();
        loop {
            while asking.len() < AT_ONCE
                && let Some(next) = self.next()
            {
                asking.push(self.seek(next));
            }
            tokio::select! {
                Some(done) = asking.next() => done?,
                () = news.notified() => {}
            }
        }
    }

    fn next(&self) -> Option<(Arc<str>, Box<str>, u64)> {
        self.dispatcher.slots().departures.as_mut()?.next()
    }

    /// Asks for one object until there is an answer, or until the stream tells of it again.
    async fn seek(&self, (key, address, ticket): (Arc<str>, Box<str>, u64)) -> Result<(), RequestError> {
        let Some((namespace, name)) = address.split_once('/') else { return Ok(()) };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let pause = &self.dispatcher.shared.pause;
        let mut failures = 0;
        loop {
            // Others may handle the objects meanwhile.
            pause.over().await;
            if !self.begin(&key, ticket) {
                return Ok(());
            }
            let pauses = pause.count();
            let found = tokio::select! {
                biased;
                () = pause.begun_since(pauses) => continue,
                found = self.stream.find(namespace, name) => found,
            };
            let error = match found {
                Ok(found) => {
                    let found = found.into_iter().find(|object| key_of(object) == key);
                    self.dispatcher.found(&key, ticket, found);
                    return Ok(());
                }
                // The kind itself is gone.
                Err(error) if error.status() == Some(404) => {
                    self.dispatcher.found(&key, ticket, None);
                    return Ok(());
                }
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(error) => error,
            };
            self.back_off(&format!("Cannot see what has become of {address}"), &error, failures).await;
            failures += 1;
        }
    }

    /// Waits after so many failures, and this one.
    async fn back_off(&self, what: &str, error: &RequestError, failures: u32) {
        let pause = pause_after(error, failures);
        let (resource, shared) = (&self.stream.resource, &self.dispatcher.shared);
        let text = format!("{what} of {resource}: {error}. The next attempt is in {pause} seconds.");
        shared.invoker.log(Entry::general(Level::Error, LOGGER, text));
        shared.clock.sleep(seconds(pause)).await;
    }

    /// Whether it is still of interest; if so, what is asked for now is as it is now.
    fn begin(&self, key: &str, ticket: u64) -> bool {
        let mut slots = self.dispatcher.slots();
        let is_sought = slots.departures.as_ref().is_some_and(|departures| departures.is_sought(key, ticket));
        if let Some(slot) = slots.get(key).filter(|_| is_sought) {
            slot.place = Whereabouts::Outside;
        }
        is_sought
    }
}
