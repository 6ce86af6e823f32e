//! Listings whose handlers do not return: the next objects of the backlog start nevertheless.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::Dispatcher;

/// If none of the listed objects that are worked on has ended for so long, the next ones start.
const STALL: Duration = Duration::from_secs(30);

impl Dispatcher {
    /// Whether objects of a listing may have to wait for others that never end. A limit of the settings is kept in any case, as by
    /// Kopf 1.45.
    pub(crate) fn may_stall(&self) -> bool {
        self.limit.is_none()
    }

    /// Starts further objects of the backlog whenever none of the running ones has ended for [`STALL`], until it is cancelled.
    pub(crate) async fn advance_stalled(self: &Arc<Self>) -> Infallible {
        loop {
            self.backlogged.notified().await;
            while let Some(ends) = self.ends_of_backlog() {
                self.shared.base.clock.sleep(STALL).await;
                if self.ends_of_backlog() == Some(ends) {
                    self.slots().backlog.discount_running();
                    self.schedule_backlog().await;
                }
            }
        }
    }

    /// How many listed objects have ended so far; none if no object waits for its turn.
    fn ends_of_backlog(&self) -> Option<u64> {
        let slots = self.slots();
        (!slots.backlog.is_empty()).then(|| slots.backlog.ends())
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::cause::EventType;
    use serde_json::json;
    use tokio::task::JoinHandle;
    use tokio::time::advance;

    use super::super::pauses::{Scene, reply_to};
    use super::*;
    use crate::host::ActivationTask;
    use crate::objects::backlog::WINDOW;

    fn advancing(scene: &Scene) -> JoinHandle<Infallible> {
        let dispatcher = Arc::clone(&scene.dispatcher);
        tokio::spawn(async move { dispatcher.advance_stalled().await })
    }

    /// The activations after a listing of so many objects.
    async fn listed(scene: &Scene, count: usize) -> Vec<ActivationTask> {
        let mut activations = vec![];
        for number in 0..count {
            activations.extend(scene.after(EventType::Listed, &number.to_string()).await);
        }
        activations
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_objects_of_a_listing_start_if_no_handler_has_returned_for_30_seconds() {
        let scene = Scene::new(&["changing"], &json!({}));
        let advancing = advancing(&scene);
        let first = listed(&scene, 2 * WINDOW + 10).await;
        assert_eq!(first.len(), WINDOW);
        advance(Duration::from_secs(29)).await;
        assert!(scene.activations().await.is_empty());
        advance(Duration::from_secs(2)).await;
        let second = scene.activations().await;
        assert_eq!(second.len(), WINDOW);
        advance(Duration::from_secs(31)).await;
        let third = scene.activations().await;
        assert_eq!(third.len(), 10);
        assert!(scene.dispatcher.slots().backlog.is_empty());
        advancing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_wait_while_handlers_return() {
        let scene = Scene::new(&["changing"], &json!({}));
        let advancing = advancing(&scene);
        let mut running = listed(&scene, WINDOW + 10).await;
        for _ in 0..5 {
            advance(Duration::from_secs(20)).await;
            assert!(scene.activations().await.is_empty());
            reply_to(vec![running.remove(0)], &json!({}));
            let next = scene.activations().await;
            assert_eq!(next.len(), 1);
            running.extend(next);
        }
        advancing.abort();
    }
}
