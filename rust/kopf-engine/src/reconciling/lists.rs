//! The last complete lists of the feeds of one reconciler: after a pause of the operator, calls wait for new ones.

use std::collections::{BTreeSet, HashMap};

use super::event::FeedId;

/// The last complete list of each feed, with the number of pauses and terms before it. Feeds without one are not awaited: their kinds
/// or namespaces have just appeared.
#[derive(Debug, Default)]
pub(super) struct CompleteLists {
    pauses: HashMap<FeedId, u64>,
    ordered: BTreeSet<(u64, FeedId)>,
}

impl CompleteLists {
    /// Records a complete list of the feed, whose stream has started after so many pauses and terms.
    pub(super) fn insert(&mut self, feed: FeedId, pauses: u64) {
        self.remove(feed);
        self.pauses.insert(feed, pauses);
        self.ordered.insert((pauses, feed));
    }

    /// Forgets a feed that has ended.
    pub(super) fn remove(&mut self, feed: FeedId) {
        if let Some(pauses) = self.pauses.remove(&feed) {
            self.ordered.remove(&(pauses, feed));
        }
    }

    /// Whether all lists have begun after so many pauses and terms.
    pub(super) fn are_after(&self, pauses: u64) -> bool {
        self.ordered.first().is_none_or(|(listed, _)| *listed >= pauses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_feeds_are_listed_after_a_pause() {
        let mut lists = CompleteLists::default();
        assert!(lists.are_after(3), "there is no feed yet");
        lists.insert(7, 0);
        lists.insert(8, 0);
        assert!(lists.are_after(0) && !lists.are_after(1));
        lists.insert(7, 1);
        assert!(!lists.are_after(1), "one of two");
        lists.insert(8, 1);
        assert!(lists.are_after(1) && !lists.are_after(2));
        lists.insert(7, 2);
        lists.remove(8);
        assert!(lists.are_after(2), "feeds that have ended are not awaited");
    }
}
