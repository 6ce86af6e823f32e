"""kubectl, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any

from kinds import CONFIG_MAPS, DEPLOYMENTS, Kind, deployment
from outcomes import table
from selector_text import text_of

DIALECTS = {"merge": "merge", "json": "json", "strategic": "strategic"}
SHOWN = ("-o", "json", "--show-managed-fields")


class KubectlError(Exception):
    """The command has failed; the message is what it has printed."""


class KubectlClient:
    """One process per request."""

    features = frozenset(("replace", "json", "strategic", "apply", "dry-run"))

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        # kubectl keeps discovery below the home.
        self._home = tempfile.TemporaryDirectory()
        self._env = {**os.environ, "HOME": self._home.name}

    def close(self) -> None:
        self._home.cleanup()

    def run(self, *words: str, body: Any = None) -> str:
        command = [os.environ["KUBECTL"], "--namespace", self.namespace, *words]
        text = None if body is None else json.dumps(body)
        done = subprocess.run(command, input=text, env=self._env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise KubectlError(done.stderr)
        return done.stdout

    def _object(self, *words: str, body: Any = None) -> Any:
        return json.loads(self.run(*words, *SHOWN, body=body))

    def create(self, kind: Kind, body: Any, *, dry_run: bool = False) -> Any:
        return self._object("create", "-f", "-", *(["--dry-run=server"] if dry_run else []), body=body)

    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Any:
        return self._object("get", path_of(kind), name, *subresource_of(subresource))

    def list(self, kind: Kind, *, labels: Any = (), fields: Any = ()) -> Any:
        selectors = [f"--selector={text_of(labels)}"] if labels else []
        selectors += [f"--field-selector={text_of(fields)}"] if fields else []
        return self._object("get", path_of(kind), "--chunk-size=2", *selectors)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        *,
        dialect: str = "merge",
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = False,
    ) -> Any:
        if dialect == "apply":
            options = [f"--field-manager={manager}", *(["--force-conflicts"] if force else [])]
            return self._object("apply", "--server-side", "-f", "-", *options, body=patch)
        options = [f"--type={DIALECTS[dialect]}", f"--patch={json.dumps(patch)}"]
        return self._object("patch", path_of(kind), name, *options, *subresource_of(subresource))

    def replace(self, kind: Kind, name: str, body: Any, *, subresource: str | None = None) -> Any:
        return self._object("replace", "-f", "-", *subresource_of(subresource), body=body)

    def delete(self, kind: Kind, name: str, *, policy: str | None = None, uid: str | None = None) -> Any:
        cascade = [f"--cascade={policy.lower()}"] if policy else []
        return self.run("delete", path_of(kind), name, "--wait=false", *cascade)

    def watch(self, kind: Kind, since: str | None, count: int, *, labels: Any = ()) -> Any:
        command = [os.environ["KUBECTL"], "--namespace", self.namespace, "get", path_of(kind), "--watch"]
        command += ["--output-watch-events", *SHOWN]
        events = []
        with subprocess.Popen(command, env=self._env, text=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                events.append((event["type"], event["object"]))
                if len(events) == count:
                    break
            process.kill()
        return events

    def error_of(self, error: Exception) -> dict[str, Any] | None:
        return {"message": str(error)} if isinstance(error, KubectlError) else None

    def extras(self, outcomes: Any, kind: Kind) -> None:
        """Commands of people: their output."""

        def step(name: str, *words: str, body: Any = None) -> None:
            outcomes.step(name, lambda: table(self.run(*words, body=body)))

        gadgets, web = path_of(kind), "deployment/web"
        step("apply a map", "apply", "-f", "-", body=CONFIG_MAPS.object("applied", data={"a": "b"}))
        step("apply the same map", "apply", "-f", "-", body=CONFIG_MAPS.object("applied", data={"a": "b"}))
        step("apply another map", "apply", "-f", "-", body=CONFIG_MAPS.object("applied", data={"c": "d"}))
        outcomes.step("get what is applied", self.get, CONFIG_MAPS, "applied")
        step("label", "label", gadgets, "three", "labelled=yes")
        step("label again", "label", gadgets, "three", "labelled=no")
        step("label by force", "label", gadgets, "three", "labelled=no", "--overwrite")
        step("remove a label", "label", gadgets, "three", "labelled-")
        step("annotate all", "annotate", gadgets, "--all", "annotated=yes")
        step("scale", "scale", web, "--replicas=0")
        step("scale from a wrong number", "scale", web, "--replicas=1", "--current-replicas=7")
        step("set the image", "set", "image", web, "main=nginx:2")
        step("table", "get", gadgets)
        step("table with labels", "get", gadgets, "--label-columns=tier", "--sort-by=.spec.size")
        step("wide table", "get", "deployments", "-o", "wide")
        step("names", "get", gadgets, "-o", "name")
        step("wait", "wait", gadgets, "three", "--for=jsonpath={.spec.size}=9", "--timeout=10s")
        step("explain", "explain", f"{gadgets}.spec")
        step("resources", "api-resources", f"--api-group={kind.group}", "--no-headers")
        step("may I", "auth", "can-i", "delete", gadgets)
        app = {"app": "web"}
        step("difference", "diff", "-f", "-", body=deployment("new", app, app))
        step("delete by labels", "delete", gadgets, "--selector=tier=a", "--wait=false")
        step("delete what is not there", "delete", gadgets, "nothing", "--ignore-not-found")
        outcomes.step("the deployment", self.get, DEPLOYMENTS, "web")


def path_of(kind: Kind) -> str:
    """The resource as it is unique on the command line."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def subresource_of(name: str | None) -> list[str]:
    return [f"--subresource={name}"] if name else []
