"""Faults of the network path to the API server (certificates, host names, slow readers), of webhook clients,
and of the operator's process (signals, clock, many objects).
"""

import contextlib
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator

from kopf.testing import ApiError

from tests.faults.cases import case, changes, faulty, meanwhile, on
from tests.faults.fault_harness import GROUP, KIND, Harness
from tests.faults.fault_proxy import Asked, FaultAction, rejection


@case("the server's certificate is renewed", tls=True)
def renewed(harness: Harness) -> None:
    assert harness.trust is not None
    harness.proxy.tls = harness.trust.context()
    harness.proxy.cut(everything=True)
    changes(harness)


@case("the authority of certificates is replaced", tls=True)
def replaced(harness: Harness) -> None:
    assert harness.trust is not None
    harness.trust.replace()
    harness.proxy.tls = harness.trust.context()
    harness.proxy.cut(everything=True)
    changes(harness)
    time.sleep(1.5)
    harness.trust.publish()


@case("no names are resolved for 3 s", fake_clock=True)
def nameless(harness: Harness) -> None:
    assert harness.fake_clock is not None
    harness.fake_clock.set(nameless=True)
    harness.proxy.cut(everything=True)
    changes(harness)
    time.sleep(3)
    harness.fake_clock.set()


@case("the clock jumps: an hour ahead, then two hours back", fake_clock=True)
def jumping(harness: Harness) -> None:
    assert harness.fake_clock is not None
    changes(harness)
    harness.create("ticking")
    harness.fake_clock.set(ahead=3600)
    harness.change("a", 3)
    harness.wait(lambda: harness.has_called("second", "d"))
    harness.fake_clock.set(ahead=-3600)
    harness.change("a", 4)
    harness.proxy.cut()
    harness.change("d", 2)
    before = ticks(harness)
    harness.demands.append(("the timer goes on", lambda: ticks(harness) > before + 1))


def ticks(harness: Harness) -> int:
    return int((harness.cluster.get(KIND, "ticking").get("status") or {}).get("ticks", 0))


@case("streams and answers in single bytes")
def dripping(harness: Harness) -> None:
    meanwhile(harness, on("watch", "list", "patch", doing=FaultAction(drip=True)), 1, cut=True)


@case("requests are read slowly")
def reluctant(harness: Harness) -> None:
    harness.proxy.reluctant = 0.7
    changes(harness)
    time.sleep(1.5)
    harness.proxy.reluctant = 0


@case("callers of the webhook that send or read nothing", admission=True)
def callers(harness: Harness) -> None:
    harness.wait(lambda: is_guarded(harness))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(15):
                stack.enter_context(stuck(harness, b"", encrypted=False))
                stack.enter_context(stuck(harness, b""))
                stack.enter_context(stuck(harness, b"POST /gate HTTP/1.1\r\nHost"))
                stack.enter_context(stuck(harness, head(5000) + b'{"request": '))
                review = json.dumps({"request": {"uid": "1", "object": {"x": "y" * 500_000}}}).encode()
                stack.enter_context(stuck(harness, (head(len(review)) + review) * 2))
            changes(harness)
            harness.wait(harness.is_converged)
            guarded = is_guarded(harness)
        harness.demands.append(("reviews are answered meanwhile", lambda: guarded))
        harness.wait(harness.is_converged)
    finally:
        harness.cluster.delete("validatingwebhookconfigurations", GROUP)


def head(length: int) -> bytes:
    lines = ["POST /gate HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


@contextlib.contextmanager
def stuck(harness: Harness, text: bytes, *, encrypted: bool = True) -> Iterator[None]:
    """A caller that sends this, and then stays without reading."""
    assert harness.trust is not None
    with socket.create_connection(("127.0.0.1", harness.port), timeout=60) as plain:
        if not encrypted:
            yield
            return
        context = ssl.create_default_context(cafile=harness.folder / "ca.pem")
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted_socket:
            # The server may hang up on such a caller.
            with contextlib.suppress(OSError):
                encrypted_socket.settimeout(0.2)
                encrypted_socket.sendall(text)
            yield


def is_guarded(harness: Harness) -> bool:
    """Whether the operator's webhook denies an invalid object."""
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Parcel", "metadata": {"name": "unlucky"}}
    try:
        harness.cluster.create({**body, "spec": {"value": 13}})
    except ApiError as error:
        return "thirteen" in str(error)
    harness.cluster.delete(KIND, "unlucky")
    return False


@case("a timer's patch is rejected once, then for long")
def rejected_timer(harness: Harness) -> None:
    def fault(asked: Asked) -> FaultAction | None:
        return rejection(422, "Invalid") if asked.verb == "patch" and b"ticks" in asked.body else None

    harness.create("ticking")
    harness.wait(lambda: ticks(harness) > 1)
    with faulty(harness, fault):
        changes(harness)
        time.sleep(4)
    before = ticks(harness)
    harness.demands.append(("the timer goes on", lambda: ticks(harness) > before + 1))


@case("SIGKILL in the middle of it, six times", doubles=6 * 4)
def killed(harness: Harness) -> None:
    harness.operator_process.order(slowness=0.15)
    harness.create("d")
    for number, pause in enumerate((0.05, 0.12, 0.21, 0.33, 0.4, 0.52)):
        harness.change("a", 10 + number)
        harness.change("c", 20 + number)
        harness.change("d", 30 + number)
        if number == 2:
            harness.delete("b")
        count = len(harness.calls)
        harness.wait(lambda seen=count: len(harness.calls) > seen)  # type: ignore[misc]
        time.sleep(pause)
        harness.operator_process.stop(signal.SIGKILL)
        harness.operator_process.start()


@case("SIGTERM with work in flight, three times")
def terminated(harness: Harness) -> None:
    harness.operator_process.order(slowness=0.3)
    harness.create("d")
    for number in range(3):
        for name in ("a", "c", "d"):
            harness.change(name, 10 + number)
        if number == 1:
            harness.delete("b")
        count = len(harness.calls)
        harness.wait(lambda seen=count: len(harness.calls) > seen)  # type: ignore[misc]
        harness.operator_process.stop()
        harness.operator_process.start()


# At least two pages of a listing; `make faults` has more.
BULK = int(os.environ.get("KOPF_FAULTS_OBJECTS", "200"))


@case("many objects at the start, with changes going on", bulk=BULK, converge=480)
def many_objects(harness: Harness) -> None:
    changes(harness)
    harness.create("e")
    for value in range(2, 6):
        harness.change("d", value)
        harness.change("e", value)
        time.sleep(0.3)
    harness.delete("bulk-7")
    harness.delete(f"bulk-{BULK - 1}")
    harness.create("f")
    harness.wait(lambda: harness.has_called("second", "f"), 300)
