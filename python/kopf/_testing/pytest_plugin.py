"""Plugin of pytest: fixtures for clusters and operators, options, and markers.

Each test has its own embedded cluster, or its own namespace in a cluster that the tests of one process share.
Nothing is shared between processes, so that tests can be distributed. Every run of pytest in the environment
loads the plugin: it imports nothing before that is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kopf._testing.cluster import Cluster
    from kopf._testing.operator import Operator

KINDS = ("embedded", "assets", "kubeconfig")
EMBEDDED_ONLY = "kopf_embedded_only"
CLUSTER_OPTIONS = "kopf_cluster"
EMBEDDED_OPTIONS = {"controllers", "access", "tls", "token", "port"}
CRDS_KEY = "kopf_crds"
_pending_crds_key = pytest.StashKey[set[str]]()
_operators = pytest.StashKey[list[Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the plugin."""
    parser.getgroup("kopf").addoption(
        "--kopf-cluster",
        choices=KINDS,
        default="embedded",
        help="what the fixture kopf_cluster is: the embedded API server (the default), a control plane from"
        " KUBEBUILDER_ASSETS, or the cluster of the kubeconfig",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of the plugin, and check that there are clusters of the kind that is asked for."""
    config.addinivalue_line(
        "markers", f"{EMBEDDED_ONLY}: the test needs the embedded server (faults, the request log)"
    )
    config.addinivalue_line(
        "markers",
        f"{CLUSTER_OPTIONS}(controllers=False, access=False, tls=True, token=None, port=0): options of the"
        " embedded server of the test, as of kopf.testing.Cluster; other clusters are used as they are",
    )
    kind = config.getoption("--kopf-cluster")
    if kind != "embedded":
        from kopf._testing.cluster import require_kind
        from kopf._testing.control_plane import ClusterUnavailableError

        try:
            require_kind(kind)
        except ClusterUnavailableError as error:
            raise pytest.UsageError(f"--kopf-cluster={kind}: {error}") from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the options of clusters, and skip what this kind of clusters cannot do."""
    for item in items:
        _cluster_options(item)
    kind = config.getoption("--kopf-cluster")
    if kind == "embedded":
        return
    skip = pytest.mark.skip(reason=f"needs the embedded server, and --kopf-cluster={kind}")
    for item in items:
        if item.get_closest_marker(EMBEDDED_ONLY) is not None:
            item.add_marker(skip)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail the test itself, and not its teardown, if an operator or one of its handlers has failed."""
    outcome: Any = yield
    operators = item.stash.get(_operators, [])
    if outcome.excinfo is None:
        for operator in operators:
            try:
                operator.check()
            except BaseException as error:
                outcome.force_exception(error)
                break
    if outcome.excinfo is not None:
        for operator in operators:
            operator.disable_strict()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Collect the CRDs that a worker of pytest-xdist has left in a shared cluster."""
    names = getattr(node, "workeroutput", {}).get(CRDS_KEY, ())
    node.config.stash.setdefault(_pending_crds_key, set()).update(names)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the collected CRDs when all workers are done."""
    names = session.config.stash.get(_pending_crds_key, None)
    if names:
        from kopf._testing.cluster import Cluster

        with Cluster("kubeconfig") as cluster:
            cluster.remove_crds(names)


@pytest.fixture(scope="session")
def _kopf_shared_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    from kopf._testing.cluster import Cluster
    from kopf._testing.control_plane import ClusterUnavailableError

    cluster = Cluster(request.config.getoption("--kopf-cluster"))
    try:
        cluster.start()
    except ClusterUnavailableError as error:
        raise pytest.UsageError(str(error)) from None
    yield cluster
    if hasattr(request.config, "workeroutput") and cluster.kind == "kubeconfig":
        # Other workers may still need the CRDs: the controller removes them at the end.
        request.config.workeroutput[CRDS_KEY] = cluster.crds
        cluster.disown_crds()
    cluster.stop()


@pytest.fixture
def kopf_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that this test has for itself, or a namespace of a shared one.

    The mark `kopf_cluster` has options of the embedded server: `@pytest.mark.kopf_cluster(controllers=True)`.
    """
    from kopf._testing.cluster import Cluster, create_unique_namespace

    options = _cluster_options(request.node)
    if request.config.getoption("--kopf-cluster") == "embedded":
        with Cluster(**options) as cluster:
            yield cluster
        return
    shared: Cluster = request.getfixturevalue("_kopf_shared_cluster")
    # Its own view, with its own memory of what was created: so that every test cleans up behind itself.
    with Cluster("kubeconfig", kubeconfig=shared.kubeconfig) as cluster:
        create_unique_namespace(cluster)
        yield cluster
        # CRDs are removed after the last test: that takes a while, and the next test may need them.
        # Most namespaces are gone by then.
        cluster.hand_over(shared)


def _cluster_options(item: pytest.Item) -> dict[str, Any]:
    """The options of the marks of the test, its class and its module; the closest mark of an option wins."""
    options: dict[str, Any] = {}
    for mark in item.iter_markers(CLUSTER_OPTIONS):
        unknown = sorted(set(mark.kwargs) - EMBEDDED_OPTIONS)
        if mark.args or unknown:
            raise pytest.UsageError(
                f"@pytest.mark.{CLUSTER_OPTIONS} accepts only the keyword arguments"
                f" {', '.join(sorted(EMBEDDED_OPTIONS))}, not {', '.join([*map(repr, mark.args), *unknown])}."
            )
        options = {**mark.kwargs, **options}
    return options


@pytest.fixture
def kopf_operator(request: pytest.FixtureRequest, kopf_cluster: Cluster) -> Iterator[Callable[..., Operator]]:
    """Starts operators on files and on functions that declare handlers; they are stopped after the test."""
    from kopf._testing.operator import Operator

    operators: list[Operator] = []
    request.node.stash[_operators] = operators
    with contextlib.ExitStack() as stack:
        # Tests exist until the end of the session, with all that they refer to.
        stack.callback(operators.clear)

        def start(*handlers: Any, **options: Any) -> Operator:
            __tracebackhide__ = True
            operator = stack.enter_context(Operator(kopf_cluster, *handlers, **options))
            operators.append(operator)
            return operator

        yield start
