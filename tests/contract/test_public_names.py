"""The public names, compared with those of Kopf 1.45, which is installed in a separate venv.

KOPF_REFERENCE_PYTHON is its interpreter. Every difference is listed here with its reason.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract("api 1.1", "api 1.2", "api 1.3", "api 4", "api 5.1")

SCRIPT = Path(__file__).with_name("dump_public_names.py")

# (the name, what differs) -> why; anything else is a failure, and so is an item that is not needed anymore.
NO_METHOD = "the mark is put by process(), which is called for all messages by all their ways"
NO_METACLASS = "servers are context managers by inheritance, which needs no class of classes"
SERVERS = ["Server", "K3dServer", "MinikubeServer", "DockerDesktopServer", "AutoServer", "NgrokTunnel"]
LAZY = "The reference to the object is made when it is needed."
CLUSTER = "An addition: runs the command on a cluster of the testing kit."
CLIENT = "An addition: the settings of the API client, after those of Kopf 1.45."
RECONCILING = "An addition: the settings of reconcilers, loaded when they are used."
SECRET = "An addition: the Secret with the certificate that all replicas share."
HAS_HANDLERS = "An addition: operators with nothing to do are reported."
CONTROLS = "Additional fields after those of Kopf 1.45: how to report errors, and when to exit at once."
ALLOWED = {
    ("ObjectLogger", "attributes"): LAZY,
    ("ObjectLogger", "properties"): LAZY,
    ("LocalObjectLogger", "attributes"): NO_METHOD,
    ("LocalObjectLogger", "methods"): NO_METHOD,
    ("LocalObjectLogger", "properties"): LAZY,
    **{(f"Webhook{name}", "kind"): NO_METACLASS for name in [*SERVERS, "AutoTunnel"]},
    **{(f"Webhook{name}", "parameters"): SECRET for name in SERVERS if name != "NgrokTunnel"},
    ("testing.KopfRunner", "parameters"): CLUSTER,
    ("OperatorRegistry", "attributes"): HAS_HANDLERS,
    ("OperatorRegistry", "properties"): HAS_HANDLERS,
    **{("OperatorSettings", aspect): CLIENT for aspect in ["fields", "parameters"]},
    **{("OperatorSettings", aspect): RECONCILING for aspect in ["attributes", "properties"]},
    **{("cli.CLIControls", aspect): CONTROLS for aspect in ["attributes", "fields", "parameters"]},
}
# Additions of kopf-rs, which are documented.
ADDED_COMMANDS = {
    "check",
    "cluster",
    "completion",
    "dev",
    "doctor",
    "explain",
    "help",
    "init",
    "manifests",
    "status",
}
ADDED_COMMANDS |= {"release-finalizers", "uninstall"}
ADDED_PARAMETERS = {"kubeconfig", "context", "output", "status_address"}
ADDED_PARAMETERS |= {"leader_elect", "lease_name", "lease_namespace"}
ADDED_TO_TESTING = {
    "Cluster",
    "NotSupportedError",
    "Operator",
    "ApiError",
    "Request",
    "ClusterUnavailableError",
    "UnexpectedError",
    "UnknownKindError",
}


def dumped(python, **env):
    output = subprocess.check_output([python, str(SCRIPT)], env={**os.environ, **env}, timeout=60)
    return json.loads(output)


@pytest.fixture(scope="module")
def reference():
    python = os.environ.get("KOPF_REFERENCE_PYTHON")
    if not python:
        pytest.skip("KOPF_REFERENCE_PYTHON is not set: there is nothing to compare with")
    return dumped(python, PYTHONPATH="")


@pytest.fixture(scope="module")
def ours():
    return dumped(sys.executable, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


@pytest.mark.contract("api 1.1", "api 1.2")
def test_names_are_the_same(reference, ours):
    assert len(reference["all"]) > 100
    assert sorted(ours["all"]) == sorted(reference["all"])
    assert len(reference["decorators"]) == 7
    assert ours["decorators"] == reference["decorators"]


@pytest.mark.contract("api 1.3")
def test_unlisted_names_are_the_same(reference, ours):
    assert set(ours["unlisted"]) - ADDED_NAMES == {"adjust_namespace", "harmonize_naming"}
    assert set(ours["unlisted"]) - ADDED_NAMES <= set(reference["unlisted"])


def test_additions_are_public_but_not_imported_by_an_asterisk(ours):
    import kopf

    public = {name for name in dir(kopf) if not name.startswith("_")}
    assert public - set(ours["all"]) == set(ours["unlisted"])
    assert public >= ADDED_NAMES
    for name in ADDED_NAMES:
        assert getattr(kopf, name) is not None
    for name in kopf.client.__all__:
        assert getattr(kopf.client, name) is not None


def test_the_testing_kit_only_adds(reference, ours):
    assert set(ours["testing"]) - set(reference["testing"]) == ADDED_TO_TESTING
    assert set(reference["testing"]) <= set(ours["testing"])


# Documented in docs/handlers.md.
ADDED_DECORATOR = "reconcile"
ADDED_OPTIONS = [["metadata_only", "KEYWORD_ONLY", "False"], ["status_address", "KEYWORD_ONLY", "None"]]
LEASE_OPTIONS = ("leader_elect", "lease_name", "lease_namespace")
ADDED_OPTIONS += [[name, "KEYWORD_ONLY", "None"] for name in LEASE_OPTIONS]


def _without_additions(shape):
    """The shape of a name, where functions have no options that are ours only."""
    if isinstance(shape, dict):
        return {key: _without_additions(value) for key, value in shape.items() if key != ADDED_DECORATOR}
    if isinstance(shape, list):
        return [_without_additions(value) for value in shape if value not in ADDED_OPTIONS]
    return shape


@pytest.mark.contract("api 1.5", "api 2.1", "api 11.1", "api 12", "api C")
def test_shapes_are_the_same(reference, ours):
    differences = {}
    assert len(reference["names"]) > 120
    for name, theirs in reference["names"].items():
        mine = _without_additions(ours["names"][name])
        for aspect in sorted(theirs.keys() | mine.keys()):
            if theirs.get(aspect) != mine.get(aspect):
                differences[name, aspect] = (theirs.get(aspect), mine.get(aspect))
    unexpected = {key: value for key, value in differences.items() if key not in ALLOWED}
    assert not unexpected
    assert not ALLOWED.keys() - differences.keys(), "These are not different anymore."
    for aspect in ["fields", "parameters"]:
        theirs, mine = differences["cli.CLIControls", aspect]
        assert mine[: len(theirs)] == theirs, "Arguments can be given by their positions."


# Documented in docs/compatibility.md; KOPF_COMPAT=1.45 sets the default of Kopf 1.45.
ADDED_SETTINGS = {
    ("networking", "compression"),
    ("networking", "login_timeout"),
    ("networking", "request_limit"),
    ("process", "compat"),
    ("queueing", "max_pending_events"),
    ("watching", "derived_selectors"),
}
ADDED_GROUPS = {"client"}
# In the package, but not in `__all__`.
ADDED_NAMES = {
    "ApiError",
    "Applied",
    "ApplyFailed",
    "Backoff",
    "Cache",
    "ChangeEvent",
    "Children",
    "Condition",
    "Conditions",
    "Leadership",
    "LeadershipLost",
    "OwnedByAnother",
    "ReconcileTimeoutError",
    "Ref",
    "Requeue",
    "apply",
    "apply_sync",
    "by_label",
    "cache",
    "client",
    "connect",
    "connect_sync",
    "leadership",
    "owned",
    "ref",
    "reference",
    "same_name",
    "trigger",
    "trigger_all",
    "wait_for",
    "watch",
}
PROGRESS = (
    "SmartProgressStorage(storages=[AnnotationsProgressStorage(prefix='kopf.zalando.org'), "
    "ReadOnlyStatusProgressStorage(name='kopf', field=status.kopf.progress)])"
)
DIFFBASE = "AnnotationsDiffBaseStorage(prefix='kopf.zalando.org', key='last-handled-configuration')"
OTHER_DEFAULTS = {
    # The representation of storages shows their options.
    ("persistence", "progress_storage"): {PROGRESS: "<kopf...SmartProgressStorage object>"},
    ("persistence", "diffbase_storage"): {DIFFBASE: "<kopf...AnnotationsDiffBaseStorage object>"},
    # A child whose size is known.
    ("execution", "executor"): {
        "HandlerPool": "ThreadPoolExecutor",
        "<kopf...HandlerPool object>": "<concurrent.futures.thread.ThreadPoolExecutor object>",
    },
}


def _as_in_the_original(group, content):
    def restored(name, value):
        return OTHER_DEFAULTS.get((group, name), {}).get(value, value)

    def kept(name):
        return (group, name) not in ADDED_SETTINGS

    return {
        **content,
        "fields": [[name, restored(name, value)] for name, value in content["fields"] if kept(name)],
        "values": {name: restored(name, value) for name, value in content["values"].items() if kept(name)},
    }


def test_settings_are_the_same(reference, ours):
    assert sum(len(group["fields"]) for group in reference["settings"].values()) > 45
    assert set(reference["settings"]) == set(ours["settings"]) - ADDED_GROUPS
    settings = {
        group: _as_in_the_original(group, content)
        for group, content in ours["settings"].items()
        if group not in ADDED_GROUPS
    }
    assert settings == reference["settings"]
    assert ours["settings"] != reference["settings"]


# Commands: the parameter in Kopf 1.45, and in kopf-rs.
OTHER_PARAMETERS = {
    # They are checked when the command is read: wrong usage has the exit code 2.
    ("run", "liveness_endpoint", "type"): ("text", "url"),
    ("run", "paths", "type"): ("text", "path"),
    # There is a default, so that it is not required there either.
    ("freeze", "priority", "required"): (True, False),
}


def test_commands_have_the_same_parameters(reference, ours):
    assert sum(len(parameters) for parameters in reference["commands"].values()) > 30
    differences = {}
    for name, theirs in reference["commands"].items():
        mine = [item for item in ours["commands"][name] if item["name"] not in ADDED_PARAMETERS]
        assert [parameter["name"] for parameter in mine] == [parameter["name"] for parameter in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.keys() == other.keys()
            for aspect in one:
                if one[aspect] != other[aspect]:
                    differences[name, one["name"], aspect] = (other[aspect], one[aspect])
    assert differences == OTHER_PARAMETERS
    assert set(ours["commands"]) - set(reference["commands"]) == ADDED_COMMANDS
