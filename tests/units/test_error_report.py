"""The paragraph that a failed command ends with."""

import kopf
import pytest
from kopf._cli import error_report
from kopf._objects.reasons import Activity
from kopf._runtime.activities import ActivityError, CallResult
from kopf._runtime.bridge import Attempt
from kopf._runtime.engine_failures import to_exception

KUBECONFIG = """
current-context: here
contexts: [{name: other, context: {cluster: other}}, {name: here, context: {cluster: home}}]
clusters: [{name: home, cluster: {server: "https://h:6443/"}}, {name: other, cluster: {server: "https://o"}}]
"""
NO_ROUTE = "Cannot reach https://h:6443: no route."


def failed_startup(error):
    attempt = Attempt(
        label="Activity 'connect'",
        errors="permanent",
        backoff=1.0,
        started=0,
        retry=0,
        timeout=None,
        retries=1,
    )
    outcome = attempt.settle("permanent", str(error), None, str(error))
    outcomes = {"connect": CallResult(outcome, None, error)}
    return ActivityError("One or more handlers failed.", outcomes=outcomes, activity=Activity.STARTUP)


@pytest.mark.parametrize(
    "message, shown",
    [
        ("no database", "no database. The"),
        ("No database.", "No database. The"),
        ("../cert.pem not found", "../cert.pem not found. The"),
        ("waiting...", "waiting... The"),
    ],
)
def test_messages_of_handlers_are_quoted_as_they_are(message, shown):
    text = error_report.explain(failed_startup(kopf.PermanentError(message)))
    assert text == (
        f"The startup handler 'connect' failed for good: PermanentError: {shown} operator has not started."
    )


def test_rejected_requests_are_explained_and_their_exceptions_are_those_of_kopf_1_45():
    raw = "APIServerError('service unavailable\\n', None, status=503)"
    error = to_exception(("api", raw, "The API server has responded."))
    assert (str(error), error_report.explain(error)) == (raw, "The API server has responded.")
    assert error_report.explain(to_exception(("other", "a bug", None))) == "a bug"


@pytest.mark.parametrize("file", ["~/.kube/config", "named"])
def test_an_unreachable_server_is_reported_with_its_context(monkeypatch, tmp_path, file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    if file == "named":
        (tmp_path / "overlay").write_text("current-context: here")
        monkeypatch.setenv("KUBECONFIG", "overlay:named")
        (tmp_path / "named").write_text(KUBECONFIG)
    else:
        monkeypatch.delenv("KUBECONFIG", raising=False)
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(KUBECONFIG)
    text = error_report.explain(to_exception(("unreachable", "cannot reach", NO_ROUTE)))
    file = file.replace("~", str(tmp_path))
    assert text.startswith(f"{NO_ROUTE} The address comes from the context 'here' of the kubeconfig {file}.")


@pytest.mark.parametrize("text", ["", KUBECONFIG.replace("h:6443/", "h"), "contexts: 5", "[]"])
def test_kubeconfigs_with_other_addresses_are_not_named(monkeypatch, tmp_path, text):
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    error = to_exception(("unreachable", "cannot reach", NO_ROUTE))
    assert error_report.explain(error) == NO_ROUTE
