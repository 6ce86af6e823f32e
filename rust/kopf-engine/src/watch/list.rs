//! The listing at the start of a watch, page by page.

use kopf_core::cause::EventType;
use kopf_core::log_level::Level;
use kopf_core::stream::Listing;
use tokio::time::Instant;

use super::{Cursor, Stream, WatchConsumer};
use crate::client::RequestBody;
use crate::error::RequestError;

/// Number of objects that are passed on without a pause. A listing without pages has all objects of the resource.
const BATCH: usize = 100;

impl Stream {
    /// Lists all objects; returns the resource version of the listing.
    pub(super) async fn list(
        &self,
        cursor: &mut Cursor,
        consumer: &mut dyn WatchConsumer,
    ) -> Result<Option<String>, RequestError> {
        let mut listing = Listing::new(self.settings.watching.chunk_size);
        begin_listing(cursor, consumer);
        let begun = Instant::now();
        loop {
            let payload = self.or_partial(RequestBody::PartialList);
            self.activity.wait(None);
            let page = match self.page(self.selection(), payload, &listing).await {
                Ok(page) => page,
                Err(error) => {
                    listing.on_failure(error)?;
                    let what = self.what();
                    self.log(
                        Level::Info,
                        format!(
                            "The listing of {what} has expired between its pages, listing at once instead."
                        ),
                    );
                    begin_listing(cursor, consumer);
                    continue;
                }
            };
            let mut items = page.items.into_iter();
            while items.len() > 0 {
                for object in items.by_ref().take(BATCH) {
                    self.activity.metrics().inspect(|metrics| metrics.on_record(EventType::Listed));
                    self.event(EventType::Listed, object, cursor, consumer)?;
                }
                if items.len() > 0 {
                    make_way(consumer).await;
                }
            }
            for rejected in page.rejected {
                self.reject(rejected, false, cursor, consumer);
            }
            make_way(consumer).await;
            if listing.on_page(page.size, page.continue_token) {
                self.health.on_data(&self.what());
                self.activity.metrics().inspect(|metrics| metrics.on_list(begun.elapsed().as_secs_f64()));
                self.end_listing(cursor, consumer);
                return Ok(page.resource_version);
            }
        }
    }

    /// Completes the listing.
    pub(super) fn end_listing(&self, cursor: &mut Cursor, consumer: &mut dyn WatchConsumer) {
        cursor.rejections.end_listing();
        self.health.rejected(&self.what(), cursor.rejections.len());
        self.health.listed(&self.what());
        consumer.on_init_done();
    }
}

/// Lets other tasks run, and waits until more events can be taken.
async fn make_way(consumer: &mut dyn WatchConsumer) {
    tokio::task::yield_now().await;
    if let Some(ready) = consumer.ready() {
        ready.await;
    }
}

/// Starts a listing.
pub(super) fn begin_listing(cursor: &mut Cursor, consumer: &mut dyn WatchConsumer) {
    cursor.rejections.begin_listing();
    consumer.on_init();
}
