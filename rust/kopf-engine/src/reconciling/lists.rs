//! The last complete lists of the feeds of one reconciler: after a pause of the operator, calls wait for new ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kopf_core::readiness::ReadinessBarrier;

use super::event::FeedId;

/// The last complete list of each feed, with the name of its stream and the number of pauses and terms before it. Feeds without one are not awaited: their kinds
/// or namespaces have just appeared.
#[derive(Debug, Default)]
pub(super) struct CompleteLists {
    feeds: HashMap<FeedId, (u64, Arc<str>)>,
    ordered: BTreeSet<(u64, FeedId)>,
}

impl CompleteLists {
    /// Records a complete list of the feed, whose stream has started after so many pauses and terms.
    pub(super) fn insert(&mut self, feed: FeedId, stream: &Arc<str>, pauses: u64) {
        self.remove(feed);
        self.feeds.insert(feed, (pauses, Arc::clone(stream)));
        self.ordered.insert((pauses, feed));
    }

    /// Forgets a feed that has ended.
    pub(super) fn remove(&mut self, feed: FeedId) {
        if let Some((pauses, _)) = self.feeds.remove(&feed) {
            self.ordered.remove(&(pauses, feed));
        }
    }

    /// Whether all lists have begun after so many pauses and terms.
    pub(super) fn are_after(&self, pauses: u64) -> bool {
        self.ordered.first().is_none_or(|(listed, _)| *listed >= pauses)
    }

    /// The names of the streams whose last list is older.
    pub(super) fn before(&self, pauses: u64) -> impl Iterator<Item = &str> {
        let older = self.ordered.range(..(pauses, FeedId::MIN));
        older.filter_map(|(_, feed)| self.feeds.get(feed).map(|(_, stream)| &**stream))
    }
}

/// The wait for the lists after a pause, or at the start of a term. It is reported as that at the start.
pub(super) struct Relisting {
    /// The number of pauses and terms.
    pub(super) pauses: u64,
    pub(super) barrier: ReadinessBarrier,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(feed: FeedId) -> Arc<str> {
        format!("stream {feed}").into()
    }

    #[test]
    fn all_feeds_are_listed_after_a_pause() {
        let mut lists = CompleteLists::default();
        assert!(lists.are_after(3), "there is no feed yet");
        lists.insert(7, &stream(7), 0);
        lists.insert(8, &stream(8), 0);
        assert!(lists.are_after(0) && !lists.are_after(1));
        lists.insert(7, &stream(7), 1);
        assert!(!lists.are_after(1), "one of two");
        assert!(lists.before(1).eq(["stream 8"]) && lists.before(0).next().is_none());
        lists.insert(8, &stream(8), 1);
        assert!(lists.are_after(1) && !lists.are_after(2));
        lists.insert(7, &stream(7), 2);
        lists.remove(8);
        assert!(lists.are_after(2), "feeds that have ended are not awaited");
    }
}
