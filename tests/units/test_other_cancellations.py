"""Tasks of calls that another part of the program cancels before their first step.

They begin in a later turn of the event loop under Python 3.11, or with a task factory.
"""

import asyncio
import weakref

import kopf
from kopf._intents import lifecycles
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._runtime import bridge
from kopf._runtime.daemons import Daemons
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.reconciling import Reconcilers
from kopf._runtime.task_dispatcher import TaskDispatcher

TEXT = '{"kind":"K","metadata":{"name":"n","namespace":"ns","uid":"u"},"spec":{"x":1}}'


class Call:
    """A call in place of the engine's."""

    run, handler, uid, resource, deleting, keep_fns = 1, 0, "u", None, False, False
    retry, started, runtime = 0, 0, 0.0
    attempt = bridge.Attempt(label="Handler 'fn'", errors="temporary", backoff=1.0, started=0)

    def __init__(self):
        self.object = bridge.Object.decode(TEXT)
        self.answers = []

    def take_object(self):
        return self.object

    def reply(self, *args):
        self.answers.append(args)


async def fn(**_):
    pass


async def cancel_others():
    """As a function of the program does that cancels all tasks that it finds."""
    loop = asyncio.get_running_loop()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    loop.set_task_factory(None)


def begin_later(loop, coroutine, **options):
    """A task factory: with any, tasks begin in a later turn also under newer versions of Python."""
    return asyncio.Task(coroutine, loop=loop, **options)


def environment_of(handlers):
    settings = kopf.OperatorSettings()
    return HandlerEnvironment(
        handlers,
        settings=settings,
        memos=MemoRegistry(Memo()),
        indexers=Indexers(),
        invoker=Invoker(settings, ExecutorPool()),
    )


def test_a_call_of_a_reconciler_is_answered():
    registry = kopf.OperatorRegistry()
    kopf.on.reconcile("shops", registry=registry)(fn)

    async def main():
        asyncio.get_running_loop().set_task_factory(begin_later)
        call, environment = Call(), environment_of(registry._reconciling.get_all_handlers())
        reconcilers = Reconcilers(environment, complete=lambda _: None)
        reconcilers.request_handlers()[bridge.CallReconciler](call)
        await cancel_others()
        return call.answers

    assert asyncio.run(main()) == [("cancelled", None)]


def test_a_call_of_a_daemon_is_answered():
    registry = kopf.OperatorRegistry()
    kopf.daemon("shops", registry=registry)(fn)

    async def main():
        asyncio.get_running_loop().set_task_factory(begin_later)
        call, environment = Call(), environment_of(registry._spawning.get_all_handlers())
        daemons = Daemons(environment, complete=lambda _: None)
        daemons.request_handlers()[bridge.CallDaemon](call)
        await cancel_others()
        return call.answers

    assert asyncio.run(main()) == [()]


def test_an_activation_is_answered_or_dropped():
    """The engine handles the object of a dropped activation again, after a back-off."""

    class Activation:
        cycle, uid, resource, event, initial_patch, change = 1, "u", None, None, None, None
        task_name, is_final, remaining_fns = "Handling of n", True, False
        commands = (None,)

        def __init__(self):
            self.object = bridge.Object.decode(TEXT)

        def reply(self, *args):
            replies.append(args)

    replies = []

    async def main():
        asyncio.get_running_loop().set_task_factory(begin_later)
        dispatcher = TaskDispatcher(environment_of(()), lifecycle=lifecycles.asap, login=None)
        activation = Activation()
        dispatcher.request_handlers[bridge.Activation](activation)
        reference = weakref.ref(activation)
        del activation
        assert reference() is not None
        await cancel_others()
        return bool(replies) or reference() is None

    assert asyncio.run(main())
