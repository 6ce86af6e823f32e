"""Private modules of Kopf 1.45 that operators import: all rows of the table are importable, and all other
paths raise an error with advice."""

import importlib
import json
import os
import subprocess
import sys
import warnings

import pytest
from kopf import _compat

pytestmark = pytest.mark.contract("api 1.1", "api 14")

ROWS = [
    (module, theirs or ours)
    for module, sources in _compat.ALIASES.items()
    for names in sources.values()
    for ours, _, theirs in (entry.partition("=") for entry in names.split())
]
# They existed in earlier versions of Kopf, and operators still import them.
OLDER = {("kopf._cogs.aiokits.aioadapters", "Flag")}

# The names that are imported most often in issues and in public code.
NEEDED = {
    "kopf._cogs.structs.bodies": "Body RawBody RawEvent RawMeta BodyEssence Spec Meta Status Labels",
    "kopf._cogs.structs.diffs": "diff reduce Diff DiffItem DiffOperation",
    "kopf._cogs.structs.patches": "Patch",
    "kopf._cogs.structs.ephemera": "Memo AnyMemo",
    "kopf._cogs.structs.references": "Resource Selector Insights EVERYTHING match_namespace",
    "kopf._cogs.structs.credentials": "Vault ConnectionInfo LoginError VaultKey",
    "kopf._cogs.configs.configuration": "OperatorSettings ScanningSettings PostingSettings",
    "kopf._cogs.configs.conventions": "StorageKeyFormingConvention StorageStanzaCleaner",
    "kopf._core.actions.execution": "cause_var handler_var PermanentError TemporaryError ErrorsMode",
    "kopf._core.actions.invocation": "context invoke is_async_fn",
    "kopf._core.actions.loggers": "ObjectLogger ObjectJsonFormatter configure",
    "kopf._core.engines.posting": "K8sPoster event_queue_var event_queue_loop_var settings_var enqueue event",
    "kopf._core.engines.indexing": "OperatorIndexers OperatorIndices OperatorIndexer Index Store",
    "kopf._core.intents.registries": "SmartOperatorRegistry OperatorRegistry get_callable_id",
    "kopf._core.intents.handlers": "TimerHandler DaemonHandler ChangingHandler",
    "kopf._core.intents.causes": "ChangingCause WatchingCause Reason HANDLER_REASONS",
    "kopf._core.intents.callbacks": "ChangingFn WatchingFn DaemonFn TimerFn IndexingFn",
    "kopf._core.intents.piggybacking": "login_via_client login_via_pykube has_kubeconfig",
    "kopf._core.reactor.running": "run spawn_tasks operator run_tasks",
    "kopf._core.reactor.inventory": "ResourceMemories",
}


def test_the_table_has_what_operators_import():
    assert len(ROWS) > 150
    missing = {
        (module, name)
        for module, names in NEEDED.items()
        for name in names.split()
        if (module, name) not in ROWS
    }
    assert not missing


@pytest.mark.parametrize("module, name", ROWS)
def test_rows_lead_somewhere_with_a_warning(module, name):
    with pytest.warns(
        DeprecationWarning, match=f"{module}.{name} is private; (use kopf.|there is no public)"
    ):
        assert getattr(importlib.import_module(module), name) is not None or name == "commit_id"


def test_public_names_are_the_very_same_objects():
    import kopf

    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, name in ROWS:
            # Kopf 1.45 has two objects of each of these names; the public ones are the others.
            if name in kopf.__all__ and not module.endswith(("indexing", "callbacks")):
                seen += 1
                assert getattr(importlib.import_module(module), name) is getattr(kopf, name), name
    assert seen > 60


def test_rows_are_those_of_the_original():
    python = os.environ.get("KOPF_REFERENCE_PYTHON")
    if not python:
        pytest.skip("KOPF_REFERENCE_PYTHON is not set: there is nothing to compare with")
    script = (
        "import importlib, json, sys; rows = json.load(sys.stdin); "
        "print(json.dumps([[m, n] for m, n in rows if not hasattr(importlib.import_module(m), n)]))"
    )
    output = subprocess.run(
        [python, "-W", "ignore", "-c", script],
        input=json.dumps(ROWS),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": ""},
        timeout=60,
    ).stdout
    assert {tuple(row) for row in json.loads(output)} <= OLDER


def test_attributes_of_packages_are_found_as_of_any_package():
    script = (
        "import kopf._core.actions.loggers, kopf._core.reactor.running as r; import kopf; "
        "from kopf._cogs.structs import bodies, diffs; "
        "print(kopf._core.actions.loggers.configure.__name__, r.spawn_tasks.__name__, diffs.diff.__name__)"
    )
    output = subprocess.check_output([sys.executable, "-W", "ignore", "-c", script], text=True, timeout=60)
    assert output.split() == ["configure", "spawn_tasks", "diff"]


def test_modules_are_attributes_without_their_own_import():
    script = (
        "import kopf; print(kopf._core.actions.execution.TemporaryError is kopf.TemporaryError, "
        "kopf._cogs.structs.diffs.diff({'a': 1}, {'a': 1}), hasattr(kopf._core, 'nope'))"
    )
    output = subprocess.check_output([sys.executable, "-W", "ignore", "-c", script], text=True, timeout=60)
    assert output.split() == ["True", "()", "False"]


@pytest.mark.parametrize(
    "path, advice",
    [
        ("kopf._cogs.clients.api", "client library"),
        ("kopf._cogs.aiokits.aiotasks", "TaskGroup"),
        ("kopf._core.reactor.queueing", "kopf.testing"),
        ("kopf._core.engines.daemons", "kopf.operator()"),
        ("kopf._core.nope", "kopf.__all__"),
        ("kopf._kits.webhacks", "kopf.WebhookServerProtocol"),
        ("kopf.structs.bodies", "1.30"),
    ],
)
def test_other_paths_fail_with_advice(path, advice):
    with pytest.raises(ModuleNotFoundError) as err:
        importlib.import_module(path)
    assert f"No module named '{err.value.name}'" in str(err.value)
    assert path.startswith(err.value.name)
    assert advice in str(err.value)


@pytest.mark.parametrize(
    "name, advice",
    [("serve_admission_request", "kopf.testing.Cluster"), ("build_webhooks", "settings.admission.managed")],
)
def test_other_names_fail_with_advice(name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(importlib.import_module("kopf._core.engines.admission"), name)


def test_modules_that_never_were_are_simply_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'kopf.nope'$"):
        importlib.import_module("kopf.nope")
    assert importlib.util.find_spec("kopf.nope") is None


def test_assigned_constants_take_effect(monkeypatch):
    from kopf._runtime import login

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        piggybacking = importlib.import_module("kopf._core.intents.piggybacking")
        with monkeypatch.context() as patches:
            patches.setattr(piggybacking, "PRIORITY_OF_CLIENT", 50)
            assert login.PRIORITY_OF_CLIENT == piggybacking.PRIORITY_OF_CLIENT == 50
        assert login.PRIORITY_OF_CLIENT == piggybacking.PRIORITY_OF_CLIENT == 10


def test_other_names_can_be_assigned(monkeypatch):
    module = importlib.import_module("kopf._core.intents.piggybacking")
    monkeypatch.setattr(module, "mine", 1, raising=False)
    assert module.mine == 1
    monkeypatch.delattr(module, "mine")
    assert not hasattr(module, "mine")


def test_names_can_be_mocked():
    from unittest.mock import patch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with patch("kopf._core.intents.registries.SmartOperatorRegistry", return_value=5):
            from kopf._core.intents.registries import SmartOperatorRegistry

            assert SmartOperatorRegistry() == 5
        from kopf._core.intents.registries import SmartOperatorRegistry as Real

        assert Real() != 5
