//! Requests of the verbs, and when they are repeated.

use super::*;

fn resource(namespaced: bool) -> Resource {
    let fields =
        serde_json::json!({"group": "apps", "version": "v1", "plural": "things", "namespaced": namespaced});
    serde_json::from_value(fields).unwrap()
}

fn call(verb: Verb) -> Call {
    Call {
        verb,
        namespace: None,
        body_namespace: None,
        name: Some("n".to_owned()),
        subresource: None,
        body: None,
        query: vec![],
        is_guarded: false,
        metadata_only: false,
    }
}

fn built(call: &Call) -> Result<Request, String> {
    call.request(&resource(true), &WriteOptions::default(), &DefaultNamespace::OfCredentials, None)
}

#[test]
fn verbs_have_their_methods_paths_and_content_types() {
    let of = |call: &Call| {
        let request = built(call).unwrap();
        (request.method, request.url, request.content_type)
    };
    let base = "/apis/apps/v1/namespaces/default/things";
    assert_eq!(of(&call(Verb::Get)), ("GET", format!("{base}/n"), None));
    let body = Some(b"{}".to_vec());
    let create = Call { body: body.clone(), ..call(Verb::Create) };
    assert_eq!(of(&create), ("POST", format!("{base}?fieldManager=kopf"), Some("application/json")));
    let eviction = Call { subresource: Some("eviction".to_owned()), ..create };
    assert_eq!(of(&eviction).1, format!("{base}/n/eviction?fieldManager=kopf"));
    let apply = Call { query: vec![("force".to_owned(), "true".to_owned())], body, ..call(Verb::Apply) };
    assert_eq!(
        of(&apply),
        ("PATCH", format!("{base}/n?force=true&fieldManager=kopf"), Some("application/apply-patch+yaml"))
    );
    let list = Call {
        name: None,
        query: vec![("labelSelector".to_owned(), "a in (b,c)".to_owned())],
        ..call(Verb::List)
    };
    assert_eq!(of(&list), ("GET", format!("{base}?labelSelector=a%20in%20%28b%2Cc%29"), None));
}

#[test]
fn options_become_parameters_of_writing_verbs_only() {
    let options =
        WriteOptions { dry_run: true, manager: Some("me".to_owned()), validation: Some("Strict".to_owned()) };
    let url = |verb| {
        let request =
            call(verb).request(&resource(true), &options, &DefaultNamespace::OfCredentials, Some("c"));
        request.unwrap().url
    };
    let base = "/apis/apps/v1/namespaces/c/things/n";
    assert_eq!(url(Verb::Get), base);
    assert_eq!(url(Verb::Delete), format!("{base}?dryRun=All"));
    assert_eq!(url(Verb::MergePatch), format!("{base}?dryRun=All&fieldManager=me&fieldValidation=Strict"));
    let long = WriteOptions { manager: Some("x".repeat(129)), ..WriteOptions::default() };
    let request = call(Verb::Apply).request(&resource(true), &long, &DefaultNamespace::OfCredentials, None);
    assert!(request.unwrap_err().contains("128"));
}

#[test]
fn the_namespace_is_the_argument_or_of_the_body_or_the_default_one() {
    let url = |call: &Call, default: &DefaultNamespace| {
        call.request(&resource(true), &WriteOptions::default(), default, Some("credentials")).map(|it| it.url)
    };
    let path = |namespace: &str| Ok(format!("/apis/apps/v1/namespaces/{namespace}/things/n"));
    let handled = DefaultNamespace::Named("handled".to_owned());
    let mut one = call(Verb::Get);
    assert_eq!(url(&one, &DefaultNamespace::OfCredentials), path("credentials"));
    assert_eq!(url(&one, &handled), path("handled"));
    assert!(url(&one, &DefaultNamespace::Unknown).unwrap_err().contains("namespace=..."));
    one.body_namespace = Some("body".to_owned());
    assert_eq!(url(&one, &handled), path("body"));
    one.namespace = Some("argument".to_owned());
    assert_eq!(url(&one, &DefaultNamespace::Unknown), path("argument"));
    one.namespace = Some("*".to_owned());
    assert!(url(&one, &handled).is_err());
    let all = Call { verb: Verb::List, name: None, ..one };
    assert_eq!(url(&all, &handled), Ok("/apis/apps/v1/things".to_owned()));
}

#[test]
fn cluster_scoped_kinds_reject_namespaces() {
    let request = |call: &Call| {
        call.request(&resource(false), &WriteOptions::default(), &DefaultNamespace::Unknown, None)
            .map(|it| it.url)
    };
    assert_eq!(request(&call(Verb::Get)), Ok("/apis/apps/v1/things/n".to_owned()));
    let named = Call { namespace: Some("ns".to_owned()), ..call(Verb::Get) };
    assert!(request(&named).unwrap_err().contains("cluster-scoped"));
}

#[test]
fn names_are_required_where_one_object_is_meant() {
    for name in [None, Some(String::new())] {
        assert!(built(&Call { name, ..call(Verb::Delete) }).unwrap_err().contains("name"));
    }
    assert!(built(&Call { name: None, ..call(Verb::List) }).is_ok());
}

#[test]
fn requests_are_repeated_only_if_that_has_no_other_effect() {
    let guarded = |verb| Call { is_guarded: true, ..call(verb) };
    let nameless = Call { name: None, ..call(Verb::Create) };
    let table = [
        (call(Verb::Get), Idempotency::Safe),
        (call(Verb::Review), Idempotency::Safe),
        (call(Verb::Apply), Idempotency::Idempotent),
        (call(Verb::MergePatch), Idempotency::Idempotent),
        (guarded(Verb::MergePatch), Idempotency::Preconditioned),
        (guarded(Verb::Delete), Idempotency::GuardedDelete),
        (guarded(Verb::Replace), Idempotency::Preconditioned),
        (guarded(Verb::JsonPatch), Idempotency::Preconditioned),
        (call(Verb::Create), Idempotency::NamedCreate),
        (nameless, Idempotency::NotIdempotent),
        (call(Verb::JsonPatch), Idempotency::NotIdempotent),
        (call(Verb::StrategicPatch), Idempotency::NotIdempotent),
        (call(Verb::Delete), Idempotency::NotIdempotent),
        (call(Verb::DeleteAll), Idempotency::NotIdempotent),
        (Call { subresource: Some("eviction".to_owned()), ..call(Verb::Create) }, Idempotency::NotIdempotent),
        (
            Call { subresource: Some("eviction".to_owned()), ..guarded(Verb::Create) },
            Idempotency::GuardedDelete,
        ),
    ];
    for (call, expected) in table {
        assert_eq!(Idempotency::of(&call), expected, "{call:?}");
    }
    for idempotency in
        [Idempotency::Safe, Idempotency::GuardedDelete, Idempotency::NamedCreate, Idempotency::NotIdempotent]
    {
        assert!(idempotency.is_retried_after(FailedAttempt::NotSent));
        assert!(idempotency.is_retried_after(FailedAttempt::RejectedForNow));
        assert!(!idempotency.is_retried_after(FailedAttempt::Rejected));
        assert_eq!(
            idempotency.is_retried_after(FailedAttempt::Unknown),
            idempotency != Idempotency::NotIdempotent
        );
        assert_eq!(idempotency.is_idempotent(), idempotency == Idempotency::Safe);
    }
}

#[test]
fn statuses_mean_a_rejection_or_an_unknown_outcome() {
    assert_eq!(FailedAttempt::of_status(429, false), FailedAttempt::RejectedForNow);
    assert_eq!(FailedAttempt::of_status(503, true), FailedAttempt::RejectedForNow);
    assert_eq!(FailedAttempt::of_status(503, false), FailedAttempt::Unknown);
    assert_eq!(FailedAttempt::of_status(504, false), FailedAttempt::Unknown);
    assert_eq!(FailedAttempt::of_status(409, true), FailedAttempt::Rejected);
}
