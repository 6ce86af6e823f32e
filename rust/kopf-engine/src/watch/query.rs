//! The requests of a watch: its selectors, pages of listings, and lookups of single objects.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use kopf_core::handler::projection::Projection;
use kopf_core::json::DecodeError;
use kopf_core::object::{Object, Page, decode_page};
use kopf_core::resource::Resource;
use kopf_core::stream::Listing;

use super::{FatalRejections, Stream};
use crate::blocking::{SHORT, process};
use crate::client::RequestBody;
use crate::error::RequestError;
use crate::time::clock::Clock;
use crate::watch_health::WatchHealth;

/// Names and values of query parameters.
pub(super) type Query = Vec<(&'static str, String)>;

impl Stream {
    /// Whether an object that stops matching a selector is reported as deleted.
    pub fn is_selective(&self) -> bool {
        self.derived.is_some() || !self.selectors.is_empty()
    }

    /// The selectors of listings and watches.
    pub(super) fn selection(&self) -> Query {
        match &self.derived {
            Some(derived) => with(&self.selectors, "labelSelector", &derived.to_string()),
            None => self.selectors.clone(),
        }
    }

    /// The next page of a listing.
    pub(super) async fn page(
        &self,
        selection: Query,
        payload: RequestBody<'_>,
        listing: &Listing,
    ) -> Result<Page, RequestError> {
        let limit = listing.limit().map(|limit| ("limit", limit.to_string()));
        let mut query: Query = limit.into_iter().collect();
        query.extend(selection);
        query.extend(listing.continue_token().map(|token| ("continue", token.to_owned())));
        let url = self.url(&query);
        let body = match self.fatal {
            FatalRejections::Forbidden | FatalRejections::Permanent => {
                self.client.request_unless_forbidden(&Method::GET, &url, payload).await?
            }
            FatalRejections::None => self.client.request(&Method::GET, &url, payload).await?,
        };
        self.activity.metrics().inspect(|metrics| metrics.bytes.add(body.len()));
        decode(self.client.clock(), body).await.map_err(|error| self.malformed(&error))
    }

    /// A watch of the metadata of the objects with this label requirement, in place of those that the derived selector matches. It does
    /// not count in the health.
    #[must_use]
    pub fn of_labelled(&self, requirement: &str) -> Self {
        Self {
            client: self.client.clone(),
            resource: Arc::clone(&self.resource),
            namespace: self.namespace.clone(),
            projection: Projection::Metadata,
            selectors: with(&self.selectors, "labelSelector", requirement),
            derived: None,
            settings: Arc::clone(&self.settings),
            host: Arc::clone(&self.host),
            health: Arc::new(WatchHealth::new(self.client.clock().clone())),
            activity: Arc::default(),
            fatal: self.fatal,
            pause: self.pause.clone(),
            on_missing: None,
        }
    }

    /// Whether there are any objects, apart from those that cannot be read.
    ///
    /// # Errors
    /// Of the request, or if the response cannot be decoded.
    pub async fn has_objects(&self) -> Result<bool, RequestError> {
        let listing = Listing::new(Some(1));
        let page = self.page(self.selection(), RequestBody::PartialList, &listing).await?;
        Ok(!page.items.is_empty())
    }

    /// The current version of the resource: that of a listing of one object. The request is sent once.
    pub(super) async fn current_version(&self) -> Result<Option<String>, RequestError> {
        let url = self.url(&[("limit", "1".to_owned())]);
        let body = self.client.request_once(&Method::GET, &url, RequestBody::PartialList).await?;
        Ok(decode_page(&body).map_err(|error| self.malformed(&error))?.resource_version)
    }

    /// The next page of the metadata of all objects that match the selectors of the settings.
    ///
    /// # Errors
    /// Of the request, or if the response cannot be decoded.
    pub async fn metadata(&self, listing: &Listing) -> Result<Page, RequestError> {
        self.page(self.selectors.clone(), RequestBody::PartialList, listing).await
    }

    /// The objects of this name, if they match the selectors of the settings.
    ///
    /// A list request, not a get: it needs no further permissions, and applies the settings' selectors.
    ///
    /// # Errors
    /// Of the request, or if the response cannot be decoded.
    pub async fn find(&self, namespace: Option<&str>, name: &str) -> Result<Vec<Object>, RequestError> {
        let name = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selection = with(&self.selectors, "fieldSelector", &format!("metadata.name={name}"));
        let url = url(&self.resource, namespace, &selection);
        let body = self.client.request(&Method::GET, &url, self.or_partial(RequestBody::PartialList)).await?;
        let page = decode_page(&body).map_err(|error| self.malformed(&error))?;
        if let Some(rejected) = page.rejected.first() {
            return Err(self.malformed(&rejected.error));
        }
        page.items.into_iter().map(|object| self.restored(object)).collect()
    }
}

/// Decodes a listing. Listings without pages may be long.
async fn decode(clock: &Clock, body: Bytes) -> Result<Page, DecodeError> {
    let _busy = clock.busy(|| "the decoding of a listing".to_owned());
    process(body, SHORT, decode_page).await
}

/// The URL of the resource's objects, with a query.
pub(super) fn url(resource: &Resource, namespace: Option<&str>, query: &[(&str, String)]) -> String {
    let mut url = resource.url(namespace, None, None);
    for (index, (name, value)) in query.iter().enumerate() {
        let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        let _ = write!(url, "{}{name}={encoded}", if index == 0 { '?' } else { '&' });
    }
    url
}

/// The selectors with one more requirement.
fn with(selectors: &[(&'static str, String)], name: &'static str, requirement: &str) -> Query {
    let mut selectors = selectors.to_vec();
    match selectors.iter_mut().find(|(known, _)| *known == name) {
        Some((_, demands)) => *demands = format!("{demands},{requirement}"),
        None => selectors.push((name, requirement.to_owned())),
    }
    selectors
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures::FutureExt as _;
    use tokio::runtime::Builder;
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn long_listings_are_decoded_outside_of_the_engines_thread() {
        // The only thread for blocking work is busy, so that what needs it cannot end.
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, released) = channel::<()>();
        let clock = Clock::start();
        let item = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "n".repeat(1_000_000));
        let body = |count| {
            let items = vec![item.as_str(); count].join(",");
            Bytes::from(format!(r#"{{"kind":"List","metadata":{{}},"items":[{items}]}}"#))
        };
        runtime.block_on(async {
            let busy = spawn_blocking(move || released.recv());
            let page = decode(&clock, body(1)).now_or_never().unwrap();
            assert_eq!(page.unwrap().items.len(), 1);
            let mut decoding = Box::pin(decode(&clock, body(5)));
            assert!(decoding.as_mut().now_or_never().is_none());
            release.send(()).unwrap();
            assert_eq!(decoding.await.unwrap().items.len(), 5);
            busy.await.unwrap().unwrap();
        });
    }

    #[test]
    fn demands_add_up() {
        let fields = ("fieldSelector", "a=b".to_owned());
        assert_eq!(with(&[], "labelSelector", "c"), [("labelSelector", "c".to_owned())]);
        assert_eq!(
            with(std::slice::from_ref(&fields), "labelSelector", "c"),
            [fields.clone(), ("labelSelector", "c".to_owned())]
        );
        assert_eq!(with(&[fields], "fieldSelector", "c=d"), [("fieldSelector", "a=b,c=d".to_owned())]);
    }
}
