//! The listing at the start of a watch: its pages, and what follows if they expire.

use crate::request_error::RequestError;

/// Objects of the first page of a listing, and the fewest of the others, unless the settings specify them. It bounds the memory.
const PAGE: u64 = 500;
/// The most objects of a page.
const LARGEST_PAGE: u64 = 5_000;
/// Pages of small objects have more of them, up to about so many bytes: fewer requests list many small objects with the same memory.
const PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// A listing before its next page.
#[derive(Debug)]
pub struct Listing {
    limit: Option<u64>,
    /// The settings specify the limit.
    is_limit_set: bool,
    continue_token: Option<String>,
}

impl Listing {
    /// A listing in pages. `chunk_size` is the setting for the number of objects per page.
    pub fn new(chunk_size: Option<u64>) -> Self {
        Self {
            limit: Some(chunk_size.unwrap_or(PAGE)),
            is_limit_set: chunk_size.is_some(),
            continue_token: None,
        }
    }

    /// The maximum number of objects of the next page; none for all objects.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The token of the next page; none for the first page.
    pub fn continue_token(&self) -> Option<&str> {
        self.continue_token.as_deref()
    }

    /// A page of so many bytes was received, with the token of the next one. Returns whether the listing is complete.
    pub fn on_page(&mut self, size: usize, continue_token: Option<String>) -> bool {
        if let Some(limit) = self.limit.as_mut().filter(|_| !self.is_limit_set) {
            let size = u64::try_from(size).unwrap_or(u64::MAX).max(1);
            *limit = (PAGE_BYTES.saturating_mul(*limit) / size).clamp(PAGE, LARGEST_PAGE);
        }
        self.continue_token = continue_token;
        self.continue_token.is_none()
    }

    /// The request for a page has failed. If its token has expired, since reading was held for too long, the listing begins again
    /// without pages: another attempt in pages would fail the same way.
    ///
    /// # Errors
    /// The failure, if it ends the listing.
    pub fn on_failure(&mut self, error: RequestError) -> Result<(), RequestError> {
        if error.status() != Some(410) || self.continue_token.is_none() {
            return Err(error);
        }
        *self = Self { limit: None, is_limit_set: false, continue_token: None };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request_error::ApiError;

    /// The bytes of a page of 500 large objects.
    const LARGE: usize = 500 * 5_000;

    fn rejected(status: u16) -> RequestError {
        RequestError::Api(Box::new(ApiError::from_response(status, None, b"")))
    }

    /// The limit and the token of the next request.
    fn next(listing: &Listing) -> (Option<u64>, Option<&str>) {
        (listing.limit(), listing.continue_token())
    }

    #[test]
    fn pages_follow_each_other_until_there_is_no_token() {
        let mut listing = Listing::new(None);
        assert_eq!(next(&listing), (Some(500), None));
        assert!(!listing.on_page(LARGE, Some("a".to_owned())));
        assert_eq!(next(&listing), (Some(500), Some("a")));
        assert!(!listing.on_page(LARGE, Some("b".to_owned())));
        assert_eq!(next(&listing), (Some(500), Some("b")));
        assert!(listing.on_page(LARGE, None));
        assert_eq!(next(&Listing::new(Some(7))), (Some(7), None));
    }

    #[test]
    fn pages_of_small_objects_have_more_of_them() {
        let limits = |chunk_size, sizes: &[usize]| -> Vec<Option<u64>> {
            let mut listing = Listing::new(chunk_size);
            let follow = |size: &usize| {
                listing.on_page(*size, Some("next".to_owned()));
                listing.limit()
            };
            sizes.iter().map(follow).collect()
        };
        // 1 KiB per object; then 10 KiB; then 100 bytes.
        assert_eq!(limits(None, &[500 << 10, 20_480 << 10, 50_000]), [2_048, 500, 5_000].map(Some));
        assert_eq!(limits(None, &[0, usize::MAX]), [5_000, 500].map(Some));
        assert_eq!(limits(Some(7), &[700, 7]), [7, 7].map(Some));
    }

    #[test]
    fn a_listing_that_expires_between_its_pages_begins_again_without_pages() {
        let mut listing = Listing::new(None);
        listing.on_page(LARGE, Some("a".to_owned()));
        assert_eq!(listing.on_failure(rejected(410)), Ok(()));
        assert_eq!(next(&listing), (None, None));
    }

    #[test]
    fn other_failures_end_the_listing() {
        for (error, has_page) in [
            (rejected(410), false),
            (rejected(500), true),
            (RequestError::Timeout, true),
            (RequestError::Transport("reset".to_owned()), true),
        ] {
            let mut listing = Listing::new(None);
            if has_page {
                listing.on_page(LARGE, Some("a".to_owned()));
            }
            assert_eq!(listing.on_failure(error.clone()), Err(error));
        }
    }

    proptest! {
        /// However pages and failures follow each other: the first page has no token, and a listing without pages has no second page
        /// unless the server continues it; and if all responses are 410, a listing ends.
        #[test]
        fn listings_end(pages in 0_usize..5, chunk_size in proptest::option::of(1_u64..1000)) {
            let mut listing = Listing::new(chunk_size);
            for page in 0..pages {
                listing.on_page(LARGE, Some(page.to_string()));
            }
            let restarts = (0..10).take_while(|_| listing.on_failure(rejected(410)).is_ok()).count();
            prop_assert_eq!(restarts, usize::from(pages > 0));
            prop_assert!(listing.continue_token().is_none());
        }
    }
}
