"""Command line: ``record`` and ``compare``."""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .client import Answer, Client
from .compare import Report
from .corpus import Manifest, Request, load, requests, setup
from .normalise import normalise

HERE = Path(__file__).parent
#: Seconds until the CRDs must be served.
SERVED_TIMEOUT = 20
RECORDING = HERE / "recording.jsonl.gz"


def record(arguments: argparse.Namespace) -> None:
    """Send the requests to a control plane, and store its answers."""
    client = Client(arguments.kubeconfig)
    manifests = load(arguments.folders)
    lines: list[str] = []
    unanswered: list[str] = []

    def send(request: Request) -> None:
        answer = normalise(client.send(request.method, request.path, request.body, request.type))
        if answer["code"] == 0:
            unanswered.append(request.label)
            return
        stored = {k: v for k, v in asdict(request).items() if v not in (None, {})}
        lines.append(json.dumps({**stored, "answer": answer}, separators=(",", ":")))

    for request in setup(manifests):
        send(request)
    wait_until_served(client, manifests)
    for request in requests(manifests, client):
        send(request)
    with (
        open(arguments.recording, "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file,
    ):
        file.write("\n".join(lines).encode())
    print(f"{len(unanswered)} requests without an answer, e.g. {unanswered[:3]}")
    print(f"{len(lines)} requests in {arguments.recording}, {arguments.recording.stat().st_size // 1024} KiB")


def wait_until_served(client: Client, manifests: list[Manifest]) -> None:
    """Wait for the CRDs, which are served a moment after they are created."""
    deadline = time.monotonic() + SERVED_TIMEOUT
    for spec in (m["spec"] for m in manifests if m["kind"] == "CustomResourceDefinition"):
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        while client.send("GET", path).code != 200:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is not served after {SERVED_TIMEOUT} s")


@contextmanager
def embedded(binary: Path) -> Iterator[Path]:
    """Run an embedded server; gives its kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        command = [str(binary), "--plain", "--kubeconfig", str(kubeconfig)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(10)


def compare(arguments: argparse.Namespace) -> int:
    """Send the recorded requests to an embedded server, and print the differences by cause."""
    with gzip.open(arguments.recording, "rt") as file:
        recorded: list[dict[str, Any]] = [json.loads(line) for line in file]
    report = Report()
    with embedded(arguments.server) as kubeconfig:
        client = Client(kubeconfig)
        for line in recorded:
            type_ = line.get("type", "application/json")
            ours = normalise(client.send(line["method"], line["path"], line.get("body"), type_))
            # Normalised with the present rules, too.
            real = normalise(Answer(**line["answer"]))
            report.add(line["family"], line["label"], real, ours)
            if arguments.grep and arguments.grep in line["label"] and real != ours:
                print(json.dumps({"label": line["label"], "real": real, "ours": ours}, indent=1))
    for cause, count in report.causes.most_common(arguments.causes):
        print(f"{count:5} {cause}")
        for example in report.examples[cause][: arguments.examples]:
            print(f"        {example}")
    print("\n".join(report.table()))
    return 0 if report.equal.total() * 100 >= report.total.total() * arguments.required else 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.generative", description=__doc__)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    commands = parser.add_subparsers(required=True)
    recorder = commands.add_parser("record", help="record the answers of a control plane")
    recorder.add_argument(
        "kubeconfig", type=Path, help="an admin's kubeconfig of a new control plane without controllers"
    )
    recorder.add_argument("folders", type=Path, nargs="*", default=[HERE / "manifests"])
    recorder.set_defaults(run=record)
    comparer = commands.add_parser("compare", help="compare an embedded server with the recording")
    comparer.add_argument("server", type=Path, help="the binary kopf-apiserver")
    comparer.add_argument("--causes", type=int, default=40, help="number of causes to print")
    comparer.add_argument("--examples", type=int, default=1, help="number of examples of each cause")
    comparer.add_argument("--required", type=float, default=0, help="percentage of equal answers to succeed")
    comparer.add_argument("--grep", help="print both answers to the requests whose label contains this")
    comparer.set_defaults(run=compare)
    arguments = parser.parse_args()
    return arguments.run(arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
