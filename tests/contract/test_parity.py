"""Claims about the public names, evaluated under Kopf 1.45 and kopf-rs: the results must be equal.

KOPF_REFERENCE_PYTHON is the interpreter of Kopf 1.45. The claims are in `parity`, one file per area; only
intended differences are listed here, with reasons.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("parity")
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "parity_runner")

# (the file, the claim) -> why the answers differ.
ALLOWED = {
    ("configuration", "claim_settings_as_text"): "Only what differs from the defaults is shown.",
    ("configuration", "claim_texts_of_missing_options"): "Options show their environment variables.",
    ("configuration", "claim_wrong_usage_by_its_exit_code"): "Wrong usage is one line and the exit code 2.",
    ("declarations", "claim_decorators_without_arguments"): "A mistake: the handler would never be called.",
    ("modules", "claim_controls_as_text"): "It has additional fields after those of Kopf 1.45.",
    ("toolkits", "claim_runs_of_missing_files"): "Wrong usage is one line and the exit code 2.",
}


def output_of(python: str, name: str, **env: str) -> dict:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KOPF_")} | env
    env |= {"KUBECONFIG": "", "HOME": "/nope"}
    done = subprocess.run(
        [python, str(FOLDER / "parity_runner.py"), name], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_claims_are_seen():
    assert len(FILES) >= 4


@pytest.mark.parametrize("name", FILES)
def test_claims_are_the_same(name):
    reference = os.environ.get("KOPF_REFERENCE_PYTHON")
    if not reference:
        pytest.skip("KOPF_REFERENCE_PYTHON is not set: there is nothing to compare with")
    theirs = output_of(reference, name, PYTHONPATH="")
    ours = output_of(sys.executable, name, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    assert len(theirs) > 5
    assert ours.keys() == theirs.keys()
    different = {claim for claim in theirs if ours[claim] != theirs[claim]}
    allowed = {claim for file, claim in ALLOWED if file == name}
    assert {claim: (theirs[claim], ours[claim]) for claim in different - allowed} == {}
    assert different >= allowed, "These are not different anymore."
