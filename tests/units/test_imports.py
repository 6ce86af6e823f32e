"""Imports of the package: private paths of Kopf 1.45, and what is loaded."""

import os
import subprocess
import sys

import kopf
import pytest


@pytest.mark.contract("api 14")
def test_private_paths_of_the_original_are_answered_with_a_warning():
    with pytest.warns(DeprecationWarning, match="use kopf.Body"):
        from kopf._cogs.structs.bodies import Body
    assert Body is kopf.Body
    with pytest.warns(DeprecationWarning, match="use kopf.Diff"):
        import kopf._cogs.structs.diffs as diffs

        assert diffs.Diff is kopf.Diff


@pytest.mark.contract("api 14")
def test_other_private_paths_fail_with_advice():
    with pytest.raises(ImportError, match=r"kopf.operator\(\)"):
        import kopf._core.engines.nope  # noqa: F401
    with pytest.raises(ImportError, match=r"cannot import name|kopf.__all__"):
        from kopf._cogs.structs.bodies import nope  # noqa: F401


def test_importing_is_cheap():
    heavy = "asyncio click yaml dataclasses inspect typing enum logging kopf._kopf"
    script = (
        "import sys; before = set(sys.modules); import kopf, kopf.on; "
        f"print(set({heavy.split()}) & (set(sys.modules) - before))"
    )
    output = subprocess.check_output(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert output.strip() == b"set()"
