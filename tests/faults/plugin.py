"""An exec plugin of a kubeconfig, which does what the test has set."""

import json
import pathlib

SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
echo run >> plugin.runs
read -r token seconds < plugin.order
# A plugin that hangs is killed before it prints anything. Its child would outlive it.
[ "$seconds" -lt 100 ] || exec sleep "$seconds"
sleep "$seconds"
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
echo '"status": {"token": "'"$token"'"}}'
"""


class Plugin:
    """The command, its orders, and the count of its runs; the kubeconfig that names it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._command = folder / "plugin"
        self._command.write_text(SCRIPT)
        self._command.chmod(0o755)
        self.set(token="first", seconds=0)

    def set(self, *, token: str, seconds: float) -> None:
        """Set what the next runs print, and how long they take."""
        fresh = self._folder / "plugin.fresh"
        fresh.write_text(f"{token} {seconds}\n")
        fresh.replace(self._folder / "plugin.order")

    @property
    def runs(self) -> int:
        path = self._folder / "plugin.runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def kubeconfig(self, url: str) -> pathlib.Path:
        path = self._folder / "kubeconfig"
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(self._command),
            "interactiveMode": "Never",
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"exec": plugin}}],
        }
        path.write_text(json.dumps(config))
        return path
