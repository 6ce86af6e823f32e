"""Admission: the webhook configurations, the requests of the API server, and the effects of the responses."""

import base64
import json

import pytest

from tests.support import cluster as kube
from tests.support.crds import GROUP, crd
from tests.support.fixtures import Shelf

pytestmark = pytest.mark.contract("api 9")

VALIDATING = kube.Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
MUTATING = kube.Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)

PREAMBLE = """
import asyncio

from calls import called
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', host='127.0.0.1')
    settings.admission.managed = 'postcards.example.dev'
"""

HANDLERS = """
@kopf.on.mutate('postcards', operations=['CREATE'])
def stamp(patch, dryrun, userinfo, **_):
    patch.spec['stamp'] = userinfo['username']
    called('stamp', dryrun=dryrun)

@kopf.on.validate('postcards', operations=['CREATE', 'UPDATE'])
async def weigh(spec, old, warnings, **_):
    called('weigh', stamp=spec.get('stamp'), old=old is not None)
    if spec.get('weight', 0) > 20:
        raise kopf.AdmissionError("It is too heavy.", code=422)
    if spec.get('weight', 0) > 10:
        warnings.append("It is heavy.")

@kopf.on.validate('postcards', operations=['DELETE'], labels={'registered': kopf.PRESENT}, persistent=True)
def keep(**_):
    raise kopf.PermanentError("It is registered.")
"""


@pytest.fixture(scope="module")
def postcards(cluster):
    """A separate resource: if a test fails, its webhooks remain, and other tests must not trigger them."""
    return cluster.create_crd(crd("postcards", "Postcard"))


@pytest.fixture
def post_office(cluster, postcards, namespace):
    yield Shelf(cluster, postcards, namespace)
    for resource in (VALIDATING, MUTATING):
        cluster.delete(resource, None, "postcards.example.dev")


def wait_for_webhooks(cluster, resource, names):
    def configured(config):
        return [one["name"] for one in (config or {}).get("webhooks", [])] == names

    return cluster.wait(resource, None, "postcards.example.dev", configured)


def wait_until_asked(run, post_office):
    """The API server calls a new webhook with a delay."""
    for attempt in range(100):
        post_office.create(f"probe-{attempt}")
        if run.called("weigh"):
            return
    raise AssertionError("the webhooks are not asked")


def test_objects_are_mutated_and_denied(operator, cluster, post_office):
    run = operator(PREAMBLE + HANDLERS)
    wait_for_webhooks(cluster, MUTATING, ["stamp.postcards.example.dev"])
    wait_for_webhooks(cluster, VALIDATING, ["weigh.postcards.example.dev", "keep.postcards.example.dev"])
    wait_until_asked(run, post_office)

    made = post_office.create("light", {"weight": 1}, labels={"registered": ""})
    assert made["spec"] == {"weight": 1, "stamp": "admin"}
    assert run.called("weigh")[-1].details == {"stamp": "admin", "old": False}

    with pytest.raises(kube.ApiError) as denied:
        post_office.create("brick", {"weight": 21})
    assert denied.value.code == 422
    assert "denied the request: It is too heavy." in str(denied.value)

    post_office.patch("light", {"spec": {"weight": 2}})
    assert run.called("weigh")[-1].details == {"stamp": "admin", "old": True}
    assert len(run.called("stamp")) < len(run.called("weigh"))  # not for updates

    with pytest.raises(kube.ApiError, match="It is registered"):
        cluster.request("DELETE", post_office.resource.path(post_office.namespace, "light"))
    post_office.patch("light", {"metadata": {"labels": None}})
    post_office.delete("light")
    assert run.stop() == 0


def test_configurations_are_written_when_something_changes_and_cleaned_up(operator, cluster, post_office):
    run = operator(
        PREAMBLE
        + HANDLERS
        + """
@kopf.on.event('stragglers')
def late(**_):
    called('late')
"""
    )
    config = wait_for_webhooks(
        cluster, VALIDATING, ["weigh.postcards.example.dev", "keep.postcards.example.dev"]
    )
    weigh, keep = config["webhooks"]
    assert weigh["rules"] == [
        {
            "apiGroups": [GROUP],
            "apiVersions": ["v1"],
            "resources": ["postcards"],
            "operations": ["CREATE", "UPDATE"],
            "scope": "*",
        }
    ]
    assert (weigh["failurePolicy"], weigh["sideEffects"], weigh["timeoutSeconds"]) == ("Fail", "None", 30)
    assert keep["objectSelector"] == {"matchExpressions": [{"key": "registered", "operator": "Exists"}]}
    assert weigh["clientConfig"]["url"].endswith("/weigh")
    assert base64.b64decode(weigh["clientConfig"]["caBundle"]).startswith(b"-----BEGIN CERTIFICATE-----")

    # The world changes, but nothing that our webhooks are about.
    stragglers = cluster.create_crd(crd("stragglers", "Straggler"))
    Shelf(cluster, stragglers, post_office.namespace).create("one")
    run.wait_for_call("late")
    assert run.log.count("Reconfiguring the validating webhook postcards.example.dev.") == 1
    assert run.log.count("Reconfiguring the mutating webhook postcards.example.dev.") == 1

    assert run.stop() == 0
    assert run.log.count("Cleaning up the admission webhook postcards.example.dev.") == 2
    left = cluster.get(VALIDATING, None, "postcards.example.dev")["webhooks"]
    assert [one["name"] for one in left] == ["keep.postcards.example.dev"]
    assert not cluster.get(MUTATING, None, "postcards.example.dev").get("webhooks")


def test_the_operator_does_not_start_without_an_admission_server(operator, postcards):
    run = operator(
        """
import kopf

@kopf.on.validate('postcards')
def weigh(**_):
    pass
"""
    )
    assert run.wait_for_exit() == 1
    assert "Admission handlers exist, but no admission server/tunnel is configured" in run.log


def test_a_server_of_the_user_calls_the_handlers_and_ends_the_operator(operator, postcards):
    request = {
        "resource": {"group": GROUP, "version": "v1", "resource": "postcards"},
        "userInfo": {"username": "me"},
        "operation": "CREATE",
        "uid": "u1",
        "object": {"metadata": {"name": "x"}, "spec": {"weight": 21}},
    }
    run = operator(
        f"""
import asyncio
import json
from calls import called
import kopf

async def server(fn):
    yield {{'url': 'https://localhost'}}
    for attempt in range(200):
        try:
            response = await fn({{'request': json.loads({json.dumps(json.dumps(request))})}}, webhook='weigh')
            break
        except Exception as e:  # the cluster is not scanned yet
            assert 'has no handlers' in str(e), e
            await asyncio.sleep(0.05)
    called('server', response=response)

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = server

@kopf.on.validate('postcards')
def weigh(spec, headers, sslpeer, memo, **_):
    raise kopf.AdmissionError(f"No {{spec['weight']}}, {{headers}}, {{sslpeer}}.", code=409)

@kopf.on.cleanup()
def cleanup(**_):
    called('cleanup')
"""
    )
    response = run.wait_for_call("server").details["response"]
    assert response == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u1", "allowed": False, "status": {"message": "No 21, {}, {}.", "code": 409}},
    }
    run.wait_for_call("cleanup")
    assert run.wait_for_exit() == 0
    run.wait_for_log("Admission webhook server has finished unexpectedly.")


@pytest.mark.contract("observed 10")
def test_a_webhook_name_rejected_by_the_cluster_is_logged(operator, postcards):
    handlers = "@kopf.on.validate('postcards')\ndef weigh(**_): ..."
    run = operator(PREAMBLE.replace("postcards.example.dev", "nodots") + handlers)
    assert run.wait_for_exit() == 1
    run.wait_for_log("APIUnprocessableEntityError")
