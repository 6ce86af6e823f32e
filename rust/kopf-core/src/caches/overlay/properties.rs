//! W1–W6 as properties over random orders of writes, responses, events and lists (scenario 2.7.6), against a model of the API server.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Another client changes, deletes or creates the object.
    Change,
    Delete,
    /// An own write is executed, and its response is on its way.
    Write,
    WriteNothing,
    OwnDelete,
    /// The oldest or the newest response arrives, or is lost.
    Respond {
        newest: bool,
        is_lost: bool,
    },
    Reject,
    /// The watch delivers the next event.
    Watch,
    StartList,
    FinishList,
    Wait(f64),
}

fn events() -> impl Strategy<Value = Event> {
    let respond = (any::<bool>(), prop::bool::weighted(0.2));
    prop_oneof![
        4 => Just(Event::Change),
        1 => Just(Event::Delete),
        5 => Just(Event::Write),
        1 => Just(Event::WriteNothing),
        1 => Just(Event::OwnDelete),
        6 => respond.prop_map(|(newest, is_lost)| Event::Respond { newest, is_lost }),
        1 => Just(Event::Reject),
        8 => Just(Event::Watch),
        1 => Just(Event::StartList),
        1 => Just(Event::FinishList),
        1 => (0.0..4.0).prop_map(Event::Wait),
    ]
}

/// One state of the object on the server: its uid, or its absence; its number is its resource version.
type Stored = Option<u32>;

#[derive(Default)]
struct Model {
    object: CachedObject<()>,
    /// All states on the server: the index is the resource version.
    history: Vec<Stored>,
    /// The version up to which the watch has delivered.
    delivered: usize,
    uids: u32,
    responses: Vec<(WriteResponse<()>, usize)>,
    lists: u64,
    /// The version of a list that has started, and its number.
    list: Option<(usize, ListId)>,
    now: f64,
    /// Acknowledged own writes that are not delivered: the version, and the time of the response.
    acknowledged: Vec<(usize, f64)>,
    /// Versions that a list has skipped: from, to, and its number.
    skipped: Vec<(usize, usize, ListId)>,
    /// Acknowledged deletions: the version, the time of the response, and the last list before it.
    deletions: Vec<(usize, f64, ListId)>,
    /// The ends of the waits for lost responses, with the last list before each.
    uncertain: Vec<(f64, ListId)>,
}

const TIMEOUT: f64 = 5.0;

impl Model {
    fn state(&self, version: usize) -> Option<Version<()>> {
        let uid = self.history[version]?;
        Some(Version { uid: uid.to_string().into(), version: version.to_string().into(), body: () })
    }

    fn latest(&self) -> usize {
        self.history.len() - 1
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(0).plus(self.now)
    }

    fn store(&mut self) -> usize {
        let uid = self.history[self.latest()].unwrap_or_else(|| {
            self.uids += 1;
            self.uids
        });
        self.history.push(Some(uid));
        self.latest()
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Change => {
                self.store();
            }
            Event::Delete if self.history[self.latest()].is_some() => self.history.push(None),
            // The order of overlapping own deletions and other own writes is not known to the operator.
            Event::Write | Event::WriteNothing | Event::OwnDelete if self.is_deleting() => {}
            Event::OwnDelete if !self.responses.is_empty() => {}
            Event::Write => {
                self.object.start_write();
                let version = self.store();
                self.responses
                    .extend(self.state(version).map(|state| (WriteResponse::Written(state), version)));
            }
            Event::WriteNothing => {
                if let Some(state) = self.state(self.latest()) {
                    self.object.start_write();
                    self.responses.push((WriteResponse::Written(state), self.latest()));
                }
            }
            Event::OwnDelete => {
                if let Some(uid) = self.history[self.latest()] {
                    self.object.start_write();
                    self.history.push(None);
                    self.responses.push((WriteResponse::Gone(uid.to_string().into()), self.latest()));
                }
            }
            Event::Respond { newest, is_lost } if !self.responses.is_empty() => {
                let index = if newest { self.responses.len() - 1 } else { 0 };
                let (response, version) = self.responses.remove(index);
                self.respond(response, version, is_lost);
            }
            Event::Reject => {
                self.object.start_write();
                let before = self.object.read().cloned();
                self.object.finish_write(WriteResponse::Without, ListId(self.lists), TIMEOUT, self.at());
                assert_eq!(self.object.read(), before.as_ref(), "W6");
            }
            Event::Watch if self.delivered < self.latest() => self.watch(),
            Event::StartList => {
                self.lists += 1;
                self.list = Some((self.latest(), ListId(self.lists)));
            }
            Event::FinishList => {
                // The watch continues from the version of the list; a list never goes back.
                if let Some((version, list)) =
                    self.list.take().filter(|(version, _)| *version >= self.delivered)
                {
                    self.object.deliver_list(self.state(version), list, &version.to_string());
                    self.skipped.push((self.delivered, version, list));
                    self.delivered = version;
                    self.uncertain.retain(|(_, after)| list <= *after);
                }
            }
            Event::Wait(seconds) => {
                self.now += seconds;
                self.object.expire(self.at());
            }
            Event::Delete | Event::Respond { .. } | Event::Watch => {}
        }
        self.check();
    }

    fn respond(&mut self, response: WriteResponse<()>, version: usize, is_lost: bool) {
        let response = if is_lost { WriteResponse::Uncertain } else { response };
        if is_lost {
            // The last wait ends after all others.
            self.uncertain.push((self.now + TIMEOUT, ListId(self.lists)));
        } else {
            // A response of an earlier version adds no wait, and neither does one that has changed nothing.
            if self.acknowledged.iter().all(|(known, _)| *known < version) {
                self.acknowledged.push((version, self.now));
            }
            if matches!(response, WriteResponse::Gone(_)) {
                self.deletions.push((version, self.now, ListId(self.lists)));
            }
        }
        self.object.finish_write(response, ListId(self.lists), TIMEOUT, self.at());
    }

    fn watch(&mut self) {
        self.delivered += 1;
        match (self.state(self.delivered), self.history[self.delivered - 1]) {
            (Some(state), _) => self.object.deliver(state),
            (None, Some(uid)) => self.object.deliver_deletion(&uid.to_string()),
            (None, None) => {}
        }
    }

    fn check(&mut self) {
        let (now, delivered) = (self.now, self.delivered);
        self.acknowledged.retain(|(version, since)| *version > delivered && since + TIMEOUT > now);
        self.uncertain.retain(|(until, _)| *until > now);
        let newest = self.acknowledged.iter().map(|(version, _)| *version).max();
        // W1, s2.7.5: the cache shows a state that is not older than any acknowledged own write.
        if let Some(newest) = newest {
            let shown = self.object.read().map(|state| state.version.parse::<usize>().unwrap());
            match shown {
                Some(shown) => {
                    assert!(shown >= newest, "W1: version {shown} is shown after the write of {newest}");
                }
                None => {
                    assert!(self.is_absent_since(newest), "W1: nothing is shown after the write of {newest}");
                }
            }
            assert!(self.object.deadline().is_some(), "W5: the write of {newest} is not awaited");
        } else {
            // W4: a list that has skipped a deletion, and has started before its response, does not show the deletion.
            if self.read_is_none() && self.is_deletion_skipped() {
                return;
            }
            // W2, W3: without such a write, it shows what is delivered.
            let expected = self.state(delivered);
            assert_eq!(self.object.read(), expected.as_ref(), "W2: a stale overlay");
            assert_eq!(self.object.deadline().is_some(), !self.uncertain.is_empty(), "W5, W6");
        }
    }

    fn is_deleting(&self) -> bool {
        self.responses.iter().any(|(response, _)| matches!(response, WriteResponse::Gone(_)))
    }

    fn read_is_none(&self) -> bool {
        self.object.read().is_none()
    }

    fn is_deletion_skipped(&self) -> bool {
        let is_awaited = |(version, since, after): &(usize, f64, ListId)| {
            let mut skipped = self.skipped.iter().filter(|(from, to, _)| from < version && version <= to);
            since + TIMEOUT > self.now && skipped.any(|(_, _, list)| list <= after)
        };
        self.deletions.iter().any(is_awaited)
    }

    /// Whether the object was absent at this version or later.
    fn is_absent_since(&self, version: usize) -> bool {
        self.history[version..].contains(&None)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn s2_7_6_properties_of_w1_to_w6(exists in any::<bool>(), events in vec(events(), 1..30)) {
        let mut model = Model { history: vec![exists.then_some(0)], ..Model::default() };
        let first = model.state(0);
        model.object.deliver_list(first, ListId(0), "0");
        for event in events {
            model.execute(event);
        }
        while !model.responses.is_empty() {
            model.execute(Event::Respond { newest: true, is_lost: false });
        }
        while model.delivered < model.latest() {
            model.execute(Event::Watch);
        }
        model.execute(Event::Wait(TIMEOUT));
        let last = model.state(model.latest());
        prop_assert_eq!(model.object.read(), last.as_ref());
        prop_assert!(model.object.seen.is_empty());
    }
}
