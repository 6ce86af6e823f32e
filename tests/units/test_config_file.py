"""Options in `pyproject.toml`, their precedence, and the messages about mistakes in them."""

import click.testing
import pytest
from kopf._cli import commands, config_file


def defaults(tmp_path, text):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    return config_file.read_defaults(commands.main, path)


SHARED = """
[tool.kopf]
files = ["one.py", "two.py"]
module = "three"
namespace = ["a", "b"]
log-format = "json"
peering = "mine"

[tool.kopf.dev]
manifests = ["crd.yaml"]
reload = true
port = 8443
namespace = "c"

[tool.kopf.freeze]
lifetime = 60
"""


def test_shared_options_are_for_those_commands_that_have_them(tmp_path):
    assert defaults(tmp_path, SHARED) == {
        "run": {
            "paths": ["one.py", "two.py"],
            "modules": ["three"],
            "namespaces": ["a", "b"],
            "log_format": "json",
            "peering_name": "mine",
        },
        "dev": {
            "paths": ["one.py", "two.py"],
            "modules": ["three"],
            "namespaces": ["c"],
            "log_format": "json",
            "manifests": ["crd.yaml"],
            "reload": True,
            "port": "8443",
        },
        "check": {
            "paths": ["one.py", "two.py"],
            "modules": ["three"],
            "namespaces": ["a", "b"],
            "peering_name": "mine",
        },
        "freeze": {"lifetime": "60"},
    }


def test_the_kubeconfig_to_connect_to_is_not_the_one_that_dev_writes(tmp_path):
    found = defaults(tmp_path, "[tool.kopf]\nkubeconfig = 'a'")
    assert found == {"run": {"kubeconfig": "a"}, "check": {"kubeconfig": "a"}}
    found = defaults(tmp_path, "[tool.kopf.dev]\nkubeconfig = 'b'")
    assert found == {"dev": {"kubeconfig": "b"}}


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1", "[tool.kopfer]\nx = 1", "# [tool.kopf]"])
def test_projects_without_the_section(tmp_path, text):
    assert defaults(tmp_path, text) == {}
    assert config_file.read_defaults(commands.main, tmp_path / "nope.toml") == {}


@pytest.mark.parametrize(
    "text, message",
    [
        ("[tool.kopf", "cannot be read: "),
        ("[tool]\nkopf = 1\n#tool.kopf", r"\[tool.kopf\] of .* is not a table"),
        ("[tool.kopf]\ndev = 1", r"\[tool.kopf.dev\] of .* is not a table"),
        (
            "[tool.kopf]\nnamespce = 'x'",
            r"\[tool.kopf\] of .*pyproject.toml has an unknown option 'namespce'; did you mean 'namespace'\?",
        ),
        ("[tool.kopf]\nlifetime = 1", "unknown option 'lifetime'"),
        ("[tool.kopf.dev]\npeering = 'x'", r"\[tool.kopf.dev\] of .* has an unknown option 'peering'"),
        ("[tool.kopf.dev]\nreload = 'yes'", "'reload' .* must be true or false"),
        ("[tool.kopf]\nliveness = true", "'liveness' .* must not be true or false"),
        ("[tool.kopf]\nliveness = ['x']", "'liveness' .* must be one value"),
        ("[tool.kopf.uninstall]\nyes = true", r"\[tool.kopf.uninstall\] .* has 'yes', which is only"),
        ("[tool.kopf.release-finalizers]\nforce = true", "has 'force', which is only for the command line"),
    ],
)
def test_mistakes_are_usage_errors(tmp_path, text, message):
    with pytest.raises(click.UsageError, match=message):
        defaults(tmp_path, text)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The arguments with which an operator is run, by the configuration and the command line."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.py", "two.py", "other.py"):
        (tmp_path / name).touch()
    calls = []
    loaded = []
    monkeypatch.setattr("kopf._runtime.operator.run", lambda **kwargs: calls.append(kwargs))
    monkeypatch.setattr("kopf._runtime.loaders.preload", lambda **kwargs: loaded.append(kwargs))

    def run(text, *args, **env):
        (tmp_path / "pyproject.toml").write_text(text)
        done = click.testing.CliRunner().invoke(commands.main, ["run", *args], env=env)
        assert done.exit_code == 0, done.output
        return {**loaded.pop(), **calls.pop()}

    return run


def test_the_command_line_and_the_environment_have_precedence(run):
    text = "[tool.kopf]\nfiles = ['one.py', 'two.py']\nnamespace = ['a']\npeering = 'mine'"
    found = run(text)
    assert (found["paths"], found["namespaces"]) == (("one.py", "two.py"), ("a",))
    assert (found["clusterwide"], found["peering_name"]) == (False, "mine")
    assert run(text, "-n", "b")["namespaces"] == ("b",)
    assert run(text, KOPF_RUN_NAMESPACES="b c")["namespaces"] == ("b", "c")
    assert run(text, "-P", "other", KOPF_RUN_PEERING="third")["peering_name"] == "other"
    assert run(text, "other.py")["paths"] == ("other.py",)


def test_alternatives_are_replaced_together(run):
    text = "[tool.kopf]\nfiles = ['one.py']\nnamespace = ['a']"
    found = run(text, "-A", "-m", "four")
    assert (found["namespaces"], found["clusterwide"]) == ((), True)
    assert (found["paths"], found["modules"]) == ((), ("four",))
    found = run("[tool.kopf]\nall-namespaces = true\nmodule = ['one']", "-n", "b", "other.py")
    assert (found["namespaces"], found["clusterwide"]) == (("b",), False)
    assert (found["paths"], found["modules"]) == (("other.py",), ())
