"""An operator as in a container: with an unknown user, without a home, on a read-only file system. DEP-5.

The image is built by no test: the container is a mount namespace of Linux, with the environment of the tests.
"""

import os
import pathlib
import shutil
import signal
import string
import subprocess
import sys

import pytest
from kopf._cli.manifest_objects import USER as MANIFESTS_USER
from kopf._cli.project_templates import DOCKERFILE

pytestmark = pytest.mark.kopf_embedded_only
ROOT = pathlib.Path(__file__).resolve().parents[3]
USER = "12345"
SCRIPT = (
    'mount --bind "$APP" "$APP" && mount -o remount,ro,bind "$APP" && cd "$APP"'
    f' && exec unshare --map-user={USER} "$@"'
)
CONTAINER = ["unshare", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "container"]
HANDLERS = """
import kopf
import os

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1")

@kopf.on.validate("secrets")
def check(**_):
    pass

@kopf.on.create("configmaps", labels={"greeted": "yes"})
def greet(name, logger, **_):
    logger.info(f"Hello, {name}, from {os.getuid()} in {os.getcwd()}.")
"""


@pytest.fixture
def app(tmp_path):
    """The folder of the image with the files of the operator."""
    folder = tmp_path / "srv"
    folder.mkdir()
    (folder / "handlers.py").write_text(HANDLERS)
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command")
    command = [*CONTAINER, "touch", "written"]
    environment = {**os.environ, "APP": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if "Read-only file system" not in done.stderr:
        pytest.skip(f"mount namespaces cannot be made here: {done.stderr.strip()}")
    return folder


def test_the_operator_runs_as_an_unknown_user_without_a_home_and_writes_no_files(kopf_cluster, app):
    shutil.copy(kopf_cluster.kubeconfig, app / "kubeconfig")
    files = sorted(app.rglob("*"))
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    # Temporary files could not be written, either.
    environment = {**kept, "APP": str(app), "TMPDIR": str(app), "KUBECONFIG": str(app / "kubeconfig")}
    command = [*CONTAINER, sys.executable, "-B", "-m", "kopf", "run", "-A", "handlers.py"]
    metadata = {"name": "one", "labels": {"greeted": "yes"}}
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    log = []
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                log.append(line)
                if "Hello" in line:
                    process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "".join(log)
        finally:
            process.kill()
    [greeting] = [line for line in log if "Hello" in line]
    assert f"Hello, one, from {USER} in {app}." in greeting
    assert not [line for line in log if "ERROR" in line or "WARNING" in line], "".join(log)
    assert sorted(app.rglob("*")) == files


IMAGES = {
    "example": (ROOT / "examples/30-deployment/Dockerfile").read_text(),
    "project": string.Template(DOCKERFILE).substitute(),
}


@pytest.mark.parametrize("image", IMAGES)
def test_images_have_only_the_environment_and_the_user_of_the_manifests(image):
    build, final = IMAGES[image].split("\n\n")
    assert build.startswith("FROM ") and final.startswith("FROM ")
    assert "-m venv /venv" in build and "COPY --from=environment /venv /venv\n" in final
    assert "ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1\n" in final
    assert f"USER {MANIFESTS_USER}\n" in final and 'ENTRYPOINT ["kopf", "run", ' in final
