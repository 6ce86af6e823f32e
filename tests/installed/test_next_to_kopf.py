"""kopf-rs and Kopf 1.45 in one environment: installed over each other, and then repaired."""

ORIGINAL = "kopf==1.45.2"
LOOK = (
    "import kopf; from kopf._cogs.structs.bodies import Body; "
    "from kopf._core.engines.posting import K8sPoster; "
    "print(kopf.__version__, Body.__module__, K8sPoster.__module__)"
)


def test_the_original_under_kopf_rs_is_noticed_and_not_mixed_in(environment, wheel):
    environment.pip("install", "--no-deps", ORIGINAL)
    environment.pip("install", "--no-deps", "PyYAML", wheel)
    done = environment.run("-W", "ignore::DeprecationWarning", "-c", LOOK)
    assert done.returncode == 0, done.stderr
    version, *modules = done.stdout.split()
    assert version != "1.45.2"
    assert modules == ["kopf._objects.bodies", "kopf._runtime.posting"]
    assert (
        "RuntimeWarning: The distributions `kopf` and `kopf-rs` are installed over each other" in done.stderr
    )
    assert "pip uninstall -y kopf`" in done.stderr
    assert "pip install --force-reinstall --no-deps kopf_rs-*.whl`" in done.stderr
    assert str(environment.folder) in done.stderr

    # The advised command fixes it.
    environment.pip("uninstall", "-y", "kopf")
    environment.pip("install", "--force-reinstall", "--no-deps", wheel)
    done = environment.run("-W", "error", "-c", "import kopf; print(kopf.on.create('x').__name__)")
    assert (done.stdout, done.stderr) == ("decorator\n", "")


def test_kopf_rs_alone_prints_nothing(environment, wheel):
    environment.pip("install", "--no-deps", wheel)
    done = environment.run("-W", "error", "-m", "kopf", "--version")
    assert done.stdout.startswith("kopf, version ")
    assert done.stderr == ""
