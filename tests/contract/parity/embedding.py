"""Claims about operators that are embedded in programs, and about webhook servers."""

import asyncio
import concurrent.futures
import socket
import ssl
import threading

import kopf
from parity_runner import logged, mro, outcome, shown, warned


# contract: api 6.1
def claim_scopes_of_operators():
    async def spawned(**kwargs):
        tasks = await kopf.spawn_tasks(registry=kopf.OperatorRegistry(), **kwargs)
        names = [task.get_name() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(names) > 3

    def spawn(**kwargs):
        return warned(lambda: asyncio.run(spawned(**kwargs)))

    return [
        spawn(namespaces=["x"], namespace="y")[-1],
        spawn(namespaces=["x"], clusterwide=True)[-1],
        spawn(namespace="y")[:1],
        spawn()[:1],
        spawn(clusterwide=True)[:1] == ["True"],
        spawn(clusterwide=True, nope=1)[-1],
    ]


def claim_operators_that_end_before_they_begin():
    import gc

    async def spawned():
        tasks = await kopf.spawn_tasks(registry=kopf.OperatorRegistry(), clusterwide=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run():
        asyncio.run(spawned())
        gc.collect()

    return warned(run)


# contract: api 6.1, api 6.3, api 8
def claim_settings_of_operators():
    async def spawned(settings, **kwargs):
        tasks = await kopf.spawn_tasks(registry=kopf.OperatorRegistry(), settings=settings, **kwargs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    answers = []
    for kwargs in [
        {"clusterwide": True},
        {"namespaces": ["x"]},
        {"clusterwide": True, "standalone": True, "priority": 5},
        {"clusterwide": True, "standalone": False, "peering_name": "p"},
    ]:
        settings = kopf.OperatorSettings()
        asyncio.run(spawned(settings, **kwargs))
        peering = settings.peering
        answers.append(
            [peering.standalone, peering.priority, peering.name, peering.mandatory, peering.clusterwide]
        )
    return answers


# contract: api 5.3, api 6.1, api 10
def claim_startup_that_fails():
    def run(raising):
        registry = kopf.OperatorRegistry()
        calls = []

        @kopf.on.startup(registry=registry)
        async def starting(**_):
            raise raising

        @kopf.on.startup(registry=registry)
        async def another(**_):
            calls.append("another")

        @kopf.on.cleanup(registry=registry)
        async def cleaning(**_):
            calls.append("cleanup")

        result = outcome(kopf.run, registry=registry, clusterwide=True)
        return [result, calls]

    return [run(kopf.PermanentError("boo")), run(kopf.AdmissionError("boo"))]


# contract: api 5.3, api 7.3
def claim_operator_without_logins():
    registry = kopf.OperatorRegistry()
    calls = []
    kopf.on.cleanup(registry=registry)(lambda **_: calls.append("cleanup"))
    result = outcome(kopf.run, registry=registry, clusterwide=True)
    return [result.split(".")[0], calls]


# contract: api 3.1, api 6.3, api 10
def claim_activities_get_arguments():
    registry = kopf.OperatorRegistry()
    seen = {}
    stop = threading.Event()
    settings = kopf.OperatorSettings()
    memo = kopf.Memo(x=1)

    @kopf.on.startup(registry=registry, param=5)
    async def starting(**kwargs):
        seen.update(kwargs)

    @kopf.on.login(registry=registry)
    def login(**_):
        stop.set()

    outcome(kopf.run, registry=registry, clusterwide=True, settings=settings, stop_flag=stop, memo=memo)
    return [
        sorted(seen),
        seen["param"],
        seen["retry"],
        seen["memo"] is memo,
        seen["settings"] is settings,
        seen["logger"].name,
        str(seen["activity"]),
        seen["started"].tzinfo is not None,
        type(seen["runtime"]).__name__,
    ]


# contract: api 5.6, api 6.1
def claim_flags():
    def run(flag):
        registry = kopf.OperatorRegistry()
        ready = threading.Event()

        @kopf.on.login(registry=registry)
        async def login(**_):
            flag.set() if hasattr(flag, "set") else flag.set_result("why")
            await asyncio.sleep(1000)  # without credentials, the operator would end by itself

        lines = logged(kopf.run, registry=registry, clusterwide=True, stop_flag=flag, ready_flag=ready)
        return [[line for line in lines if "Stop-flag" in line], ready.is_set()]

    return [run(threading.Event()), run(concurrent.futures.Future())]


# --- Webhooks.


# contract: api 9
def claim_webhook_servers():
    servers = [
        kopf.WebhookServer,
        kopf.WebhookK3dServer,
        kopf.WebhookMinikubeServer,
        kopf.WebhookDockerDesktopServer,
    ]
    one = kopf.WebhookServer(addr="1.2.3.4", port=5, path="/p", extra_sans=["x"], insecure=True)
    options = {name: shown(value) for name, value in sorted(vars(one).items()) if not name.startswith("_")}
    options.pop("secret", None)  # an addition
    return [
        [cls.DEFAULT_HOST for cls in servers],
        options,
        [hasattr(one, "__aenter__"), hasattr(one, "__aexit__"), callable(one)],
        outcome(kopf.WebhookServer, "x").split("(")[0],
        mro(kopf.WebhookAutoServer),
    ]


def served(server, count=1):
    async def respond(request, **_):
        return {}

    async def main():
        configs = []
        async with server as entered:
            async for config in entered(respond):
                configs.append(config)
                if len(configs) == count:
                    break
        return configs

    return outcome(lambda: asyncio.run(asyncio.wait_for(main(), 10)))


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


# contract: api 9
def claim_urls_of_webhook_servers():
    def url(cls=kopf.WebhookServer, **kwargs):
        port = free_port()
        return served(cls(insecure=True, port=port, **kwargs)).replace(str(port), "PORT")

    return [
        url(),
        url(addr="127.0.0.1"),
        url(addr="0.0.0.0", path="/p/"),
        url(host="me.example", path="/p"),
        url(addr="127.0.0.1", host="me.example"),
        url(kopf.WebhookK3dServer),
        served(kopf.WebhookServer(insecure=True, context=ssl.create_default_context())),
    ]
