//! Leader election on an API server: the records are accepted, and versions are compared.

use std::sync::Arc;

use kopf_core::lease::{Command, Options};
use kopf_core::settings::Settings;
use kopf_engine::client::Client;
use kopf_engine::client::connection::ConnectionOptions;
use kopf_engine::client::credentials::{CredentialStore, CredentialStoreOptions};
use kopf_engine::fence::Fence;
use kopf_engine::host::Host;
use kopf_engine::leadership::{Election, Elector, LeaseConfig, Role};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::Fixture;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/operator";
const STEP: f64 = 0.25;

struct Replica {
    fence: Arc<Fence>,
    election: Election,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(fixture: &Fixture, identity: &str) -> Self {
        let host: Arc<dyn Host> = Arc::clone(&fixture.host) as _;
        let clock = fixture.clock.clone();
        let connections = ConnectionOptions {
            agent: identity.to_owned(),
            trust_env: false,
            compat: false,
            clock: clock.clone(),
        };
        let options =
            CredentialStoreOptions { connections, login_timeout: 0.0, stopping: CancellationToken::new() };
        let store = CredentialStore::new(Arc::clone(&host), options, &[]).unwrap();
        let client =
            Client::new(Arc::new(store), Arc::new(Settings::default()), Arc::clone(&host), clock.clone());
        let fence = Arc::new(Fence::new(clock.clone()));
        let config = LeaseConfig {
            namespace: "default".to_owned(),
            name: "operator".to_owned(),
            identity: identity.to_owned(),
            options: Options::default(),
        };
        let (elector, election) = Elector::new(config, client, Arc::clone(&fence), clock, host);
        election.command(Command::SetSynced(true));
        Self { fence, election, task: tokio::spawn(elector.run()) }
    }

    /// The term in which it leads.
    fn term(&self) -> Option<i64> {
        let role = *self.election.role().borrow();
        match role {
            Role::Leader(term) if self.fence.pass(term).is_ok() => Some(term),
            _ => None,
        }
    }
}

async fn spec(fixture: &Fixture) -> Value {
    fixture.server.get(LEASE).await.map(|lease| lease["spec"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn one_of_two_replicas_leads_and_the_other_one_takes_over_after_a_crash_and_after_a_release() {
    let fixture = Fixture::new().await;
    let replicas = [Replica::start(&fixture, "one"), Replica::start(&fixture, "two")];
    let terms = || replicas.each_ref().map(Replica::term);
    let leads = |number: i64| {
        let terms = terms();
        assert!(terms.contains(&None), "two leaders: {terms:?}");
        terms.contains(&Some(number))
    };
    fixture.pass_until("the first term", STEP, 3.0, |_| leads(0)).await;
    let created = spec(&fixture).await;
    assert_eq!((&created["leaseDurationSeconds"], &created["leaseTransitions"]), (&json!(15), &json!(0)));
    for _ in 0..120 {
        fixture.pass(STEP).await;
        assert!(leads(0));
    }
    let renewed = spec(&fixture).await;
    assert_eq!(renewed["acquireTime"], created["acquireTime"]);
    assert_ne!(renewed["renewTime"], created["renewTime"]);

    let crashed = terms().iter().position(Option::is_some).unwrap();
    replicas[crashed].task.abort();
    let passed = fixture.pass_until("the takeover", STEP, 18.5, |_| leads(1)).await;
    assert!(passed >= 12.5, "{passed} s after at most a retry period without a renewal");
    let leader = &replicas[1 - crashed];
    assert_eq!((leader.term(), replicas[crashed].term()), (Some(1), None));

    leader.election.command(Command::Release);
    fixture.pass(5.0).await;
    assert_eq!(leader.term(), Some(1), "its calls still run");
    let next = Replica::start(&fixture, "three");
    fixture.pass(5.0).await;
    leader.election.report_drained();
    fixture.pass_until("the next term", STEP, 0.75, |_| next.term() == Some(2)).await;
    assert_eq!(spec(&fixture).await["holderIdentity"], "three");
    assert!(leader.task.is_finished());
    next.task.abort();
}
