"""Bad input is reported by the operator's log and exit code, and affects nothing else."""

import json
import secrets

import pytest

from tests.support import cluster as kube
from tests.support.crds import GROUP, crd
from tests.support.fixtures import Shelf

PREAMBLE = """
from calls import called
import kopf
"""

SIMPLE = (
    PREAMBLE
    + """
@kopf.on.create('parcels')
def create(name, **_):
    called('create', name=name)
"""
)


# --- The cluster cannot be reached or does not let us in.


@pytest.mark.contract("api 7.4")
def test_no_kubeconfig_is_a_login_error(operator):
    run = operator(SIMPLE, kubeconfig=None)
    assert run.wait_for_exit() == 1
    assert "Ran out of valid credentials." in run.log
    assert not run.calls


def test_missing_kubeconfig_file_is_a_login_error(operator):
    run = operator(SIMPLE, kubeconfig=operator.folder / "nowhere.yaml")
    assert run.wait_for_exit() == 1
    assert "nowhere.yaml" in run.log or "LoginError: " in run.log


def test_unreachable_server_is_tried_a_few_times_and_then_given_up(operator, control_plane):
    run = operator(SIMPLE, kubeconfig=control_plane.write_kubeconfig(server="https://127.0.0.1:1"))
    assert run.wait_for_exit() == 1
    assert "https://127.0.0.1:1" in run.log
    run_log = run.log
    assert "Request attempt #1/3 failed; will retry: GET https://127.0.0.1:1/" in run_log
    assert "Request attempt #3/3 failed; escalating: GET https://127.0.0.1:1/" in run_log


def test_wrong_token_is_a_login_error(operator, control_plane):
    run = operator(SIMPLE, kubeconfig=control_plane.write_kubeconfig(token="wrong"))
    assert run.wait_for_exit() == 1
    assert "Ran out of valid credentials." in run.log
    assert not run.calls


def test_a_forbidden_list_is_logged_with_the_resource_and_the_user(operator, control_plane):
    run = operator(SIMPLE, kubeconfig=control_plane.write_kubeconfig("guest"))
    run.wait_for_log(r'parcels\.testing\.kopf\.dev is forbidden: User "guest" cannot list resource "parcels"')
    assert not run.calls


def test_forbidden_list_is_tried_again_until_the_permission_comes(operator, control_plane, cluster, shelf):
    run = operator(SIMPLE, kubeconfig=control_plane.write_kubeconfig("guest"))
    shelf.create("p1", {"size": 1})
    run.wait_for_log(
        r'Request attempt #3/3 failed; escalating: .*User "guest" cannot list resource "parcels"'
    )
    grant(cluster, shelf.namespace, "guest", ["parcels", "parcels/status"])
    shelf.wait_until_handled("p1")
    assert [call.details["name"] for call in run.called("create")] == ["p1"]


def grant(cluster: kube.Cluster, namespace: str, user: str, resources: list[str]) -> None:
    """Let the user do everything with these resources in this namespace."""
    roles = kube.Resource("rbac.authorization.k8s.io", "v1", "roles")
    bindings = kube.Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
    rule = {"apiGroups": [GROUP], "resources": resources, "verbs": ["*"]}
    cluster.create(roles, namespace, {"metadata": {"name": user}, "rules": [rule]})
    cluster.create(
        bindings,
        namespace,
        {
            "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": roles.group, "kind": "Role", "name": user},
        },
    )


# --- The resource is not there yet, or not as expected.


@pytest.mark.contract("engine 1.4", "engine 1.5")
def test_resource_without_a_crd_is_served_once_it_comes(operator, cluster):
    plural = f"late{secrets.token_hex(3)}s"
    run = operator(
        PREAMBLE
        + f"""
@kopf.on.create('{plural}')
def create(name, **_):
    called('create', name=name)
"""
    )
    run.wait_for_log(r"Unresolved resources cannot be served \(try creating their CRDs\): ")
    assert plural in run.log
    body = crd(plural, plural.capitalize().removesuffix("s"), group=f"{plural}.{GROUP}")
    resource = cluster.create_crd(body)
    try:
        shelf = Shelf(cluster, resource, operator.namespace)
        shelf.create("x", {"size": 1})
        shelf.wait_until_handled("x")
        assert [call.details for call in run.called("create")] == [{"name": "x"}]
        run.check_alive()
    finally:
        cluster.delete(kube.CRDS, None, body["metadata"]["name"])


@pytest.mark.contract("engine 8.5")
def test_status_pruned_by_the_schema_is_warned_about_and_the_handling_is_completed(
    operator, cluster, crates, namespace
):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('crates')
def create(**_):
    called('create')
    return 'lost'
"""
    )
    shelf = Shelf(cluster, crates, namespace)
    shelf.create("c1", {"size": 1})
    shelf.wait_until_handled("c1")
    run.wait_for_log(
        r"\[WARNING *\].*Merge-patching finished with inconsistencies: "
        r"\(\('remove', \('status', 'create'\), 'lost', None\),\)"
    )
    run.wait_for_log(r"Creation is processed: 1 succeeded; 0 failed\.")
    assert len(run.called("create")) == 1


# --- The author has made a mistake.


def test_syntax_error_in_the_file_is_shown_as_python_shows_it(operator):
    operator.write("def broken(:\n    pass\n")
    run = operator()
    assert run.wait_for_exit() == 1
    assert 'handlers.py", line 1' in run.log
    assert "SyntaxError: " in run.log


def test_missing_file_is_an_error(operator):
    run = operator(files=("nowhere.py",))
    assert run.wait_for_exit() == 2
    assert "There is no file 'nowhere.py'." in run.log


def test_missing_import_is_an_error(operator):
    operator.write("import no_such_module_anywhere\n")
    run = operator()
    assert run.wait_for_exit() == 1
    assert "ModuleNotFoundError: No module named 'no_such_module_anywhere'" in run.log


def test_wrong_declaration_is_rejected_before_the_start(operator):
    run = operator("import kopf\n@kopf.on.create('parcels', retry=3)\ndef fn(**_): pass\n")
    assert run.wait_for_exit() == 1
    assert "TypeError: " in run.log and "unexpected keyword argument 'retry'" in run.log


def test_handler_with_a_wrong_signature_fails_alone(operator, shelf):
    run = operator(
        SIMPLE
        + """
@kopf.on.create('parcels', retries=1)
def wrong(there_is_no_such_argument, **_):
    called('wrong')
"""
    )
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log(
        r"TypeError: wrong\(\) missing 1 required positional argument: 'there_is_no_such_argument'"
    )
    run.wait_for_log(r"Creation is processed: 1 succeeded; 1 failed\.")


def test_handler_that_takes_no_future_arguments_fails_alone(operator, shelf):
    run = operator(
        SIMPLE
        + """
@kopf.on.create('parcels', retries=1)
def wrong(name):
    called('wrong')
"""
    )
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log(r"TypeError: wrong\(\) got an unexpected keyword argument")
    run.wait_for_log(r"Creation is processed: 1 succeeded; 1 failed\.")


@pytest.mark.contract("observed 5")
def test_result_that_is_not_json_is_dropped_with_an_error(operator, shelf):
    run = operator(
        SIMPLE
        + """
@kopf.on.create('parcels', retries=1)
def wrong(**_):
    return {'when': object()}
"""
    )
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert len(run.called("create")) == 1
    run.wait_for_log(
        r"\[ERROR *\].*Handler 'wrong' has returned a result of type dict.*not JSON serializable"
    )
    run.wait_for_log(r"Creation is processed: 2 succeeded; 0 failed\.")


@pytest.mark.contract("engine 5.6", "engine 12")
def test_failing_filter_throttles_its_object_only(operator, shelf):
    run = operator(
        SIMPLE
        + """
@kopf.on.create('parcels', when=lambda spec, **_: spec['must'] > 0)
def filtered(name, **_):
    called('filtered', name=name)
"""
    )
    shelf.create("bad")
    run.wait_for_log(r"\[\S+/bad\] Throttling for 1 seconds due to an unexpected error: KeyError\('must'\)")
    shelf.create("good", {"must": 1})
    shelf.wait_until_handled("good")
    assert [call.details["name"] for call in run.called("filtered")] == ["good"]
    shelf.patch("bad", {"spec": {"must": 1}})
    shelf.wait_until_handled("bad")
    run.wait_for_log(r"\[\S+/bad\] Throttling is over\. Switching back to normal operations\.")


@pytest.mark.contract("api 5.3")
def test_failing_startup_ends_the_operator(operator):
    run = operator(
        SIMPLE
        + """
@kopf.on.startup()
def broken(**_):
    raise kopf.PermanentError("no disk")
"""
    )
    assert run.wait_for_exit() == 1
    assert "Activity 'broken' failed permanently: no disk" in run.log
    assert "PermanentError: no disk" in run.log


# --- Another client has changed Kopf's annotations.


def test_malformed_essence_is_healed_and_the_object_is_handled(operator, shelf):
    run = operator(SIMPLE)
    shelf.create("p1", {"size": 1}, annotations={"kopf.zalando.org/last-handled-configuration": "{broken"})
    shelf.wait("p1", lambda body: _is_json(body, "last-handled-configuration") and kube.is_settled(body))
    assert [call.details["name"] for call in run.called("create")] == ["p1"]
    run.check_alive()


def test_malformed_progress_is_healed_and_the_handler_runs(operator, shelf):
    run = operator(SIMPLE)
    shelf.create("p1", {"size": 1}, annotations={"kopf.zalando.org/create": '{"started": broken'})
    shelf.wait(
        "p1",
        lambda body: (
            "kopf.zalando.org/create" not in body["metadata"]["annotations"]
            and _is_json(body, "last-handled-configuration")
            and kube.is_settled(body)
        ),
    )
    assert [call.details["name"] for call in run.called("create")] == ["p1"]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {
            "started": "2020-01-01T00:00:00.000000",
            "purpose": "create",
            "retries": 1,
            "delayed": "2020-01-01T00:00:01",
        },
        {"started": "yesterday", "purpose": "create", "retries": 1},
        {"started": None, "retries": "many", "unknown": [1]},
    ],
    ids=["empty", "naive", "no-date", "wrong-types"],
)
def test_strange_progress_is_read_as_far_as_it_goes(operator, shelf, record):
    run = operator(SIMPLE)
    shelf.create("p1", {"size": 1}, annotations={"kopf.zalando.org/create": json.dumps(record)})
    shelf.wait_until_handled("p1")
    assert [call.details["name"] for call in run.called("create")] == ["p1"]


def test_lost_annotations_cause_a_creation(operator, shelf):
    run = operator(SIMPLE, environment={"KOPF_COMPAT": "1.45"})
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    shelf.annotate("p1", last_handled_configuration=None)
    run.wait_for_call("create", count=2)
    shelf.wait_until_handled("p1")


def _is_json(body: kube.Object, name: str) -> bool:
    try:
        return kube.decoded(body, name) is not None
    except ValueError:
        return False
