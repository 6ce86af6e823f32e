"""The report of `.ci/run`: all failures of one run, and tests that fail only once."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from scripts import cargo_test, ci

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> ci.Run:
    """A run in an empty checkout; its `make` runs the script that is named like the target."""
    return ci.Run(tmp_path, tmp_path / "results", ["sh", "-c", './"$0" "$@"'])


def script(folder: pathlib.Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return [str(path)]


def target(
    folder: pathlib.Path, name: str, first: dict[str, str], again: dict[str, str], code: int = 1
) -> list[str]:
    """A make target whose tests fail with these errors, at first and once more."""
    return script(
        folder,
        name,
        f"""
        import json, pathlib, sys
        again = "AGAIN=1" in sys.argv
        failed = {again!r} if again else {first!r}
        name = "results/{name}.again.json" if again else "results/{name}.json"
        pathlib.Path("results").mkdir(exist_ok=True)
        code = {code} if failed else 0
        pathlib.Path(name).write_text(json.dumps({{"code": code, "failed": failed}}))
        print("=== 1 failed, 2 passed in 0.1s ===" if failed else "=== 3 passed in 0.1s ===")
        sys.exit(2 if failed else 0)
        """,
    )


def report(output: str) -> list[str]:
    """The last lines, without the times."""
    return output.splitlines()[output.splitlines().index("--- Closing lines of the test runners:") + 1 :]


def test_a_run_without_failures_passes(run, tmp_path, capfd) -> None:
    assert run.stage("make lint", 1, ["true"])
    assert run.stage("make test", 1, target(tmp_path, "test-x", {}, {}), targets=["test-x"])
    assert run.finish() == 0
    assert report(capfd.readouterr().out) == [
        "=== 3 passed in 0.1s ===",
        "--- How long each stage took (minutes:seconds):",
        "   0:00  make lint",
        "   0:00  make test",
        "All is well.",
    ]


def test_one_run_names_all_failures(run, tmp_path, capfd) -> None:
    """Two broken tests, a failed lint, a test that fails once, and a stage that passes."""
    broken = {"a.py::test_broken": "AssertionError: 1"}
    target(tmp_path, "test-x", {**broken, "b.py::test_once": "TimeoutError: 2"}, broken)
    target(tmp_path, "test-y", {"core rule": "left != right"}, {"core rule": "left != right"})
    command = ["sh", "-c", f"{tmp_path}/test-x; {tmp_path}/test-y; exit 2"]
    assert not run.stage("make test", 1, command, targets=["test-x", "test-y"])
    run.begin("make lint", 1, ["false"])
    run.wait("make lint")
    assert run.stage("make docs", 1, ["true"])
    assert run.finish() == 1
    lines = report(capfd.readouterr().out)
    assert [line for line in lines if line.startswith("F")] == [
        "FAILED STAGE: make test (exit code 2)",
        "FAILED STAGE: make lint (exit code 1)",
        "FAILED TEST: test-x: a.py::test_broken: AssertionError: 1",
        "FAILED TEST: test-y: core rule: left != right",
        "FLAKY: test-x: b.py::test_once: TimeoutError: 2",
        "FAILED.",
    ]
    assert len(lines) < 60


def test_flaky_tests_alone_fail_no_run(run, tmp_path, capfd) -> None:
    run.stage("make test", 1, target(tmp_path, "test-x", {"a": "E: 1"}, {}), targets=["test-x"])
    assert run.finish() == 0
    assert "FLAKY: test-x: a: E: 1" in report(capfd.readouterr().out)


def test_many_flaky_tests_fail_the_run(run, tmp_path, capfd) -> None:
    failed = {f"test_{number}": "E: 1" for number in range(6)}
    run.stage("make test", 1, target(tmp_path, "test-x", failed, {}), targets=["test-x"])
    assert run.finish() == 1
    assert "6 tests are flaky; more than 5 fail the run." in report(capfd.readouterr().out)


@pytest.mark.parametrize("code", [2, 3, 4, 101])
def test_a_target_that_could_not_run_all_its_tests_is_not_excused(run, tmp_path, capfd, code: int) -> None:
    run.stage("make test", 1, target(tmp_path, "test-x", {"a": "E: 1"}, {}, code), targets=["test-x"])
    assert run.finish() == 1
    assert "FAILED STAGE: make test (exit code 2)" in report(capfd.readouterr().out)


def test_a_target_without_results_is_not_excused(run, tmp_path, capfd) -> None:
    command = ["sh", "-c", f"{tmp_path}/test-x; false"]
    target(tmp_path, "test-x", {"a": "E: 1"}, {})
    run.stage("make test", 1, command, targets=["test-x", "test-y"])
    assert run.finish() == 1
    assert "FAILED STAGE: make test (exit code 1)" in report(capfd.readouterr().out)


def test_a_stage_has_a_limit(run, capfd) -> None:
    assert not run.stage("make soak", 0.001, ["sh", "-c", "sleep 60 & wait"])
    assert run.finish() == 1
    output = capfd.readouterr().out
    assert "FAILED STAGE: make soak (took too long)" in report(output)
    assert "make soak: it took longer than 0.001 minutes, and was ended." in output


def test_stages_run_without_input_and_without_removed_variables(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "x")
    command = ["sh", "-c", 'test -z "${KUBECONFIG:-}" && ! read -r line']
    assert run.stage("make demo", 1, command, without=["KUBECONFIG"])


def is_running(pid: int) -> bool:
    """Whether the process exists; one that is not reaped yet has ended."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


STOPPED = """
import sys
from scripts import ci

def run_all(run):
    run.begin("environments", 5, ["bash", "-c", {background!r}])
    run.stage("tests", 5, ["bash", "-c", {foreground!r}])

ci.ROOT = __import__("pathlib").Path({root!r})
ci.run_all = run_all
sys.exit(ci.main())
"""


def test_sigterm_ends_all_stages_at_once(tmp_path: pathlib.Path) -> None:
    """Also a stage that writes nothing, and a loop in the background with its child."""
    background = "echo $$ > pid; until [ -e never ]; do sleep 60; done"
    foreground = "until [ -s pid ]; do :; done; echo $(cat pid) $$; sleep 60; sleep 60"
    text = STOPPED.format(background=background, foreground=foreground, root=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "--- tests\n"
        leaders = [int(pid) for pid in process.stdout.readline().split()]
        children = [
            int(pid)
            for leader in leaders
            for pid in pathlib.Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        ]
        process.terminate()
        try:
            assert process.wait(ci.GRACE + 30) == 1
            assert [pid for pid in leaders + children if is_running(pid)] == []
        finally:
            process.kill()
            for pid in filter(is_running, leaders):
                os.killpg(pid, signal.SIGKILL)


def test_a_stage_that_ignores_sigterm_is_killed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ci, "GRACE", 0.5)
    run = ci.Run(tmp_path, tmp_path / "results")
    run.begin(
        "stuck", 5, ["bash", "-c", "trap '' TERM; echo $$ > pid; mv pid ready; while :; do sleep 60; done"]
    )
    assert run.stage("started", 5, ["bash", "-c", "until [ -e ready ]; do :; done"])
    run.stop()
    run.wait("stuck")
    assert not is_running(int((tmp_path / "ready").read_text()))


def test_a_stage_in_the_background_begins_after_another_one(tmp_path) -> None:
    run = ci.Run(tmp_path, tmp_path / "results")
    run.begin("first", 5, ["bash", "-c", "until [ -e proceed ]; do :; done; touch finished"])
    run.begin("second", 5, ["bash", "-c", "cp finished copied"], after="first")
    assert run.stage("meanwhile", 5, ["touch", "proceed"])
    run.wait("first")
    run.wait("second")
    assert run.finish() == 0
    assert (tmp_path / "copied").exists()


def test_a_stopped_run_starts_no_more_stages(run, tmp_path) -> None:
    run.stop()
    assert not run.stage("late", 5, ["bash", "-c", "sleep 60; touch done"])
    assert not (tmp_path / "done").exists()


CARGO = """
   Compiling kopf-core v0.1.0 (/kopf-rs/rust/kopf-core)
     Running unittests src/lib.rs (target/debug/deps/kopf_core-0123456789abcdef)

running 3 tests
test cause::tests::rule ... ok
test diff::tests::order ... FAILED
test diff::tests::size - should panic ... FAILED

failures:

---- diff::tests::order stdout ----

thread 'diff::tests::order' (77) panicked at rust/kopf-core/src/diff.rs:12:9:
assertion `left == right` failed: in order
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
---- diff::tests::size - should panic stdout ----
note: test did not panic as expected at rust/kopf-core/src/diff.rs:20:8

failures:
    diff::tests::order
    diff::tests::size

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p kopf-core --lib`
     Running tests/sim/main.rs (target/debug/deps/sim-0123456789abcdef)

running 1 test
error: test failed, to rerun pass `-p kopf-core --test sim`

Caused by:
  process didn't exit successfully: `sim` (signal: 6, SIGABRT: process abort signal)
   Doc-tests kopf_engine

running 1 test
test rust/kopf-engine/src/lib.rs - run (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


def test_failed_rust_tests_are_found_in_the_output_of_cargo() -> None:
    found = cargo_test.Report()
    for line in CARGO.splitlines():
        found.add(line)
    found.end()
    core = ("kopf_core", "--lib")
    assert found.failed == {
        (*core, "diff::tests::order"): (
            "assertion `left == right` failed: in order (rust/kopf-core/src/diff.rs:12:9)"
        ),
        (*core, "diff::tests::size"): "no error was reported",
        ("sim", "--test=sim", cargo_test.WHOLE): "the program ended without a result",
    }
    assert list(cargo_test.commands(["--workspace"], list(found.failed))) == [
        [
            *("cargo", "test", "--no-fail-fast", "--workspace", "--lib", "--", "--test-threads=1"),
            *("--exact", "diff::tests::order", "diff::tests::size"),
        ],
        ["cargo", "test", "--no-fail-fast", "--workspace", "--test=sim", "--", "--test-threads=1"],
    ]


def test_the_pytest_plugin_writes_failures_errors_and_broken_files(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
        import pytest

        @pytest.fixture
        def broken():
            raise OSError("no server")

        def test_passes():
            pass

        def test_fails():
            assert [1] == [2], "in order"

        def test_cannot_start(broken):
            pass
        """)
    )
    (tmp_path / "test_not_python.py").write_text("import nothing_of_this_name")
    results = tmp_path / "results" / "x.json"

    def run_pytest(*args: str) -> dict[str, object]:
        command = [sys.executable, "-m", "pytest", "-p", "tests.support.results", "--results", str(results)]
        subprocess.run(
            [*command, "-c", os.devnull, "--rootdir", str(tmp_path), *args, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            timeout=60,
        )
        return json.loads(results.read_text())

    # The main process writes what its worker processes report.
    for parallel in ([], ["-n", "2"]):
        assert run_pytest("--continue-on-collection-errors", *parallel) == {
            "code": 1,
            "failed": {
                "test_not_python.py": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
                "test_it.py::test_fails": "AssertionError: in order",
                "test_it.py::test_cannot_start": "OSError: no server",
            },
        }
