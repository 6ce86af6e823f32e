"""An operator inside another program: in a thread, with its own registry and settings; a flag stops it.

Run it with `python example.py`. With `kopf run`, it does nothing: the default registry is empty.
"""

import asyncio
import signal
import threading

import kopf

registry = kopf.OperatorRegistry()


@kopf.on.login(registry=registry)
def log_in(**kwargs) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


@kopf.on.create("chores", registry=registry)
async def note(spec: kopf.Spec, memo: kopf.Memo, name: str, **_):
    memo.program.do(f"{name}: {spec['what']}")
    return "noted"


class Program:
    """The other program, which does not depend on Kopf."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.done: list[str] = []

    def do(self, what: str) -> None:
        self.done.append(what)
        print(f"Doing {what}", flush=True)


def main() -> None:
    program = Program()
    ready = threading.Event()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    kopf.configure(log_format=kopf.LogFormat.PLAIN, log_prefix=True)
    operator = kopf.operator(
        registry=registry,
        settings=settings,
        clusterwide=True,
        ready_flag=ready,
        stop_flag=program.stopping,
        memo=kopf.Memo(program=program),
    )
    thread = threading.Thread(target=asyncio.run, args=(operator,))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: program.stopping.set())
    thread.start()
    # In steps: Python calls signal handlers between waits, and misses a signal right before an endless one.
    while thread.is_alive() and not ready.wait(timeout=1):
        pass
    if ready.is_set():
        print("The operator is ready; the program goes on.", flush=True)
    while thread.is_alive():
        thread.join(timeout=1)
    print(f"The end: {len(program.done)} done.", flush=True)


if __name__ == "__main__":
    main()
