"""Options of `kopf run`, and the runner of commands."""

import logging

import click.testing
import kopf
import pytest

pytestmark = pytest.mark.contract("api 5.2")


@pytest.fixture()
def invoked(monkeypatch):
    calls = []
    monkeypatch.setattr("kopf._runtime.operator.run", lambda **kwargs: calls.append(kwargs))
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def invoke(*args, **env):
        from kopf import cli

        result = click.testing.CliRunner().invoke(cli.main, ["run", *args], env=env)
        return result, calls[-1] if calls else None

    yield invoke
    root.handlers[:], root.level = handlers, level


@pytest.mark.contract("api 5.1")
def test_options_reach_the_operator(invoked):
    result, kwargs = invoked(
        "-n", "c", "--dev", "-p", "3", KOPF_RUN_NAMESPACE="z", KOPF_RUN_STANDALONE="false"
    )
    assert result.exit_code == 0
    assert kwargs["namespaces"] == ("c", "z")
    assert kwargs["priority"] == 666
    assert kwargs["standalone"] is False
    _, kwargs = invoked(
        KOPF_RUN_NAMESPACES="a b", KOPF_RUN_LIVENESS_ENDPOINT="http://h", KOPF_RUN_PEERING="p"
    )
    assert kwargs["namespaces"] == ("a", "b")
    assert (kwargs["liveness_endpoint"], kwargs["peering_name"]) == ("http://h", "p")


def test_the_status_address_is_a_host_and_a_port(invoked):
    _, kwargs = invoked("--status-address", "0.0.0.0:8081")
    assert kwargs["status_address"] == "0.0.0.0:8081"
    _, kwargs = invoked(KOPF_RUN_STATUS_ADDRESS="[::]:8081")
    assert kwargs["status_address"] == "[::]:8081"
    for wrong in ("8081", ":8081", "host", "host:0", "host:x", "host:99999"):
        result, _ = invoked("--status-address", wrong)
        assert result.exit_code == 2
        assert f"{wrong!r} is not an address such as 0.0.0.0:8080" in result.output


def test_kopf_1_45_has_no_status_address(invoked):
    result, _ = invoked("--status-address", "0.0.0.0:8081", KOPF_COMPAT="1.45")
    assert result.exit_code == 2
    assert "Kopf 1.45 has no such option" in result.output


def test_scopes_exclude_each_other(invoked):
    result, _ = invoked("-A", "-n", "x")
    assert result.exit_code == 2
    assert "Error: Either --namespace or --all-namespaces can be used, not both." in result.output


@pytest.mark.contract("api 13")
def test_runner_runs_a_command_and_stops_it(invoked, monkeypatch):
    from kopf.testing import KopfRunner

    monkeypatch.setattr("kopf._runtime.operator.run", lambda stop_flag, **_: stop_flag.wait())
    with KopfRunner(["run", "-A"], timeout=60, registry=kopf.OperatorRegistry()) as runner:
        assert not runner.future.done()
    assert (runner.exit_code, runner.exception) == (0, None)
    with pytest.raises(SystemExit), KopfRunner(["run", "--nope"], timeout=60):
        pass


def test_the_options_of_leader_election_are_passed(invoked):
    _, kwargs = invoked("--leader-elect", "--lease=crew", "--lease-namespace=ns")
    assert (kwargs["leader_elect"], kwargs["lease_name"], kwargs["lease_namespace"]) == (True, "crew", "ns")
    _, kwargs = invoked(KOPF_RUN_LEADER_ELECT="yes", KOPF_RUN_LEASE="c", KOPF_RUN_LEASE_NAMESPACE="n")
    assert (kwargs["leader_elect"], kwargs["lease_name"], kwargs["lease_namespace"]) == (True, "c", "n")
    _, kwargs = invoked()
    assert (kwargs["leader_elect"], kwargs["lease_name"], kwargs["lease_namespace"]) == (None, None, None)


def test_a_dev_operator_takes_part_in_an_election_only_on_request(invoked):
    _, kwargs = invoked("--dev", "--lease=crew")
    assert (kwargs["leader_elect"], kwargs["priority"]) == (None, 666)
    _, kwargs = invoked("--dev", "--lease=crew", "--leader-elect")
    assert (kwargs["leader_elect"], kwargs["priority"]) == (True, 666)


def test_kopf_1_45_has_no_leader_election(invoked):
    for options in (["--leader-elect"], ["--lease=crew"], ["--lease-namespace=ns"]):
        result, _ = invoked(*options, KOPF_COMPAT="1.45")
        assert result.exit_code == 2
        assert "Kopf 1.45 has no such option" in result.output
