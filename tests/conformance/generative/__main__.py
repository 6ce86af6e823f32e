"""Command line: ``record`` and ``compare``."""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import corpus, managers, policies, style
from .client import Answer, Client
from .compare import Report
from .corpus import Request
from .normalise import normalise

HERE = Path(__file__).parent
#: Seconds until the CRDs must be served, or until an answer must be the awaited one.
SERVED_TIMEOUT, ANSWER_TIMEOUT = 120, 10
#: Recordings of the corpora: of folders with manifests, of `crds`, of `policies`, and of `managers`.
RECORDINGS = {
    "manifests": HERE / "recording.jsonl.gz",
    "style": HERE / "style.jsonl.xz",
    "policies": HERE / "policies.jsonl.xz",
    "managers": HERE / "managers.jsonl.xz",
}


def record(arguments: argparse.Namespace) -> None:
    """Send the requests to a control plane, and store its answers."""
    client = Client(arguments.kubeconfig)
    lines: list[str] = []
    unanswered: list[str] = []

    def send(request: Request) -> None:
        answer = normalise(awaited(client, asdict(request)))
        if answer["code"] == 0:
            unanswered.append(request.label)
            return
        stored = {k: v for k, v in asdict(request).items() if v not in (None, {})}
        lines.append(json.dumps({**stored, "answer": answer}, separators=(",", ":")))

    setup, crds, requests = made(arguments.corpus, arguments.folders, client)
    for request in setup:
        send(request)
    wait_until_served(client, crds)
    for request in requests:
        send(request)
    recording = arguments.recording or RECORDINGS[arguments.corpus]
    recording.write_bytes(compress(recording, "\n".join(lines).encode()))
    print(f"{len(unanswered)} requests without an answer, e.g. {unanswered[:3]}")
    print(f"{len(lines)} requests in {recording}, {recording.stat().st_size // 1024} KiB")


def made(
    name: str, folders: list[Path], client: Client
) -> tuple[Iterator[Request], list[dict[str, Any]], Iterator[Request]]:
    """The requests that set a server up, the CRDs among them, and the others."""
    if name == "style":
        return style.setup(), [case.crd for case in style.CASES], style.requests(client)
    if name == "policies":
        return policies.setup(), [], policies.requests()
    if name == "managers":
        return managers.setup(), [managers.CRD], managers.requests()
    manifests = corpus.load(folders)
    crds = [manifest for manifest in manifests if corpus.is_crd(manifest)]
    return corpus.setup(manifests), crds, corpus.requests(manifests, client)


def compress(recording: Path, data: bytes) -> bytes:
    """Compress a recording as its suffix requires, without the time."""
    if recording.suffix == ".gz":
        return gzip.compress(data, mtime=0)
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def wait_until_served(client: Client, crds: list[dict[str, Any]]) -> None:
    """Wait for the CRDs, which are served a moment after they are created."""
    deadline = time.monotonic() + SERVED_TIMEOUT
    for spec in (crd["spec"] for crd in crds):
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        while client.send("GET", path).code != 200:
            if time.monotonic() > deadline:
                print(f"{path} is not served after {SERVED_TIMEOUT} s", file=sys.stderr)
                break


def awaited(client: Client, line: dict[str, Any]) -> Answer:
    """Send a request; one whose answer depends on a controller is repeated until the controller has acted."""
    extra = line.get("extra") or {}
    deadline = time.monotonic() + ANSWER_TIMEOUT
    body = line.get("body")
    if extra.get("versioned"):
        # Updates need the version of the stored object, which differs between servers.
        stored = client.send("GET", line["path"].partition("?")[0]).body
        metadata = {**body["metadata"], "resourceVersion": stored["metadata"].get("resourceVersion", "")}
        body = {**body, "metadata": metadata}
    while True:
        type_ = line.get("type", "application/json")
        answer = client.send(line["method"], line["path"], body, type_, **_accept(extra))
        if _is_settled(answer, extra) or time.monotonic() > deadline:
            return answer


def _accept(extra: dict[str, Any]) -> dict[str, str]:
    return {"accept": extra["accept"]} if "accept" in extra else {}


def _is_settled(answer: Answer, extra: dict[str, Any]) -> bool:
    if extra.get("await") == "denial":
        return answer.code >= 400
    if answer.code != 200:
        return "until" not in extra
    body = answer.body
    match extra.get("await"):
        case "conditions":
            states = {c["type"]: c["status"] for c in body["status"].get("conditions") or ()}
            return states.get("Established") == "True" or states.get("NamesAccepted") == "False"
        case "absence":
            return False
    return extra.get("until") is None or f'"{extra["until"]}"' in json.dumps(body)


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
    recorded = read_recording(arguments.recording or RECORDINGS[arguments.corpus])
    with embedded(arguments.server) as kubeconfig:
        report = compare_with(Client(kubeconfig), recorded, arguments.grep)
    for cause, count in report.causes.most_common(arguments.causes):
        print(f"{count:5} {cause}")
        for example in report.examples[cause][: arguments.examples]:
            print(f"        {example}")
    print("\n".join(report.table()))
    return 0 if report.is_enough(arguments.required, arguments.required_family) else 1


def read_recording(recording: Path) -> list[dict[str, Any]]:
    """The recorded requests, with their answers."""
    decompress = gzip.decompress if recording.suffix == ".gz" else lzma.decompress
    return [json.loads(line) for line in decompress(recording.read_bytes()).decode().splitlines()]


def compare_with(client: Client, recorded: list[dict[str, Any]], shown: str | None = None) -> Report:
    """Send recorded requests to a server, and compare the answers.

    Both answers are printed if they differ and the label of the request contains `shown`.
    """
    report = Report()
    for line in recorded:
        ours = normalise(awaited(client, line))
        # Normalised with the present rules, too.
        real = normalise(Answer(**line["answer"]))
        report.add(line["family"], line["label"], real, ours)
        if shown and shown in line["label"] and real != ours:
            print(json.dumps({"label": line["label"], "real": real, "ours": ours}, indent=1))
    return report


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.generative", description=__doc__)
    parser.add_argument("--corpus", choices=RECORDINGS, default="manifests")
    parser.add_argument("--recording", type=Path, help="another file than that of the corpus")
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
    comparer.add_argument(
        "--required-family",
        type=float,
        default=0,
        help="percentage of equal answers in each family to succeed",
    )
    comparer.add_argument("--grep", help="print both answers to the requests whose label contains this")
    comparer.set_defaults(run=compare)
    arguments = parser.parse_args()
    return arguments.run(arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
