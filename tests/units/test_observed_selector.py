"""Event loops whose idleness is known, on a machine that does not execute their thread yet."""

import asyncio
import concurrent.futures
import contextlib
import selectors
import socket
import threading

import pytest
from kopf._testing.observed_selector import ObservedSelector, new_event_loop


def until(condition):
    done = threading.Event()
    for _ in range(100_000):
        if condition():
            return
        done.wait(0.0001)
    raise AssertionError("It has not come in time.")


@pytest.fixture
def processor(monkeypatch):
    """An event: while it is not set, threads that have waited for events do not continue."""
    processor = threading.Event()
    processor.set()

    class Stalled(selectors.DefaultSelector):
        def select(self, timeout=None):
            if timeout is None or timeout > 0:
                processor.wait(60)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Stalled)
    yield processor
    processor.set()


@contextlib.contextmanager
def running():
    """An event loop that runs in a thread, and its selector."""
    loop, selector = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop, selector
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_loop_without_callbacks_is_idle():
    with running() as (_, selector):
        until(lambda: selector.is_idle)
        turns = selector.turns
        assert selector.is_idle and selector.turns == turns
    assert not selector.is_idle, "it is closed"


def test_a_loop_is_busy_while_it_executes_callbacks():
    with running() as (loop, selector):
        until(lambda: selector.is_idle)
        turns = selector.turns
        started, ended = threading.Event(), threading.Event()

        def callback():
            started.set()
            ended.wait(60)

        loop.call_soon_threadsafe(callback)
        assert started.wait(60)
        assert not selector.is_idle
        ended.set()
        until(lambda: selector.is_idle)
        assert selector.turns > turns


def test_a_chain_of_callbacks_is_busy_until_its_end():
    with running() as (loop, selector):
        ended = threading.Event()

        async def chain():
            for _ in range(1000):
                await asyncio.sleep(0)
            ended.set()

        idle = []
        future = asyncio.run_coroutine_threadsafe(chain(), loop)
        while not ended.is_set():
            turns = selector.turns
            if selector.is_idle and selector.turns == turns and not ended.is_set():
                idle.append(turns)
        future.result(60)
        assert not idle


def test_a_callback_from_a_thread_is_busy_before_the_loop_gets_a_processor(processor):
    with running() as (loop, selector):
        until(lambda: selector.is_idle)
        processor.clear()
        # The loop must be in the wait that does not continue.
        turns = selector.turns
        loop.call_soon_threadsafe(lambda: None)
        until(lambda: selector.turns > turns)
        until(lambda: selector.is_idle)
        called = threading.Event()
        loop.call_soon_threadsafe(called.set)
        assert not selector.is_idle and not called.is_set()
        processor.set()
        assert called.wait(60)
        until(lambda: selector.is_idle)


def test_a_readable_descriptor_is_busy_until_it_is_read(processor):
    ours, theirs = socket.socketpair()
    processor.clear()
    with contextlib.closing(ObservedSelector()) as selector, ours, theirs:
        selector.register(ours, selectors.EVENT_READ)
        thread = threading.Thread(target=selector.select)
        thread.start()
        until(lambda: selector.is_idle)
        theirs.send(b"x")
        assert not selector.is_idle
        ours.recv(1)
        assert selector.is_idle
        theirs.send(b"y")
        processor.set()
        thread.join()


def test_many_threads_look_at_the_same_time():
    def look():
        return sum(selector.is_idle for _ in range(20_000))

    with running() as (_, selector), concurrent.futures.ThreadPoolExecutor(4) as threads:
        until(lambda: selector.is_idle)
        looks = [threads.submit(look) for _ in range(4)]
        assert [it.result(60) for it in looks] == [20_000] * 4


def test_a_timer_that_is_due_is_busy(processor):
    with running() as (loop, selector):
        until(lambda: selector.is_idle)
        processor.clear()
        called = threading.Event()
        loop.call_soon_threadsafe(loop.call_later, 0.01, called.set)
        until(lambda: selector.turns > 1)
        until(lambda: not selector.is_idle)
        assert not called.is_set()
        processor.set()
        assert called.wait(60)


def test_other_kinds_of_event_loops_are_left_alone(monkeypatch):
    class Other(asyncio.SelectorEventLoop):
        pass

    monkeypatch.setattr(asyncio, "new_event_loop", Other)
    loop, selector = new_event_loop()
    assert type(loop) is Other and selector is None
    loop.close()


def test_the_loop_has_all_features_of_a_usual_one():
    async def main():
        reader, writer = await asyncio.open_connection(sock=socket.create_connection(address))
        writer.write(b"ping")
        await writer.drain()
        answer = await reader.read(4)
        writer.close()
        process = await asyncio.create_subprocess_exec("true")
        return answer, await process.wait()

    def serve():
        connection, _ = server.accept()
        connection.sendall(connection.recv(4).upper())
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        thread = threading.Thread(target=serve)
        thread.start()
        with asyncio.Runner(loop_factory=lambda: new_event_loop()[0]) as runner:
            assert runner.run(main()) == (b"PING", 0)
        thread.join()
