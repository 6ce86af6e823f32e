"""The faults of the way to the server, and of those who come to us: certificates, names, slow readers,
callers of webhooks; and of the operator's own process: its ends, its clock, its crowds.
"""

import contextlib
import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator

from interposer import Asked, Doing, refusal
from kopf.testing import Refused
from rows import changes, faulty, meanwhile, on, row
from theatre import GROUP, KIND, Theatre


@row("the server's certificate is renewed", tls=True)
def renewed(theatre: Theatre) -> None:
    assert theatre.trust is not None
    theatre.proxy.tls = theatre.trust.context()
    theatre.proxy.cut(everything=True)
    changes(theatre)


@row("the authority of certificates is replaced", tls=True)
def replaced(theatre: Theatre) -> None:
    assert theatre.trust is not None
    theatre.trust.replace()
    theatre.proxy.tls = theatre.trust.context()
    theatre.proxy.cut(everything=True)
    changes(theatre)
    time.sleep(1.5)
    theatre.trust.publish()


@row("no names are resolved for 3 s", illusion=True)
def nameless(theatre: Theatre) -> None:
    assert theatre.illusion is not None
    theatre.illusion.set(nameless=True)
    theatre.proxy.cut(everything=True)
    changes(theatre)
    time.sleep(3)
    theatre.illusion.set()


@row("the clock jumps: an hour ahead, then two hours back", illusion=True)
def jumping(theatre: Theatre) -> None:
    assert theatre.illusion is not None
    changes(theatre)
    theatre.create("ticking")
    theatre.illusion.set(ahead=3600)
    theatre.change("a", 3)
    theatre.wait(lambda: theatre.has_called("second", "d"))
    theatre.illusion.set(ahead=-3600)
    theatre.change("a", 4)
    theatre.proxy.cut()
    theatre.change("d", 2)
    before = pulses(theatre)
    theatre.demands.append(("the timer goes on", lambda: pulses(theatre) > before + 1))


def pulses(theatre: Theatre) -> int:
    return int((theatre.cluster.get(KIND, "ticking").get("status") or {}).get("pulse", 0))


@row("streams and answers in single bytes")
def dripping(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", "list", "patch", doing=Doing(drip=True)), 1, cut=True)


@row("requests are read slowly")
def reluctant(theatre: Theatre) -> None:
    theatre.proxy.reluctant = 0.7
    changes(theatre)
    time.sleep(1.5)
    theatre.proxy.reluctant = 0


@row("callers of the webhook that send or read nothing", admission=True)
def callers(theatre: Theatre) -> None:
    theatre.wait(lambda: is_guarded(theatre))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(15):
                stack.enter_context(stuck(theatre, b"", encrypted=False))
                stack.enter_context(stuck(theatre, b""))
                stack.enter_context(stuck(theatre, b"POST /gate HTTP/1.1\r\nHost"))
                stack.enter_context(stuck(theatre, head(5000) + b'{"request": '))
                review = json.dumps({"request": {"uid": "1", "object": {"x": "y" * 500_000}}}).encode()
                stack.enter_context(stuck(theatre, (head(len(review)) + review) * 2))
            changes(theatre)
            theatre.wait(theatre.is_converged)
            guarded = is_guarded(theatre)
        theatre.demands.append(("reviews are answered meanwhile", lambda: guarded))
        theatre.wait(theatre.is_converged)
    finally:
        theatre.cluster.delete("validatingwebhookconfigurations", GROUP)


def head(length: int) -> bytes:
    lines = ["POST /gate HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


@contextlib.contextmanager
def stuck(theatre: Theatre, text: bytes, *, encrypted: bool = True) -> Iterator[None]:
    """A caller that sends this, and then stays without reading."""
    assert theatre.trust is not None
    with socket.create_connection(("127.0.0.1", theatre.port), timeout=10) as plain:
        if not encrypted:
            yield
            return
        context = ssl.create_default_context(cafile=theatre.folder / "ca.pem")
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted_socket:
            # The server may hang up on such a caller.
            with contextlib.suppress(OSError):
                encrypted_socket.settimeout(0.2)
                encrypted_socket.sendall(text)
            yield


def is_guarded(theatre: Theatre) -> bool:
    """Whether the operator refuses what it should."""
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Parcel", "metadata": {"name": "unlucky"}}
    try:
        theatre.cluster.create({**body, "spec": {"value": 13}})
    except Refused as refused:
        return "thirteen" in str(refused)
    theatre.cluster.delete(KIND, "unlucky")
    return False


@row("a timer's patch is refused, then for long", converge=30)
def refused_timer(theatre: Theatre) -> None:
    def fault(asked: Asked) -> Doing | None:
        return refusal(422, "Invalid") if asked.verb == "patch" and b"pulse" in asked.body else None

    theatre.create("ticking")
    theatre.wait(lambda: pulses(theatre) > 1)
    with faulty(theatre, fault):
        changes(theatre)
        time.sleep(4)
    before = pulses(theatre)
    theatre.demands.append(("the timer goes on", lambda: pulses(theatre) > before + 1))


@row("SIGKILL in the middle of it, six times", doubles=6 * 4, converge=30)
def killed(theatre: Theatre) -> None:
    theatre.troupe.order(slowness=0.15)
    theatre.create("d")
    for number, pause in enumerate((0.05, 0.12, 0.21, 0.33, 0.4, 0.52)):
        theatre.change("a", 10 + number)
        theatre.change("c", 20 + number)
        theatre.change("d", 30 + number)
        if number == 2:
            theatre.delete("b")
        count = len(theatre.calls)
        theatre.wait(lambda seen=count: len(theatre.calls) > seen, 5)  # type: ignore[misc]
        time.sleep(pause)
        theatre.troupe.stop(signal.SIGKILL)
        theatre.troupe.start()


@row("SIGTERM with work in flight, three times", converge=30)
def terminated(theatre: Theatre) -> None:
    theatre.troupe.order(slowness=0.3)
    theatre.create("d")
    for number in range(3):
        for name in ("a", "c", "d"):
            theatre.change(name, 10 + number)
        if number == 1:
            theatre.delete("b")
        count = len(theatre.calls)
        theatre.wait(lambda seen=count: len(theatre.calls) > seen, 5)  # type: ignore[misc]
        theatre.troupe.stop()
        theatre.troupe.start()


@row("2,000 objects at the start, with changes going on", crowd=2000, converge=150)
def crowded(theatre: Theatre) -> None:
    changes(theatre)
    theatre.create("e")
    for value in range(2, 6):
        theatre.change("d", value)
        theatre.change("e", value)
        time.sleep(0.3)
    theatre.delete("crowd-7")
    theatre.delete("crowd-1999")
    theatre.create("f")
    theatre.wait(lambda: theatre.has_called("second", "f"), 90)
