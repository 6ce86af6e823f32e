"""Kubernetes events of handlers and logs, probes, and credentials."""

import os
import socket
import textwrap
import urllib.error
import urllib.request

import pytest

from tests.support import cluster as kube
from tests.support.operators import Operator

pytestmark = pytest.mark.contract("api 10")

EVENTS = kube.Resource("", "v1", "events")


def events(cluster, namespace, **expected):
    found = cluster.request("GET", EVENTS.path(namespace))["items"]
    return [item for item in found if all(item[key] == value for key, value in expected.items())]


@pytest.mark.contract("engine 13.3")
def test_events_of_handlers_are_posted_with_their_objects(operator, shelf, cluster, namespace):
    run = operator("""
import asyncio
import threading


@kopf.on.startup()
def configure(settings, **_):
    try:
        kopf.info({'kind': 'K'}, reason='Never')
    except LookupError as e:
        print(f'rejected: {e.args[0].name}')


@kopf.on.create('parcels')
async def create(body, **_):
    kopf.info(body, reason='Async', message='x' * 2000)
    await asyncio.to_thread(kopf.warn, body, reason='Thread', message='warned')


@kopf.on.create('parcels', errors=kopf.ErrorsMode.PERMANENT)
def fail(body, **_):
    try:
        raise ValueError('boo')
    except ValueError:
        kopf.exception(body, message='Sync:')
""")
    run.wait_for_log("rejected: event_queue_loop_var")
    made = shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log("Handling cycle is finished")
    assert run.stop() == 0
    [posted] = events(cluster, namespace, reason="Async")
    assert posted["type"] == "Normal" and len(posted["message"]) == 1024
    assert posted["involvedObject"] == {
        "apiVersion": "testing.kopf.dev/v1",
        "kind": "Parcel",
        "name": "p1",
        "namespace": namespace,
        "uid": made["metadata"]["uid"],
    }
    assert posted["metadata"]["name"].startswith("kopf-event-")
    assert (posted["reportingComponent"], posted["source"]) == ("kopf", {"component": "kopf"})
    [warned] = events(cluster, namespace, reason="Thread")
    assert (warned["type"], warned["message"]) == ("Warning", "warned")
    [failed] = events(cluster, namespace, reason="ValueError")
    assert (failed["type"], failed["message"]) == ("Error", "Sync: boo")
    assert len(events(cluster, namespace)) == 3


def test_logs_become_events_if_so_wished(operator, shelf, cluster, namespace):
    run = operator("""
import logging


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.loggers = True
    settings.posting.level = logging.WARNING


@kopf.on.create('parcels')
def create(logger, **_):
    logger.info('not severe enough')
    logger.warning('a %s one', 'severe')
    logger.warning('only for the log', extra={'k8s_skip': True})
    raise kopf.PermanentError('boo')
""")
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log("Handling cycle is finished")
    assert run.stop() == 0
    found = {(item["type"], item["reason"], item["message"]) for item in events(cluster, namespace)}
    assert ("Warning", "Logging", "a severe one") in found
    assert len(found) == 2, found
    assert any(kind == "Error" and "failed permanently: boo" in text for kind, _, text in found)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_served(operator):
    url = f"http://127.0.0.1:{free_port()}/healthz"
    run = operator(
        """
from calls import called


@kopf.on.probe(id='answer')
def answer(memo, **_):
    called('answer')
    return 42


@kopf.on.probe(id='nothing')
async def nothing(**_):
    pass
""",
        "--liveness",
        url,
    )
    run.wait_for_log(rf"Serving health status at {url}")
    assert [get(url), get(f"{url}?again")] == [(200, '{"answer": 42}')] * 2
    assert len(run.called("answer")) == 1
    assert get(f"{url}/")[0] == 404
    assert run.stop() == 0


def test_failing_probes_and_unserialisable_ones_return_500(operator):
    url = f"http://127.0.0.1:{free_port()}"
    run = operator(
        """
@kopf.on.probe(retries=1)
def fail(**_):
    return object()
""",
        "--liveness",
        url,
    )
    run.wait_for_log(rf"Serving health status at {url}/")
    assert get(url)[0] == 500
    run.wait_for_log("TypeError: Object of type object is not JSON serializable")
    run.check_alive()


@pytest.mark.contract("api 10.2")
def test_only_http_is_served(operator):
    run = operator("", "--liveness", "https://127.0.0.1:1/")
    assert run.wait_for_exit() == 2
    run.wait_for_log("'https://127.0.0.1:1/' is not a URL such as http://0.0.0.0:8080/healthz")


LOGIN = """
import pathlib
import yaml
from calls import called

config = yaml.safe_load(pathlib.Path(KUBECONFIG).read_text())
server = config['clusters'][0]['cluster']


def info(token, **kwargs):
    called('login', token=token)
    return kopf.ConnectionInfo(
        server=server['server'],
        ca_path=server.get('certificate-authority'),
        ca_data=server.get('certificate-authority-data'),
        insecure=server.get('insecure-skip-tls-verify'),
        token=token,
        **kwargs,
    )


good = config['users'][0]['user']['token']


@kopf.on.create('parcels')
def create(**_):
    called('create')
"""


def login(operator, code, **options):
    source = f"KUBECONFIG = {str(operator.kubeconfig)!r}\n" + LOGIN + textwrap.dedent(code)
    return operator(source, kubeconfig=None, **options)


@pytest.mark.contract("api 7.3")
def test_bad_credentials_are_replaced_by_good_ones(operator, shelf):
    run = login(
        operator,
        """
        attempts = []

        @kopf.on.login()
        def wrong(**_):
            attempts.append(1)
            return info('bad', priority=9)

        @kopf.on.login()
        async def right(**_):
            return info(good if len(attempts) > 1 else 'worse')
        """,
    )
    shelf.create("p1")
    run.wait_for_call("create")
    run.wait_for_log(r"\[INFO *\] Re-authentication has finished\.")
    logins = [call.details["token"] for call in run.called("login")]
    assert logins[:3] == ["bad", "worse", "bad"] and len(logins) == 4
    assert run.stop() == 0


@pytest.mark.contract("observed 8")
def test_no_credentials_and_failed_logins_end_the_operator(operator):
    run = login(operator, "@kopf.on.login()\ndef nothing(**_): pass\n")
    assert run.wait_for_exit() == 1
    run.wait_for_log("Ran out of valid credentials")
    run = login(operator, "@kopf.on.login(retries=1)\ndef fail(**_): raise kopf.PermanentError('boo')\n")
    assert run.wait_for_exit() == 1
    run.wait_for_log("Credentials retriever has failed: One or more handlers failed.")
    run.wait_for_log("PermanentError: boo")


def test_cleanup_handlers_are_called_after_a_failed_login_but_not_in_kopf_1_45(operator):
    code = """
    @kopf.on.cleanup()
    def clean(**_): print('CLEANED', flush=True)

    @kopf.on.login()
    def fail(**_): raise kopf.PermanentError('boo')
    """
    run = login(operator, code)
    assert run.wait_for_exit() == 1
    run.wait_for_log("CLEANED")
    run = login(operator, code, environment={"KOPF_COMPAT": "1.45"})
    run.wait_for_log("Credentials retriever has failed")
    run.process.terminate()
    assert run.wait_for_exit() == 1
    assert "CLEANED" not in run.log


@pytest.mark.contract("api 6.1")
def test_embedded_operators_can_be_given_their_credentials(operator, shelf):
    file = operator.folder / "embedded.py"
    code = """
    from kopf._cogs.structs.credentials import Vault

    @kopf.on.login()
    def never(**_):
        called('never')

    kopf.configure(verbose=True)
    kopf.run(namespaces=[NAMESPACE], vault=Vault({'given': info(good)}))
    """
    names = f"KUBECONFIG, NAMESPACE = {str(operator.kubeconfig)!r}, {operator.namespace!r}\n"
    file.write_text("import kopf\n" + names + LOGIN + textwrap.dedent(code))
    shelf.create("p1")
    environment = {"CALLS_FILE": str(operator.folder / "calls.jsonl"), "PATH": os.environ["PATH"]}
    run = Operator([operator.python, file.name], operator.folder, environment)
    operator.started.append(run)
    run.wait_for_call("create")
    assert [call.handler for call in run.calls] == ["login", "create"]
    assert "uthentication has been initiated" not in run.log
