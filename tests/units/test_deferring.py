"""Modules that are put off are there, and are loaded by the first look, whatever it looks at."""

import subprocess
import sys

import pytest

BEGINNING = """
import sys
from kopf._kits import deferring
deferring.defer()
Module = type(sys)
def is_put_off(name):
    return type(sys.modules[name]) is deferring.Deferred
"""


def told(code: str) -> list[str]:
    """What the code prints after the deferring."""
    run = subprocess.run(
        [sys.executable, "-c", BEGINNING + code], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.split()


def test_importing_is_not_looking() -> None:
    code = """
import asyncio, asyncio.sslproto, ssl, concurrent.futures.thread, logging, inspect
from asyncio import sslproto
from kopf._objects import credentials
print(*(is_put_off(name) for name in ["ssl", "asyncio.sslproto", credentials.__name__]))
print("_ssl" in sys.modules, ssl.__name__, ssl.__file__ == ssl.__spec__.origin, asyncio.sslproto is sslproto)
"""
    assert told(code) == [*["True"] * 3, "False", "ssl", "True", "True"]


LOOKS = [
    "ssl.SSLContext",
    "vars(ssl)['SSLContext']",
    "ssl.__dict__['SSLContext']",
    "getattr(ssl, 'SSLContext')",
    "'SSLContext' in dir(ssl) or 1/0",
    "__import__('ssl', fromlist=['SSLContext']).SSLContext",
    "setattr(ssl, 'new', 5), ssl.new, ssl.SSLContext",
    "hasattr(ssl, 'nope') and 1/0",
    "asyncio.sslproto.SSLProtocol",
    "__import__('importlib').reload(ssl).SSLContext",
]


@pytest.mark.parametrize("look", LOOKS)
def test_looking_is_loading(look: str) -> None:
    code = f"""
import asyncio, ssl
{look}
context = ssl.create_default_context()
print(is_put_off("ssl"), ssl is sys.modules["ssl"], context.protocol is ssl.PROTOCOL_TLS_CLIENT)
print(type(ssl) is Module, ssl.__spec__.name, len(vars(ssl)) > 100)
"""
    assert told(code) == ["False", "True", "True", "True", "ssl", "True"]


def test_they_are_what_they_are_without_it() -> None:
    code = """
import importlib, json
names = ["asyncio.sslproto", "kopf._objects.credentials", "ssl"]
print(json.dumps({name: sorted(vars(importlib.import_module(name))) for name in names}).replace(" ", ""))
"""
    plain = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told(code) == plain.stdout.split()


def test_threads_that_look_at_once_see_all_of_it() -> None:
    code = """
import ssl, threading
sys.setswitchinterval(1e-6)
barrier, seen = threading.Barrier(8), []
def look():
    barrier.wait()
    seen.append(ssl.create_default_context().check_hostname)
threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(seen), *set(seen))
"""
    assert told(code) == ["8", "True"]


def test_a_missing_name_is_an_ordinary_mistake() -> None:
    code = """
import ssl
try: ssl.nope
except AttributeError as e: print(e)
"""
    assert told(code) == ["module", "'ssl'", "has", "no", "attribute", "'nope'"]


def test_a_failed_loading_is_told_and_can_be_repeated() -> None:
    code = """
import ssl
sys.modules["_ssl"] = None
try: ssl.SSLContext
except ImportError as e: print(e.name)
del sys.modules["_ssl"]
print(ssl.SSLContext.__name__)
"""
    assert told(code) == ["_ssl", "SSLContext"]


def test_nothing_is_put_off_once_asyncio_is_there() -> None:
    code = """
print(type(sys.modules["ssl"]) is Module)
"""
    run = subprocess.run(
        [sys.executable, "-c", "import asyncio" + BEGINNING + code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.split() == ["True"]


def test_asyncio_makes_connections_with_it() -> None:
    code = """
import asyncio
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try: await asyncio.open_connection("127.0.0.1", port, ssl=True)
    except OSError: print(is_put_off("ssl"), is_put_off("asyncio.sslproto"))
asyncio.run(main())
"""
    assert told(code) == ["False", "False"]


def test_errors_are_told_when_no_file_can_be_opened() -> None:
    code = """
import logging, os, resource, traceback
logging.basicConfig(stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try: open(os.devnull)
except OSError as error:
    logging.exception("told:")
    print(len(traceback.format_exception(ExceptionGroup("many", [error, ValueError("wrong")]))) > 5)
"""
    lines = told(code)
    assert lines[0] == "told:"
    assert lines[-1] == "True"
    assert "OSError:" in lines
