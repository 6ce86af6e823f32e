"""helm: a release from its installation to its removal, with the objects after each step."""

import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile
from typing import Any

from kinds import CONFIG_MAPS, CRDS, DEPLOYMENTS, NAMESPACES, SECRETS, SERVICES, gadgets
from kubectl_client import KubectlClient
from outcomes import Outcomes

CHART = pathlib.Path(__file__).parent / "chart"
GADGETS = gadgets("helm")


class HelmError(Exception):
    """The command has failed; the message is what it has printed."""


class HelmFlow:
    """helm as a user calls it; kubectl gets the objects."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.kubectl = KubectlClient(namespace)
        self._home = tempfile.TemporaryDirectory()

    def close(self) -> None:
        self._home.cleanup()
        self.kubectl.close()

    def helm(self, *words: str) -> str:
        command = [os.environ["HELM"], "--namespace", self.namespace, *words]
        env = {**os.environ, "HOME": self._home.name}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    def run(self) -> dict[str, Any]:
        outcomes = Outcomes(lambda e: {"message": str(e)} if isinstance(e, HelmError) else self._error(e))
        step = outcomes.step

        def document(*words: str) -> Any:
            return json.loads(self.helm(*words, "--output=json"))

        def manifests(*words: str) -> list[str]:
            return self.helm(*words).splitlines()

        self.kubectl.create(NAMESPACES, NAMESPACES.object(self.namespace))
        self.kubectl.create(CONFIG_MAPS, CONFIG_MAPS.object("there", data={"a": "b"}))
        install = ("install", "shop", str(CHART))
        upgrade = ("upgrade", "shop", str(CHART))
        step("install in a dry run", lambda: stable(manifests(*install, "--dry-run=server", "--skip-crds")))
        step("install", document, *install)
        self._get(step, "install")
        step("install again", document, *install)
        step("list", document, "list")
        step("status", document, "status", "shop")
        step("upgrade", document, *upgrade, "--set=size=3,image=nginx:2")
        self._get(step, "upgrade")
        self.kubectl.patch(DEPLOYMENTS, "shop", {"metadata": {"annotations": {"by": "another"}}})
        step("upgrade wrongly", document, *upgrade, "--set=size=0,greeting=Bye")
        step("history", document, "history", "shop")
        step("roll back", lambda: self.helm("rollback", "shop", "1").splitlines())
        self._get(step, "rollback")
        step("manifest", manifests, "get", "manifest", "shop")
        step("values", document, "get", "values", "shop", "--all")
        kept = self.kubectl.list(SECRETS, labels=[("owner", "=", ("helm",))])
        step("releases", lambda: [(it["metadata"]["name"], it["type"]) for it in kept["items"]])
        step("uninstall", lambda: self.helm("uninstall", "shop").splitlines())
        step("uninstall again", self.helm, "uninstall", "shop")
        for kind in (CONFIG_MAPS, SERVICES, DEPLOYMENTS, GADGETS):
            outcomes.until(
                f"get after the uninstallation: {kind.plural}",
                functools.partial(self.kubectl.get, kind, "shop"),
                fails=True,
            )
        self.kubectl.delete(CRDS, f"{GADGETS.plural}.{GADGETS.group}")
        self.kubectl.delete(NAMESPACES, self.namespace)
        return outcomes.steps

    def _get(self, step: Any, after: str) -> None:
        for kind in (CONFIG_MAPS, SERVICES, DEPLOYMENTS, GADGETS):
            step(f"get after {after}: {kind.plural}", self.kubectl.get, kind, "shop")
        step(f"get after {after}: hook", self.kubectl.get, CONFIG_MAPS, "shop-hook")

    def _error(self, error: Exception) -> Any:
        return self.kubectl.error_of(error)


def stable(lines: list[str]) -> list[str]:
    """The lines without the time of the release."""
    return [line for line in lines if not re.match(r"LAST DEPLOYED:", line)]
