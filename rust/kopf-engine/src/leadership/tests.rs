//! Electors and a server with one Lease, in virtual time.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::last_term::LastTerm;
use super::*;
use crate::testing::{FakeResponse, Fixture, Got, lock};

/// Longer than any election takes.
const LIMIT: Duration = Duration::from_mins(2);

/// A server with one Lease.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    versions: Mutex<u64>,
    mode: Mutex<Mode>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    #[default]
    Working,
    /// It executes writes, but sends no responses.
    Silent,
    /// It rejects all requests.
    Forbidden,
}

impl Server {
    fn respond(&self, got: &Got) -> FakeResponse {
        let mode = *lock(&self.mode);
        if got.path.starts_with("/slow") {
            return (0, None);
        }
        if mode == Mode::Forbidden {
            return (403, Some(json!({"kind": "Status", "message": "not allowed"})));
        }
        let response = self.execute(got);
        if mode == Mode::Silent { (0, None) } else { response }
    }

    fn execute(&self, got: &Got) -> FakeResponse {
        let mut lease = lock(&self.lease);
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (got.method.as_str(), lease.as_ref()) {
            ("GET", None) => return (404, Some(json!({}))),
            ("GET", Some(lease)) => return (200, Some(lease.clone())),
            ("POST", None) => {}
            ("PUT", Some(present)) if version(present) == version(&got.body) => {}
            _ => return (409, Some(json!({}))),
        }
        let mut versions = lock(&self.versions);
        *versions += 1;
        let mut new = got.body.clone();
        new["metadata"]["resourceVersion"] = json!(versions.to_string());
        *lease = Some(new.clone());
        (200, Some(new))
    }

    fn spec(&self) -> Value {
        lock(&self.lease).as_ref().map(|lease| lease["spec"].clone()).unwrap_or_default()
    }

    fn set(&self, mode: Mode) {
        *lock(&self.mode) = mode;
    }
}

/// A replica that takes part in the election.
struct Replica {
    fixture: Fixture,
    fence: Arc<Fence>,
    election: Election,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(server: &Arc<Server>, identity: &str) -> Self {
        let server = Arc::clone(server);
        let settings = json!({"networking": {"request_limit": 1, "error_backoffs": []}});
        let fixture = Fixture::new(&settings, move |got: &Got| server.respond(got));
        let base = &fixture.shared.base;
        let fence = Arc::new(Fence::new(base.clock.clone()));
        let config = LeaseConfig {
            namespace: "ns".to_owned(),
            name: "operator".to_owned(),
            identity: identity.to_owned(),
            options: Options { warm: false, ..Options::default() },
        };
        let (elector, election) = Elector::new(
            config,
            base.client.clone(),
            Arc::clone(&fence),
            base.clock.clone(),
            Arc::clone(&base.host),
        );
        Self { fixture, fence, election, task: tokio::spawn(elector.run()) }
    }

    async fn until(&self, role: Role) {
        let mut roles = self.election.role();
        let reached = timeout(LIMIT, roles.wait_for(|present| *present == role)).await;
        assert!(reached.is_ok(), "{role:?} is not reached, but {:?}", self.election.role().borrow());
    }

    fn is_leader(&self, term: i64) -> bool {
        self.fence.pass(term).is_ok()
    }

    fn writes(&self) -> usize {
        self.fixture.requests().iter().filter(|got| got.method != "GET").count()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_replica_creates_the_lease_and_renews_it_every_retry_period() {
    let server = Arc::default();
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    let created = server.spec();
    assert_eq!(created["holderIdentity"], "first");
    assert_eq!((&created["leaseDurationSeconds"], &created["leaseTransitions"]), (&json!(15), &json!(0)));
    sleep(Duration::from_mins(1)).await;
    assert!(replica.is_leader(0) && !replica.is_leader(1));
    assert!((30..=32).contains(&replica.writes()), "{}", replica.writes());
    let renewed = server.spec();
    assert_eq!(renewed["acquireTime"], created["acquireTime"]);
    assert_ne!(renewed["renewTime"], created["renewTime"]);
    assert_eq!(replica.fixture.lines("Became the leader by the lease ns/operator in term 0.").len(), 1);
}

/// LEA-1.
#[tokio::test(start_paused = true)]
async fn one_of_three_replicas_that_start_at_once_leads_within_three_seconds() {
    let server = Arc::default();
    let replicas = ["one", "two", "three"].map(|identity| Replica::start(&server, identity));
    sleep(Duration::from_secs(3)).await;
    for _ in 0..60 {
        assert_eq!(replicas.iter().filter(|replica| replica.is_leader(0)).count(), 1);
        sleep(Duration::from_secs(1)).await;
    }
}

/// LEA-3.
#[tokio::test(start_paused = true)]
async fn a_second_replica_leads_only_after_the_lease_has_expired() {
    let server = Arc::default();
    let first = Replica::start(&server, "first");
    first.until(Role::Leader(0)).await;
    let second = Replica::start(&server, "second");
    sleep(Duration::from_secs(61)).await;
    assert_eq!((first.is_leader(0), *second.election.role().borrow()), (true, Role::Standby));
    first.task.abort();
    let deadline = first.fence.deadline(0).unwrap();
    let last_renewal = deadline.plus(-10.0);
    second.until(Role::Leader(1)).await;
    let passed = first.fixture.shared.base.clock.boot_now().seconds_since(last_renewal);
    assert!((15.0..=18.0).contains(&passed), "{passed}");
    assert!(!first.is_leader(0));
    assert_eq!(server.spec()["holderIdentity"], "second");
}

/// LEA-2.
#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_the_last_call_and_acquired_within_a_retry_period() {
    let server = Arc::default();
    let first = Replica::start(&server, "first");
    first.until(Role::Leader(0)).await;
    let second = Replica::start(&server, "second");
    sleep(Duration::from_secs(5)).await;
    first.election.command(Command::Release);
    sleep(Duration::from_secs(30)).await;
    assert!(first.is_leader(0), "its calls still run");
    first.election.report_drained();
    let start = Instant::now();
    timeout(LIMIT, first.task).await.unwrap().unwrap();
    assert_eq!(server.spec()["holderIdentity"], "");
    assert_eq!(first.fence.pass(0), Err(crate::fence::Fenced));
    second.until(Role::Leader(1)).await;
    assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
}

/// LEA-6 and LEA-7.
#[tokio::test(start_paused = true)]
async fn a_leader_without_responses_stops_at_the_deadline_and_leads_again_after_its_calls_have_ended() {
    let server = Arc::<Server>::default();
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    sleep(Duration::from_secs(9)).await;
    server.set(Mode::Silent);
    let deadline = replica.fence.deadline(0).unwrap();
    replica.until(Role::Draining(0)).await;
    let clock = &replica.fixture.shared.base.clock;
    let late = clock.boot_now().seconds_since(deadline);
    assert!((0.0..0.01).contains(&late), "{late}");
    assert!(!replica.is_leader(0));
    server.set(Mode::Working);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(*replica.election.role().borrow(), Role::Draining(0), "calls of the term still run");
    replica.election.report_drained();
    let start = Instant::now();
    replica.until(Role::Leader(1)).await;
    assert!(start.elapsed() < Duration::from_secs(1), "no other replica can lead: {:?}", start.elapsed());
    assert!(!replica.is_leader(0) && replica.is_leader(1));
}

#[tokio::test(start_paused = true)]
async fn renewals_that_read_the_lease_after_a_conflict_are_counted() {
    let server = Arc::<Server>::default();
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(replica.election.slow_renewals(), 0);
    for count in 1..=2 {
        // Another client changes the Lease, but not its record.
        lock(&server.lease).as_mut().unwrap()["metadata"]["resourceVersion"] = json!(format!("x{count}"));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(replica.election.slow_renewals(), count);
    }
    assert!(replica.is_leader(0));
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_lease_was_taken_stands_by_until_that_of_the_other_one_has_expired() {
    let server = Arc::<Server>::default();
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    *lock(&server.lease) = Some(json!({
        "metadata": {"name": "operator", "resourceVersion": "x"},
        "spec": {"holderIdentity": "other", "leaseTransitions": 1, "leaseDurationSeconds": 15},
    }));
    replica.until(Role::Draining(0)).await;
    replica.election.report_drained();
    replica.until(Role::Standby).await;
    let start = Instant::now();
    replica.until(Role::Leader(2)).await;
    assert!((12..=18).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(!replica.is_leader(0) && replica.is_leader(2));
}

#[tokio::test(start_paused = true)]
async fn renewals_wait_for_no_other_request() {
    let server = Arc::default();
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    let client = replica.fixture.shared.base.client.clone();
    // It has the only permit, and never ends.
    let slow = tokio::spawn(async move { client.get("/slow").await });
    sleep(Duration::from_mins(1)).await;
    assert!(replica.is_leader(0));
    assert!(!slow.is_finished());
    slow.abort();
}

/// LEA-13.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_logged_once_and_the_replica_leads_after_it_is_granted() {
    let server = Arc::<Server>::default();
    server.set(Mode::Forbidden);
    let replica = Replica::start(&server, "first");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(*replica.election.role().borrow(), Role::Standby);
    let lines = replica.fixture.lines("leases.coordination.k8s.io");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["error Cannot get ", r#""operator""#, r#"namespace "ns""#, "not allowed"] {
        assert!(lines[0].to_lowercase().contains(&part.to_lowercase()), "{part}: {lines:?}");
    }
    server.set(Mode::Working);
    let start = Instant::now();
    replica.until(Role::Leader(0)).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_the_lease_stays() {
    let server = Arc::<Server>::default();
    *lock(&server.lease) = Some(json!({
        "metadata": {"name": "operator", "resourceVersion": "x", "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "leaseTransitions": 7},
    }));
    let replica = Replica::start(&server, "first");
    replica.until(Role::Leader(8)).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(lock(&server.lease).as_ref().unwrap()["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_coordinated_election_is_rejected_with_an_error() {
    let server = Arc::<Server>::default();
    *lock(&server.lease) = Some(json!({
        "metadata": {"name": "operator", "resourceVersion": "x"},
        "spec": {"strategy": "OldestEmulationVersion"},
    }));
    let replica = Replica::start(&server, "first");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(replica.writes(), 0);
    assert_eq!(replica.fixture.lines("coordinated leader election is not supported").len(), 1);
}

/// The Lease client of a replica that has released its lease.
fn lease_client(replica: &Replica) -> Arc<LeaseClient> {
    let base = &replica.fixture.shared.base;
    let place = ("ns".to_owned(), "operator".to_owned());
    Arc::new(LeaseClient::new(base.client.clone(), place, &Options::default(), base.clock.clone()))
}

async fn release(replica: &mut Replica) {
    replica.election.command(Command::Release);
    replica.election.report_drained();
    timeout(LIMIT, &mut replica.task).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_replica_acquires_its_released_lease_after_three_seconds_and_releases_it_again() {
    let server = Arc::<Server>::default();
    let mut replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    release(&mut replica).await;
    let (client, clock) = (lease_client(&replica), &replica.fixture.shared.base.clock);
    let (start, options) = (Instant::now(), Options::default());
    let term = LastTerm::acquire(&client, &replica.fence, ("first", &options), clock).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3);
    assert!(replica.is_leader(1), "it may write");
    assert_eq!(server.spec()["holderIdentity"], "first");
    let next = Replica::start(&server, "second");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*next.election.role().borrow(), Role::Standby);
    term.release(&client, &replica.fence).await;
    assert!(!replica.is_leader(1));
    next.until(Role::Leader(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_a_successor_does_not_acquire_its_released_lease() {
    let server = Arc::<Server>::default();
    let mut replica = Replica::start(&server, "first");
    replica.until(Role::Leader(0)).await;
    let next = Replica::start(&server, "second");
    sleep(Duration::from_secs(5)).await;
    release(&mut replica).await;
    let (client, clock) = (lease_client(&replica), &replica.fixture.shared.base.clock);
    let options = Options::default();
    let term = LastTerm::acquire(&client, &replica.fence, ("first", &options), clock).await;
    assert!(term.is_none() && !replica.is_leader(1));
    assert_eq!(server.spec()["holderIdentity"], "second");
    assert!(next.is_leader(1));
}
