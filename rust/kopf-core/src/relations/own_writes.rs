//! The writes of a primary's reconciliations, to recognise the watch events that they have caused (1.7).

use super::written_fields::{WrittenFields, other_managers};
use crate::json::path::FieldPath;
use crate::object::Object;

/// A watch event of an object, and the state that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOrigin<'a> {
    /// It arrived by a watch, not by a list.
    pub is_watched: bool,
    /// Its resource version.
    pub version: &'a str,
    /// The resource version that was known before it; none if the object was not known.
    pub previous: Option<&'a str>,
}

/// A successful write that has changed its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnWrite {
    /// The resource version that was known when the write was sent; none if the object was not known.
    pub known: Option<Box<str>>,
    /// The resource version of the response.
    pub version: Box<str>,
    /// Whether the state in the response is known to be that of this write. A write that finds nothing to change is answered
    /// with the state that another client has written.
    pub is_last: bool,
    /// The written fields; none if they were not recorded.
    pub fields: Option<WrittenFields>,
}

/// The relation of own writes to an event of their object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It is the event of an own write.
    OwnWrite,
    /// Another client has changed written fields after it: these, with their managers; or any if the fields were not recorded.
    ChangedBack(Vec<(FieldPath, Vec<String>)>),
    /// None.
    Other,
}

/// The writes of the current and the previous reconciliation, by the written object.
#[derive(Clone, Debug)]
pub struct OwnWrites<S> {
    current: Vec<(S, OwnWrite)>,
    previous: Vec<(S, OwnWrite)>,
    /// The newest versions of the objects: of a write, or of an event.
    latest: Vec<(S, Box<str>)>,
}

impl<S> Default for OwnWrites<S> {
    fn default() -> Self {
        Self { current: vec![], previous: vec![], latest: vec![] }
    }
}

impl<S: PartialEq + Clone> OwnWrites<S> {
    /// Records the start of a reconciliation: writes before the previous one are forgotten.
    pub fn start(&mut self) {
        self.previous = std::mem::take(&mut self.current);
        let Self { previous, latest, .. } = self;
        latest.retain(|(object, _)| previous.iter().any(|(written, _)| written == object));
    }

    /// Records a write.
    pub fn record(&mut self, object: S, write: OwnWrite) {
        self.set_latest(&object, &write.version);
        self.current.push((object, write));
    }

    /// Whether the current reconciliation has changed anything.
    pub(super) fn has_changed(&self) -> bool {
        !self.current.is_empty()
    }

    /// Whether the current or the previous reconciliation has written the object.
    pub(super) fn has_written(&self, object: &S) -> bool {
        self.of(object).next().is_some()
    }

    /// Whether no write is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.current.is_empty() && self.previous.is_empty()
    }

    /// Whether the event contains nothing but an own write: no other client has written since the state that was known when
    /// the write was sent.
    pub fn explains(&self, object: &S, event: EventOrigin<'_>) -> bool {
        event.is_watched
            && self.of(object).any(|write| {
                write.is_last && *write.version == *event.version && write.known.as_deref() == event.previous
            })
    }

    /// What own writes have to do with an event of this version and state. It is less strict than [`OwnWrites::explains`].
    pub(super) fn cause(&self, object: &S, version: &str, state: &Object) -> Cause {
        if self.of(object).any(|write| *write.version == *version) {
            return Cause::OwnWrite;
        }
        match self.of(object).last().map(|write| &write.fields) {
            None => Cause::Other,
            Some(None) => Cause::ChangedBack(vec![]),
            Some(Some(fields)) => {
                let managers = |path: &FieldPath| other_managers(state, path, fields.manager());
                let changed: Vec<_> =
                    fields.differing(state).map(|path| (path.clone(), managers(path))).collect();
                if changed.is_empty() { Cause::Other } else { Cause::ChangedBack(changed) }
            }
        }
    }

    /// Records the version of an event of an object, if it was written.
    pub(super) fn observe(&mut self, object: &S, version: &str) {
        if self.has_written(object) {
            self.set_latest(object, version);
        }
    }

    /// The newest version of a written object, if it is known.
    pub(super) fn latest(&self, object: &S) -> Option<&str> {
        self.latest.iter().find(|(written, _)| written == object).map(|(_, version)| &**version)
    }

    /// The fields that the write with this version has changed since the object's write before it; none if that is unknown.
    pub(super) fn changed_fields(&self, object: &S, version: &str) -> Vec<&FieldPath> {
        let mut before = None;
        for write in self.of(object) {
            if *write.version == *version {
                let both = write.fields.as_ref().zip(before);
                return both.map(|(fields, before)| fields.changed_since(before)).unwrap_or_default();
            }
            before = write.fields.as_ref();
        }
        vec![]
    }

    fn set_latest(&mut self, object: &S, version: &str) {
        match self.latest.iter_mut().find(|(written, _)| written == object) {
            Some((_, latest)) => *latest = version.into(),
            None => self.latest.push((object.clone(), version.into())),
        }
    }

    fn of(&self, object: &S) -> impl Iterator<Item = &OwnWrite> {
        let all = self.previous.iter().chain(&self.current);
        all.filter(move |(written, _)| written == object).map(|(_, write)| write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event<'a>(version: &'a str, previous: Option<&'a str>) -> EventOrigin<'a> {
        EventOrigin { is_watched: true, version, previous }
    }

    fn write(known: Option<&str>, version: &str) -> OwnWrite {
        OwnWrite { known: known.map(Box::from), version: version.into(), is_last: true, fields: None }
    }

    #[test]
    fn s1_14_23_only_events_without_writes_of_other_clients_are_explained() {
        let mut writes = OwnWrites::default();
        writes.start();
        writes.record("x", write(Some("5"), "6"));
        writes.record("new", write(None, "9"));
        assert!(writes.explains(&"x", event("6", Some("5"))));
        assert!(writes.explains(&"new", event("9", None)), "a creation");
        assert!(!writes.explains(&"x", event("6", Some("4"))), "another client wrote version 5");
        assert!(!writes.explains(&"x", event("6", None)));
        assert!(!writes.explains(&"x", event("7", Some("6"))), "another client's write");
        assert!(!writes.explains(&"y", event("6", Some("5"))));
        assert!(!writes.explains(&"x", EventOrigin { is_watched: false, ..event("6", Some("5")) }), "a list");
    }

    #[test]
    fn a_write_that_may_have_changed_nothing_explains_no_event() {
        let mut writes = OwnWrites::default();
        // Another client has written version 6 after 5; the own write found nothing to change.
        writes.record("x", OwnWrite { is_last: false, ..write(Some("5"), "6") });
        assert!(!writes.explains(&"x", event("6", Some("5"))));
    }

    #[test]
    fn writes_count_in_the_current_and_the_previous_reconciliation() {
        let mut writes = OwnWrites::default();
        writes.record("x", write(Some("5"), "6"));
        assert!(writes.has_changed());
        writes.start();
        assert!(writes.explains(&"x", event("6", Some("5"))) && !writes.has_changed());
        writes.start();
        assert!(!writes.explains(&"x", event("6", Some("5"))) && writes.is_empty());
    }

    #[test]
    fn fields_that_are_changed_back_are_recognised() {
        let state = |value: u8| Object::decode(&json!({"spec": {"a": value}}).to_string()).unwrap();
        let request = json!({"spec": {"a": 1}});
        let mut writes = OwnWrites::default();
        writes.record("x", write(None, "5"));
        assert_eq!(writes.cause(&"x", "5", &state(1)), Cause::OwnWrite);
        assert_eq!(writes.cause(&"x", "6", &state(1)), Cause::ChangedBack(vec![]), "any change");
        let fields = Some(WrittenFields::of(&request, &state(1), "kopf"));
        writes.record("x", OwnWrite { fields, ..write(Some("5"), "7") });
        assert_eq!(writes.cause(&"x", "8", &state(1)), Cause::Other);
        assert_eq!(
            writes.cause(&"x", "8", &state(2)),
            Cause::ChangedBack(vec![(FieldPath::from_keys(["spec", "a"]), vec![])])
        );
        assert_eq!(writes.cause(&"y", "8", &state(2)), Cause::Other);
    }
}
