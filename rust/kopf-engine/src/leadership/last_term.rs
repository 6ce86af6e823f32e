//! The last term of the last replica: no other replica acquires the Lease that it has released.
//!
//! Only then, the operator removes what the next leader would need. The replica acquires the Lease for that: no other replica can
//! become the leader and write the same objects meanwhile.

use std::sync::Arc;
use std::time::Duration;

use kopf_core::lease::{Input, Options, Record, Term, Version};
use tokio::time::{sleep, timeout};

use super::lease_client::LeaseClient;
use crate::fence::Fence;
use crate::time::clock::Clock;

/// The interval of reads of the released Lease.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long other replicas may take to acquire the Lease. Those that watch it acquire it at once, and those that do not every two
/// seconds, by default. If one needs longer, it waits for the end of the last term.
const TAKEOVER: Duration = Duration::from_secs(3);

/// A term whose fence is open until it is released.
#[derive(Debug)]
pub(super) struct LastTerm {
    version: Version,
    number: i64,
}

impl LastTerm {
    /// Acquires the released Lease, unless another replica does within [`TAKEOVER`]. None if another replica has acquired it, or if
    /// that is not known.
    pub(super) async fn acquire(
        client: &Arc<LeaseClient>,
        fence: &Fence,
        (identity, options): (&str, &Options),
        clock: &Clock,
    ) -> Option<Self> {
        // As all timeouts of the exit, this one uses real time.
        if timeout(TAKEOVER, until_held(client)).await.is_ok() {
            return None;
        }
        let Input::Read(Ok(Some(lease))) = Arc::clone(client).read().await.input else { return None };
        if lease.record.holder.is_some() {
            return None;
        }
        let number = lease.record.transitions.saturating_add(1);
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of seconds; the cast saturates")]
        let duration = options.lease_duration as i64;
        let record = Record { holder: Some(identity.to_owned()), duration, transitions: number };
        let sent = clock.boot_now();
        // The server compares the version: if another replica is faster, this is a conflict.
        let written = Arc::clone(client).update(lease.version, record).await;
        let Input::Written(Ok(version)) = written.input else { return None };
        let term = Term { number, until: sent.plus(options.renew_deadline) };
        fence.open(term).then_some(Self { version, number })
    }

    /// Closes the fence, and releases the Lease. Without a response, it expires.
    pub(super) async fn release(self, client: &Arc<LeaseClient>, fence: &Fence) {
        fence.close();
        let _expires = Arc::clone(client).update(self.version, Record::released(self.number)).await;
    }
}

/// Waits until a replica holds the Lease.
async fn until_held(client: &Arc<LeaseClient>) {
    loop {
        if let Input::Read(Ok(Some(lease))) = Arc::clone(client).read().await.input
            && lease.record.holder.is_some()
        {
            return;
        }
        sleep(INTERVAL).await;
    }
}
