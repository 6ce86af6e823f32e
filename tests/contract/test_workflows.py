"""The workflows: changes are checked with a control plane, and wheels run before they are uploaded."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def load(name: str) -> dict:
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())


def run_ci(folder: pathlib.Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` in an empty checkout, with a Python that does nothing."""
    (folder / ".ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "KUBEBUILDER_ASSETS")}
    return subprocess.run(
        [folder / ".ci" / "run"],
        env={**environment, "PYTHON": "true", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_ci_fails_without_a_control_plane(tmp_path):
    done = run_ci(tmp_path, CI="true")
    assert done.returncode == 1
    assert "KUBEBUILDER_ASSETS is not set" in done.stdout


def test_without_a_control_plane_a_local_run_reports_what_it_skips(tmp_path):
    done = run_ci(tmp_path)
    assert done.returncode == 0
    assert "KUBEBUILDER_ASSETS is not set" in done.stdout and "skipped" in done.stdout


def test_ci_runs_with_the_control_plane_of_the_environment(tmp_path):
    done = run_ci(tmp_path, CI="true", KUBEBUILDER_ASSETS="/assets")
    assert (done.returncode, done.stdout) == (0, "Real control plane: /assets\n")


def test_each_pull_request_runs_all_checks_with_a_control_plane():
    workflow = load("ci")
    assert "pull_request" in workflow[True]  # YAML takes the key for a boolean
    assert workflow["permissions"] == {"contents": "read"}
    [job] = workflow["jobs"].values()
    commands = [step.get("run", "") for step in job["steps"]]
    [prepared] = [number for number, it in enumerate(commands) if "KUBEBUILDER_ASSETS=" in it]
    [checked] = [number for number, it in enumerate(commands) if ".ci/run" in it]
    assert prepared < checked
    assert "pipefail" in commands[checked], "the exit code is that of .ci/run"


def test_commands_of_workflows_exist_in_the_checkout():
    """The tasks of `make`, and the programs and the pinned requirements of the repository."""
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.M))
    targets = {name for names in targets for name in names.split()}
    jobs = [job for path in WORKFLOWS.glob("*.yml") for job in load(path.stem)["jobs"].values()]
    commands = [step.get("run", "") for job in jobs for step in job["steps"]]
    tasks = [word for it in commands for line in re.findall(r"\bmake ([\w -]+)", it) for word in line.split()]
    assert len(tasks) >= 3 and set(tasks) - {"PYTHON"} <= targets
    paths = [
        path
        for it in commands
        for path in re.findall(r"(?:scripts|requirements|packaging|tests)/[\w./]+", it)
    ]
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_no_step_after_the_checkout_has_the_token():
    jobs = [job for path in WORKFLOWS.glob("*.yml") for job in load(path.stem)["jobs"].values()]
    checkouts = [
        it for job in jobs for it in job["steps"] if it.get("uses", "").startswith("actions/checkout@")
    ]
    assert len(checkouts) == len(jobs)
    assert all(it["with"] == {"persist-credentials": False} for it in checkouts)


def test_the_workflows_are_linted_first():
    [job] = load("ci")["jobs"].values()
    assert next(it["run"] for it in job["steps"] if "run" in it) == "make lint-workflows"


def test_all_fuzz_targets_run_on_a_schedule():
    targets = {path.stem for path in (ROOT / "fuzz" / "fuzz_targets").glob("*.rs")}
    assert set(load("advisories")["jobs"]["fuzz"]["strategy"]["matrix"]["target"]) == targets
    [listed] = re.findall(r"^FUZZ_TARGETS [?]= (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert set(listed.split()) == targets


def test_wheels_have_the_licences_of_the_crates_of_their_platform():
    jobs = load("wheels")["jobs"]
    for name in ("wheel", "macos"):
        [command] = [
            step["run"] for step in jobs[name]["steps"] if "scripts/licences.py" in step.get("run", "")
        ]
        assert command.endswith(" python/kopf/THIRD-PARTY.txt ${{ matrix.target }}"), name


def test_the_results_of_failed_checks_are_kept():
    [job] = load("ci")["jobs"].values()
    [kept] = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert kept["if"] == "failure()"
    assert "target/results/*.json" in kept["with"]["path"]
    assert 'ROOT / "target" / "results"' in (ROOT / "scripts" / "ci.py").read_text()


def test_each_wheel_runs_an_example_before_it_is_uploaded():
    jobs = load("wheels")["jobs"]
    for name in ("wheel", "macos"):
        steps = [json.dumps(step) for step in jobs[name]["steps"]]
        [ran] = [number for number, step in enumerate(steps) if "examples/20-testing" in step]
        assert "kopf --version" in steps[ran] and "-m pytest" in steps[ran], name
        [uploaded] = [number for number, step in enumerate(steps) if "upload-artifact" in step]
        assert ran < uploaded, name
