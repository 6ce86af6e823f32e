"""Dependencies: allowed sources, licences, and banned crates.

The rules are those of `deny.toml`, checked here without cargo-deny and without the network. Advisories change
independently of the repository: `make audit` and a scheduled workflow check them, and no merge depends on
them.
"""

import json
import pathlib
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
DENY = tomllib.loads((ROOT / "deny.toml").read_text())
LOCKED = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
MEMBERS = {"kopf-core", "kopf-engine", "kopf-apiserver", "kopf-py"}


def strangers(packages: list[dict]) -> list[str]:
    """Packages that come from elsewhere than the registry, or that could be exchanged unnoticed."""
    return [
        package["name"]
        for package in packages
        if package["name"] not in MEMBERS
        and (
            package.get("source") != CRATES_IO
            or not re.fullmatch("[0-9a-f]{64}", package.get("checksum", ""))
        )
    ]


def unlicensed(packages: list[dict]) -> list[str]:
    """Packages without a licence from the list. Every OR needs one; exceptions belong to their licences."""
    allowed = set(DENY["licenses"]["allow"])
    found = []
    for package in packages:
        text = (package["license"] or "").replace("/", " OR ").replace("(", "").replace(")", "")
        required = [part.split(" OR ") for part in text.split(" AND ")]
        if not all(any(choice.strip() in allowed for choice in choices) for choices in required):
            found.append(f"{package['name']}: {package['license']}")
    return found


def metadata() -> list[dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["packages"]


def test_crates_come_from_the_registry_with_checksums():
    assert len(LOCKED) > 100
    assert strangers(LOCKED) == []
    assert {DENY["sources"][key] for key in ("unknown-registry", "unknown-git")} == {"deny"}


def test_planted_strangers_are_found():
    fork = {"name": "serde", "source": "git+https://example.com/serde#1"}
    copied = {"name": "serde"}
    unsure = {"name": "serde", "source": CRATES_IO, "checksum": "?"}
    assert strangers([fork, copied, unsure]) == ["serde"] * 3


def test_licences_are_those_of_the_list():
    packages = metadata()
    assert len(packages) > 100
    assert unlicensed(packages) == []
    assert unlicensed([{"name": "x", "license": "MIT AND GPL-3.0"}, {"name": "y", "license": None}]) == [
        "x: MIT AND GPL-3.0",
        "y: None",
    ]


def test_what_is_banned_is_not_there():
    banned = {it["crate"] for it in DENY["bans"]["deny"] if "wrappers" not in it}
    assert banned >= {"openssl-sys", "native-tls"}
    assert banned & {package["name"] for package in LOCKED} == set()


def test_no_dependency_is_taken_in_any_version():
    manifests = [ROOT / "Cargo.toml", *ROOT.glob("rust/*/Cargo.toml")]
    assert len(manifests) == 1 + len(MEMBERS)
    for path in manifests:
        manifest = tomllib.loads(path.read_text())
        assert "patch" not in manifest and "replace" not in manifest, path
        known = [manifest, manifest.get("workspace", {}), *manifest.get("target", {}).values()]
        for section in known:
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                for name, it in section.get(kind, {}).items():
                    version = it if isinstance(it, str) else it.get("version", "")
                    assert version != "*" and "git" not in it, f"{path}: {name}"


REQUIREMENTS = sorted((ROOT / "requirements").glob("*.in"))


def requirements(path: pathlib.Path) -> list[str]:
    """The lines of a file with requirements, without comments."""
    lines = map(str.strip, path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_python_packages_come_from_the_index():
    assert len(REQUIREMENTS) >= 5
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for path in REQUIREMENTS for line in requirements(path)] + project["dependencies"]
    assert len(lines) > 10
    odd = [
        line
        for line in lines
        if not re.fullmatch(r"[A-Za-z0-9_.-]+([<>=!~]=?[0-9.,<>=!~ ]+)?|-r [a-z]+[.]in", line)
    ]
    assert odd == [], "neither addresses nor options"


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_environments_are_locked(path):
    """`make lock` has to run after a change of the requirements."""
    locked = dict(line.split(" ;")[0].split("==") for line in requirements(path.with_suffix(".txt")))
    asked = requirements(path)
    while asked:
        required = asked.pop()
        if required.startswith("-r "):
            asked += requirements(path.with_name(required.removeprefix("-r ")))
            continue
        parsed = Requirement(required)
        assert parsed.specifier.contains(locked[parsed.name.lower().replace("_", "-")]), required


def test_nothing_else_is_installed_without_a_lock():
    """The wheels that were just built are the exception, and what pages and templates of users show."""
    lines = re.findall(r"pip install (.+)", (ROOT / "Makefile").read_text())
    odd = [line for line in lines if "requirements/" not in line and "kopf_rs-*.whl" not in line]
    assert len(lines) > 10 and odd == []


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def unpinned(text: str) -> list[str]:
    """Actions that could be exchanged unnoticed: tags can be moved, commits cannot."""
    uses = [line.strip().removeprefix("- ") for line in text.splitlines() if "uses:" in line]
    return [line for line in uses if not PINNED.fullmatch(line)]


def test_actions_are_pinned_by_the_hashes_of_commits():
    assert len(WORKFLOWS) >= 2
    texts = [path.read_text() for path in WORKFLOWS]
    assert sum(text.count("uses:") for text in texts) > 10
    assert [line for text in texts for line in unpinned(text)] == []
    moving = ["uses: actions/checkout@v5", "uses: actions/checkout@main # v5.0.0"]
    assert unpinned("\n".join(f"      - {line}" for line in moving)) == moving


def test_what_is_released_is_attested():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())["jobs"]
    uploading = {
        name: job for name, job in jobs.items() if "actions/upload-artifact@" in json.dumps(job["steps"])
    }
    assert set(uploading) >= {"wheel", "sdist", "metadata"}
    for name, job in uploading.items():
        assert job["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}, name
        assert "actions/attest-build-provenance@" in json.dumps(job["steps"]), name


def test_the_compiler_and_the_dependencies_of_wheels_are_pinned():
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", channel)
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    assert f'rust-toolchain: "{channel}"' in workflow and f'RUSTUP_TOOLCHAIN: "{channel}"' in workflow
    assert "--release --locked" in workflow and "MATURIN_PEP517_ARGS: --locked" in workflow
    assert "maturin build --release --locked" in (ROOT / "Makefile").read_text()


def test_advisories_are_looked_up_on_a_schedule():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "advisories.yml").read_text())
    # YAML takes the key for a boolean.
    assert workflow[True]["schedule"]
    steps = json.dumps(workflow["jobs"])
    assert "cargo deny" in steps and "pip-audit" in steps
