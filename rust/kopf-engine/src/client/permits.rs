//! The use of the request permits, for metrics.

use tokio::sync::Semaphore;

use super::Client;

/// How many of the request permits are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPermits {
    /// The permits in use.
    pub active: usize,
    /// All permits; none without a limit.
    pub limit: Option<usize>,
}

impl Client {
    /// The use of the request permits now. Watches need none.
    pub fn request_permits(&self) -> RequestPermits {
        let limit = self.settings.networking.request_limit;
        let all = limit.unwrap_or(Semaphore::MAX_PERMITS).clamp(1, Semaphore::MAX_PERMITS);
        RequestPermits {
            active: all.saturating_sub(self.permits.available_permits()),
            limit: limit.map(|_| all),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Fixture;

    #[tokio::test]
    async fn permits_are_active_while_they_are_held() {
        let fixture = Fixture::new(&json!({"networking": {"request_limit": 3}}), |_| (200, None));
        let client = &fixture.shared.base.client;
        let permit = client.permits.acquire().await;
        assert_eq!(client.request_permits(), RequestPermits { active: 1, limit: Some(3) });
        drop(permit);
        assert_eq!(client.request_permits(), RequestPermits { active: 0, limit: Some(3) });
    }

    #[tokio::test]
    async fn without_a_limit_there_are_only_active_permits() {
        let fixture = Fixture::new(&json!({"networking": {"request_limit": null}}), |_| (200, None));
        let client = &fixture.shared.base.client;
        assert_eq!(client.request_permits(), RequestPermits { active: 0, limit: None });
    }
}
