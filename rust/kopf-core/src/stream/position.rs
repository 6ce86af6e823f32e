//! The position of a watch: its resource version, and whether it still delivers the initial objects (`sendInitialEvents`).

use crate::cause::EventType;

/// The position of a watch within the changes of its resource.
#[derive(Debug, Default)]
pub struct Position {
    /// The resource version of the last record, or of the listing.
    version: Option<String>,
    /// The initial objects are still being sent, as added ones.
    is_initial: bool,
    /// The current connection has delivered a record.
    has_received: bool,
}

impl Position {
    /// The position before the initial objects, which the watch delivers.
    pub fn before_initial_objects() -> Self {
        Self { is_initial: true, ..Self::default() }
    }

    /// The position after a listing of this version.
    pub fn after_listing(version: Option<String>) -> Self {
        Self { version, ..Self::default() }
    }

    /// The resource version from which the next connection resumes.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether the initial objects are not complete yet.
    pub fn is_initial(&self) -> bool {
        self.is_initial
    }

    /// Whether the current connection has delivered a record.
    pub fn has_received(&self) -> bool {
        self.has_received
    }

    /// The query parameters of a connection from here.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let version = self.version.iter().map(|version| ("resourceVersion", version.clone()));
        let initial = [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")];
        let initial = initial.map(|(name, value)| (name, value.to_owned()));
        version.chain(initial.into_iter().filter(|_| self.is_initial)).collect()
    }

    /// A connection begins.
    pub fn on_connecting(&mut self) {
        self.has_received = false;
    }

    /// The type of the event for a record of the type `ADDED`.
    pub fn type_of_added(&self) -> EventType {
        if self.is_initial { EventType::Listed } else { EventType::Added }
    }

    /// A record was received, with its version. Returns whether it shows that the watch works: the first record of its connection
    /// does, but the initial objects do not before they are complete.
    pub fn on_record(&mut self, version: Option<String>) -> bool {
        if version.is_some() {
            self.version = version;
        }
        !std::mem::replace(&mut self.has_received, true) && !self.is_initial
    }

    /// A bookmark with the annotation `k8s.io/initial-events-end` was received. Returns whether it ends the initial objects.
    pub fn on_initial_events_end(&mut self) -> bool {
        std::mem::replace(&mut self.is_initial, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_depend_on_the_version_and_on_the_initial_objects() {
        let send_initial_events = || ("sendInitialEvents", "true".to_owned());
        let not_older = || ("resourceVersionMatch", "NotOlderThan".to_owned());
        let from = |version: &str| ("resourceVersion", version.to_owned());
        let mut position = Position::before_initial_objects();
        assert_eq!(position.parameters(), [send_initial_events(), not_older()]);
        position.on_record(Some("3".to_owned()));
        assert_eq!(position.parameters(), [from("3"), send_initial_events(), not_older()]);
        position.on_initial_events_end();
        assert_eq!(position.parameters(), [from("3")]);
        assert_eq!(Position::after_listing(Some("5".to_owned())).parameters(), [from("5")]);
        assert!(Position::after_listing(None).parameters().is_empty());
    }

    #[test]
    fn initial_objects_are_listed_ones_until_the_bookmark_and_do_not_show_that_the_watch_works() {
        let mut position = Position::before_initial_objects();
        position.on_connecting();
        assert!(!position.on_record(Some("1".to_owned())));
        assert!(position.has_received() && position.is_initial());
        assert_eq!(position.type_of_added(), EventType::Listed);
        assert!(position.on_initial_events_end());
        assert_eq!(position.type_of_added(), EventType::Added);
        assert!(!position.on_initial_events_end(), "a later bookmark ends nothing");
    }

    #[test]
    fn the_first_record_of_each_connection_shows_that_the_watch_works() {
        let mut position = Position::after_listing(Some("1".to_owned()));
        for _ in 0..2 {
            position.on_connecting();
            assert!(!position.has_received());
            assert!(position.on_record(Some("2".to_owned())));
            assert!(!position.on_record(None));
            assert_eq!(position.version(), Some("2"), "records without a version do not change it");
        }
    }
}
