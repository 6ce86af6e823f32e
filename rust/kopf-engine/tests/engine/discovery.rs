//! API groups that are unavailable, such as those of aggregated APIs whose pods are down.

use std::time::Duration;

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use kopf_engine::discovery::namespaces::NamespaceScope;
use serde_json::{Value, json};

use crate::fixture::{self, CRDS_PATH, Fixture};

const GROUP: &str = "other.example.com";
const VERSION_PATH: &str = "/apis/other.example.com/v1";
const UNAVAILABLE: &str = "Cannot read the resources of other.example.com/v1: ";

/// A creation handler of a plural name, in any group or in one.
fn handler(plural: &str, group: Option<&str>) -> Value {
    let mut selector = json!({"plural": plural});
    if let Some(group) = group {
        selector["group"] = json!(group);
    }
    json!({"id": plural, "key": plural.len(), "kind": "changing", "reason": "create", "selector": selector})
}

fn of_any_group() -> Vec<Value> {
    vec![handler("widgets", None), handler("gadgets", None)]
}

fn fault(code: u16) -> Injection {
    Injection::always(Fault::Code(code)).on_resource("other.example.com/v1")
}

/// A server with widgets, and with gadgets in another group.
async fn with_gadgets() -> Fixture {
    let fixture = Fixture::new().await;
    create_gadgets(&fixture).await;
    fixture
}

/// Creates the CRD of gadgets, and waits until it is served.
async fn create_gadgets(fixture: &Fixture) {
    create_crd(fixture, GROUP, ("gadgets", "Gadget")).await;
}

/// Creates a CRD, and waits until it is served.
async fn create_crd(fixture: &Fixture, group: &str, (plural, kind): (&str, &str)) {
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": names,
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    fixture.server.create(CRDS_PATH, &crd).await.unwrap();
    while fixture.server.get(&format!("/apis/{group}/v1")).await.is_err() {
        fixture.settle().await;
    }
}

async fn create_gadget(fixture: &Fixture, name: &str) {
    let body = json!({"apiVersion": "other.example.com/v1", "kind": "Gadget", "metadata": {"name": name}});
    let path = format!("{VERSION_PATH}/namespaces/default/gadgets");
    fixture.server.create(&path, &body).await.unwrap();
}

/// Serves gadgets as v2 instead of v1.
async fn replace_version(fixture: &Fixture) {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = |name: &str, served: bool| json!({"name": name, "served": served, "storage": served, "schema": schema});
    let change = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let path = format!("{CRDS_PATH}/gadgets.{GROUP}");
    fixture.server.call("PATCH", &path, Some(&change)).await.unwrap();
    while fixture.server.get(&format!("/apis/{GROUP}/v2")).await.is_err() {
        fixture.settle().await;
    }
}

/// The number of the operator's requests for the resources of the other group.
fn scans(fixture: &Fixture) -> usize {
    let entries = fixture.server.request_log().entries();
    entries.iter().filter(|one| one.path == VERSION_PATH && one.user_agent == "engine-tests").count()
}

#[tokio::test]
async fn an_unavailable_group_does_not_affect_others_and_is_served_once_it_is_available() {
    let mut fixture = with_gadgets().await;
    fixture.server.faults().inject(fault(503));
    fixture.serve(of_any_group(), |_| {}).await;
    fixture.create("one", json!({})).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    create_gadget(&fixture, "one").await;
    for _ in 0..600 {
        fixture.pass(1.0).await;
    }
    assert!(fixture.host.has_logged(Level::Warning, &format!("{UNAVAILABLE}503 injected fault.")));
    assert_eq!(fixture.host.count_logged(UNAVAILABLE), 1, "one line, however long it takes");
    assert!((10..25).contains(&scans(&fixture)), "{} scans in ten minutes", scans(&fixture));
    assert_eq!(fixture.host.called(1), 0);
    fixture.server.faults().clear();
    fixture.pass_until("the handling", 1.0, 75.0, |fixture| fixture.host.called(1) == 1).await;
    assert!(fixture.host.has_logged(Level::Info, "The API group other.example.com is available."));
    let before = scans(&fixture);
    for _ in 0..30 {
        fixture.pass(10.0).await;
    }
    assert_eq!(scans(&fixture), before, "it is not scanned any more");
}

#[tokio::test]
async fn a_group_that_handlers_name_is_awaited() {
    let mut fixture = with_gadgets().await;
    fixture.server.faults().inject(fault(403));
    create_gadget(&fixture, "one").await;
    fixture.start(vec![handler("gadgets", Some(GROUP))], |_| {}).await;
    fixture.until("the warning", |fixture| fixture.host.count_logged(UNAVAILABLE) == 1).await;
    fixture.pass(5.0).await;
    assert_eq!(fixture.host.called(0), 0);
    fixture.server.faults().clear();
    fixture.pass_until("the handling", 0.5, 15.0, |fixture| fixture.host.called(0) == 1).await;
}

#[tokio::test]
async fn a_group_that_rejects_the_credentials_does_not_discard_them() {
    let mut fixture = with_gadgets().await;
    fixture.server.faults().inject(fault(401).times(1));
    create_gadget(&fixture, "one").await;
    fixture.start(of_any_group(), |_| {}).await;
    fixture.until("the warning", |fixture| fixture.host.count_logged(UNAVAILABLE) == 1).await;
    fixture.pass_until("the handling", 0.5, 15.0, |fixture| fixture.host.called(1) == 1).await;
    assert_eq!(fixture.host.count_logged("Re-authentication"), 0);
}

#[tokio::test]
async fn a_group_that_does_not_respond_delays_the_start_by_seconds() {
    let mut fixture = with_gadgets().await;
    let hangs =
        Injection::always(Fault::Latency(Duration::from_hours(1))).on_resource("other.example.com/v1");
    fixture.server.faults().inject(hangs);
    fixture.create("one", json!({})).await;
    fixture.start(of_any_group(), |_| {}).await;
    let passed = fixture.pass_until("the handling", 0.5, 60.0, |fixture| fixture.host.called(0) == 1).await;
    assert!((2.0..5.0).contains(&passed), "{passed}");
    assert!(fixture.host.has_logged(Level::Warning, &format!("{UNAVAILABLE}no response in time.")));
    create_gadget(&fixture, "one").await;
    fixture.pass(60.0).await;
    fixture.server.faults().clear();
    fixture.pass_until("the handling", 1.0, 75.0, |fixture| fixture.host.called(1) == 1).await;
}

#[tokio::test]
async fn known_resources_stay_served_while_their_group_is_unavailable() {
    let mut fixture = with_gadgets().await;
    fixture.serve(of_any_group(), |_| {}).await;
    create_gadget(&fixture, "one").await;
    fixture.until("the handling", |fixture| fixture.host.called(1) == 1).await;
    fixture.server.faults().inject(fault(500));
    // A change of the CRD leads to a scan of its group.
    let change = json!({"metadata": {"annotations": {"some": "change"}}});
    let path = format!("{CRDS_PATH}/gadgets.other.example.com");
    fixture.server.call("PATCH", &path, Some(&change)).await.unwrap();
    fixture.until("the warning", |fixture| fixture.host.count_logged(UNAVAILABLE) == 1).await;
    create_gadget(&fixture, "two").await;
    fixture.until("the handling", |fixture| fixture.host.called(1) == 2).await;
    for _ in 0..60 {
        fixture.pass(1.0).await;
    }
    create_gadget(&fixture, "three").await;
    fixture.until("the handling", |fixture| fixture.host.called(1) == 3).await;
    assert_eq!(fixture.host.count_logged(UNAVAILABLE), 1);
    let entries = fixture.server.request_log().entries();
    let watches =
        entries.iter().filter(|one| one.path.ends_with("/gadgets") && one.query.contains("watch=true"));
    assert_eq!(watches.count(), 1);
}

#[tokio::test]
async fn a_version_that_is_not_found_for_a_moment_needs_no_warning() {
    let mut fixture = with_gadgets().await;
    fixture.server.faults().inject(fault(404).times(3));
    create_gadget(&fixture, "one").await;
    fixture.start(of_any_group(), |_| {}).await;
    fixture.pass_until("the handling", 0.5, 15.0, |fixture| fixture.host.called(1) == 1).await;
    assert_eq!(fixture.host.count_logged(UNAVAILABLE), 0);
}

#[tokio::test]
async fn the_start_waits_for_the_groups_that_the_engine_needs() {
    let mut fixture = with_gadgets().await;
    let injection = Injection::always(Fault::Code(500)).on_resource("apiextensions.k8s.io/v1").times(3);
    fixture.server.faults().inject(injection);
    fixture.create("one", json!({})).await;
    fixture.start(of_any_group(), |_| {}).await;
    let passed = fixture.pass_until("the handling", 0.5, 60.0, |fixture| fixture.host.called(0) == 1).await;
    assert!((1.0 + 1.0 + 2.0..6.0).contains(&passed), "{passed}");
    assert_eq!(fixture.host.count_logged("Cannot read the resources"), 0);
    fixture
        .until("the watch of CRDs", |fixture| {
            let entries = fixture.server.request_log().entries();
            entries.iter().any(|one| one.path == CRDS_PATH && one.query.contains("watch=true"))
        })
        .await;
}

#[tokio::test]
async fn a_group_whose_scan_takes_long_delays_neither_the_watch_of_crds_nor_other_scans() {
    let mut fixture = with_gadgets().await;
    let handlers = vec![handler("gadgets", Some(GROUP)), handler("late", Some("third.example.com"))];
    fixture.start(handlers, |_| {}).await;
    fixture.until("the scan", |fixture| scans(fixture) == 1).await;
    fixture.until("the watch", |fixture| observations(fixture, "customresourcedefinitions") == 2).await;
    let hangs =
        Injection::always(Fault::Latency(Duration::from_hours(1))).on_resource("other.example.com/v1");
    fixture.server.faults().inject(hangs);
    let change = json!({"metadata": {"annotations": {"some": "change"}}});
    let path = format!("{CRDS_PATH}/gadgets.other.example.com");
    fixture.server.call("PATCH", &path, Some(&change)).await.unwrap();
    fixture.settle().await;
    create_crd(&fixture, "third.example.com", ("late", "Late")).await;
    let body = json!({"apiVersion": "third.example.com/v1", "kind": "Late", "metadata": {"name": "one"}});
    fixture.server.create("/apis/third.example.com/v1/namespaces/default/late", &body).await.unwrap();
    // Shorter than the timeout of a scan.
    fixture.pass_until("the handling", 0.1, 3.0, |fixture| fixture.host.called(1) == 1).await;
    assert_eq!(fixture.host.count_logged(UNAVAILABLE), 0, "the other scan has not ended");
    let hung = |fixture: &Fixture| fixture.host.count_logged(UNAVAILABLE) == 1;
    fixture.pass_until("the end of the other scan", 1.0, 20.0, hung).await;
}

#[tokio::test]
async fn a_version_that_is_replaced_without_an_event_is_watched_no_more() {
    let mut fixture = with_gadgets().await;
    fixture.start(of_any_group(), |settings| settings.scanning.disabled = true).await;
    create_gadget(&fixture, "one").await;
    let is_written = |fixture: &Fixture| {
        let entries = fixture.server.request_log().entries();
        entries.iter().any(|one| one.method == "PATCH" && one.path.ends_with("/gadgets/one"))
    };
    fixture.until("the handling and its record", is_written).await;
    replace_version(&fixture).await;
    fixture.server.faults().cut_watches("gadgets");
    let body = json!({"apiVersion": format!("{GROUP}/v2"), "kind": "Gadget", "metadata": {"name": "two"}});
    fixture.server.create(&format!("/apis/{GROUP}/v2/namespaces/default/gadgets"), &body).await.unwrap();
    fixture.pass_until("the handling", 1.0, 120.0, |fixture| fixture.host.called(1) == 2).await;
    let failures = fixture.host.count_logged("The resource is not served any more.");
    fixture.pass(60.0).await;
    assert_eq!(fixture.host.count_logged("The resource is not served any more."), failures);
}

#[tokio::test]
async fn the_groups_of_unchanged_crds_are_not_scanned_after_a_new_listing() {
    let mut fixture = with_gadgets().await;
    fixture.start(of_any_group(), |_| {}).await;
    let is_watched = |fixture: &Fixture, lists: usize| {
        let entries = fixture.server.request_log().entries();
        let of_crds =
            || entries.iter().filter(|one| one.path == CRDS_PATH && one.user_agent == "engine-tests");
        let watches = of_crds().filter(|one| one.query.contains("watch=true")).count();
        watches > 0 && of_crds().count() - watches == lists
    };
    fixture.until("the watch of CRDs", |fixture| is_watched(fixture, 1)).await;
    fixture.pass(10.0).await;
    let before = scans(&fixture);
    // The version of the watch becomes too old.
    create_gadget(&fixture, "one").await;
    fixture.server.compact();
    fixture.server.faults().cut_watches("customresourcedefinitions");
    fixture.pass_until("the new listing", 0.5, 30.0, |fixture| is_watched(fixture, 2)).await;
    for _ in 0..10 {
        fixture.pass(1.0).await;
    }
    assert_eq!(scans(&fixture), before);
}

#[tokio::test]
async fn a_handler_that_runs_while_its_version_is_replaced_is_called_once() {
    let mut fixture = with_gadgets().await;
    fixture.start(of_any_group(), |_| {}).await;
    fixture.host.hold();
    create_gadget(&fixture, "one").await;
    fixture.until("the call", |fixture| fixture.host.called(1) == 1).await;
    replace_version(&fixture).await;
    let v2 = format!("/apis/{GROUP}/v2/gadgets");
    let is_watched = |fixture: &Fixture| {
        let entries = fixture.server.request_log().entries();
        entries.iter().any(|one| one.path == v2 && one.query.contains("watch=true"))
    };
    fixture.pass_until("the watch of the next version", 0.5, 60.0, is_watched).await;
    fixture.host.release();
    let is_written = |fixture: &Fixture| {
        let entries = fixture.server.request_log().entries();
        let path = format!("/apis/{GROUP}/v2/namespaces/default/gadgets/one");
        entries.iter().any(|one| one.method == "PATCH" && one.path == path && one.code == 200)
    };
    fixture.pass_until("the record", 0.5, 60.0, is_written).await;
    for _ in 0..20 {
        fixture.pass(1.0).await;
    }
    assert_eq!(fixture.host.called(1), 1, "{:?}", fixture.host.calls());
}

const NO_CRDS: &str = "Not enough permissions to watch for resources: ";
const NO_NAMESPACES: &str = "Not enough permissions to ";

/// The number of the operator's requests for CRDs or namespaces.
fn observations(fixture: &Fixture, plural: &str) -> usize {
    let entries = fixture.server.request_log().entries();
    let ours = entries.iter().filter(|one| one.user_agent == "engine-tests");
    ours.filter(|one| one.path.ends_with(&format!("/{plural}"))).count()
}

async fn start_with_a_namespaced_role(fixture: &mut Fixture, pattern: &str) {
    for plural in ["customresourcedefinitions", "namespaces"] {
        fixture.server.faults().inject(Injection::always(Fault::Code(403)).on_resource(plural));
    }
    fixture.create("one", json!({})).await;
    let scope = NamespaceScope::Namespaces { patterns: vec![pattern.to_owned()], foreign: false };
    fixture
        .start_in(scope, vec![fixture::handler("create", "create"), handler("gadgets", None)], |_| {})
        .await;
}

#[tokio::test]
async fn missing_permissions_for_crds_and_namespaces_are_one_warning_each_and_delay_nothing() {
    let mut fixture = Fixture::new().await;
    start_with_a_namespaced_role(&mut fixture, "default").await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.until("the warnings", |fixture| fixture.host.count_logged("Not enough permissions") == 2).await;
    for _ in 0..600 {
        fixture.pass(1.0).await;
    }
    for right in
        ["list and watch for customresourcedefinitions.apiextensions.k8s.io", "list and watch for namespaces"]
    {
        assert!(fixture.host.has_logged(Level::Warning, right), "{right}");
    }
    assert_eq!(fixture.host.count_logged("Not enough permissions"), 2, "however long it takes");
    assert_eq!(fixture.host.count_logged("Request attempt"), 0);
    assert!(!fixture.host.has_logged(Level::Error, ""));
    for plural in ["customresourcedefinitions", "namespaces"] {
        let attempts = observations(&fixture, plural);
        assert!((10..25).contains(&attempts), "{attempts} requests for {plural} in ten minutes");
    }
}

#[tokio::test]
async fn permissions_for_crds_and_namespaces_can_be_granted_later() {
    let mut fixture = Fixture::new().await;
    start_with_a_namespaced_role(&mut fixture, "def*").await;
    fixture.until("the warning", |fixture| fixture.host.count_logged(NO_CRDS) == 1).await;
    fixture.until("the fallback", |fixture| fixture.host.count_logged(NO_NAMESPACES) == 2).await;
    fixture.pass(90.0).await;
    assert_eq!(fixture.host.called(0), 0, "no namespace is known");
    fixture.server.faults().clear();
    fixture.pass_until("the handling", 1.0, 75.0, |fixture| fixture.host.called(0) == 1).await;
    create_gadgets(&fixture).await;
    create_gadget(&fixture, "one").await;
    fixture.pass_until("the handling", 1.0, 75.0, |fixture| fixture.host.called(1) == 1).await;
}

#[tokio::test]
async fn permissions_that_are_withdrawn_are_reported() {
    let mut fixture = Fixture::new().await;
    fixture.start(vec![fixture::handler("create", "create")], |_| {}).await;
    fixture.until("the watch", |fixture| observations(fixture, "customresourcedefinitions") == 2).await;
    fixture.pass(120.0).await;
    fixture
        .server
        .faults()
        .inject(Injection::always(Fault::Code(403)).on_resource("customresourcedefinitions"));
    fixture.server.faults().cut_watches("customresourcedefinitions");
    fixture.pass_until("the warning", 1.0, 10.0, |fixture| fixture.host.count_logged(NO_CRDS) == 1).await;
    fixture.pass(300.0).await;
    assert_eq!(fixture.host.count_logged(NO_CRDS), 1);
}

/// Starts an operator with these patterns, some of them without namespaces, and lists the namespaces twice.
async fn with_unmatched_patterns(compat: bool) -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.create("one", json!({})).await;
    let patterns = ["default", "defualt", "team-*", "!x"].map(str::to_owned).to_vec();
    let scope = NamespaceScope::Namespaces { patterns, foreign: false };
    fixture.start_in(scope, of_any_group(), |settings| settings.compat = compat).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.until("the list and the watch", |fixture| observations(fixture, "namespaces") == 2).await;
    fixture.server.compact();
    fixture.server.faults().cut_watches("namespaces");
    fixture.pass_until("another list", 1.0, 60.0, |fixture| observations(fixture, "namespaces") > 3).await;
    fixture.settle().await;
    fixture
}

#[tokio::test]
async fn patterns_that_no_namespace_matches_are_reported_once() {
    let fixture = with_unmatched_patterns(false).await;
    for text in ["'defualt' yet; did you mean 'default'?", "'team-*' yet."] {
        assert!(fixture.host.has_logged(Level::Warning, &format!("No namespace matches {text}")));
    }
    assert_eq!(fixture.host.count_logged("No namespace matches"), 2);
}

#[tokio::test]
async fn the_compatibility_mode_reports_no_patterns() {
    let fixture = with_unmatched_patterns(true).await;
    assert_eq!(fixture.host.count_logged("No namespace matches"), 0);
}

#[tokio::test]
async fn the_streams_are_awaited_while_the_host_matches_namespaces() {
    let mut fixture = Fixture::new().await;
    fixture.create("one", json!({})).await;
    let scope = NamespaceScope::Namespaces { patterns: vec![], foreign: true };
    fixture.start_in(scope, vec![fixture::handler("create", "create")], |_| {}).await;
    fixture.until("the matching", |fixture| fixture.host.awaited_matchings() == 1).await;
    fixture.until("the watch", |fixture| observations(fixture, "customresourcedefinitions") == 2).await;
    fixture.settle().await;
    assert_eq!(fixture.operator().awaited_streams(), ["the scan of the cluster"]);
    fixture.host.match_namespaces();
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    assert!(fixture.operator().awaited_streams().is_empty());
}
