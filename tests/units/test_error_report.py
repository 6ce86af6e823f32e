"""The paragraph that a failed command ends with."""

import kopf
import pytest
from kopf._cli import error_report
from kopf._objects.reasons import Activity
from kopf._runtime.activities import ActivityError
from kopf._runtime.bridge import Attempt, ErrorKind
from kopf._runtime.invocation import CallResult


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
    outcome = attempt.settle(ErrorKind.PERMANENT, str(error), None, str(error))
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
