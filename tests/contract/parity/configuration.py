"""Claims about settings, storages, credentials, logs, and the command line."""

import base64
import concurrent.futures
import copy
import dataclasses
import datetime
import enum
import json
import logging
import re
import ssl

import kopf
from parity_runner import outcome, outcomes, shown, warned

BODY = {
    "apiVersion": "v1",
    "kind": "K",
    "metadata": {
        "name": "n",
        "uid": "u",
        "labels": {"l": "v"},
        "annotations": {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "x"},
        "finalizers": ["f"],
        "resourceVersion": "1",
    },
    "spec": {"a": 1, "b": {"c": 2}},
    "status": {"s": 1},
}


def fresh():
    return kopf.Body(copy.deepcopy(BODY))


# contract: api 4
def claim_settings_take_anything():
    settings = kopf.OperatorSettings()
    settings.posting.typo = 1
    settings.typo = 2
    posting = type(settings.posting)(level=5)
    return [
        settings.posting.typo,
        settings.typo,
        kopf.OperatorSettings(posting=posting).posting.level,
        outcome(kopf.OperatorSettings, nope=1),
        kopf.OperatorSettings() == kopf.OperatorSettings(),
        outcome(hash, settings),
    ]


# contract: api 4
def claim_settings_are_values():
    one, two = kopf.OperatorSettings(), kopf.OperatorSettings()
    answers = [one.posting == two.posting, one.posting == one.peering, one == two]
    one.posting.level = 5
    return [*answers, one.posting == two.posting]


def claim_settings_as_text():
    settings = kopf.OperatorSettings()
    settings.posting.level = 5
    return [repr(settings.queueing), repr(settings.posting), shown(repr(settings.process))]


# contract: api 4
def claim_peering_scope():
    peering = kopf.OperatorSettings().peering
    answers = [peering.namespaced, peering.clusterwide]
    peering.namespaced = False
    return [*answers, peering.namespaced, peering.clusterwide]


# contract: api 4
def claim_limits_of_threads():
    execution = kopf.OperatorSettings().execution
    answers = [execution.max_workers]
    answers += [outcome(setattr, execution, "max_workers", value) for value in [0, -1]]
    execution.max_workers = 3
    answers += [execution.max_workers, execution.executor._max_workers]
    execution.executor = concurrent.futures.Executor()
    return [*answers, outcome(setattr, execution, "max_workers", 4), execution.max_workers]


# contract: api 4
def claim_deprecated_settings():
    settings = kopf.OperatorSettings()
    return [
        warned(lambda: settings.queueing.batch_window),
        warned(setattr, settings.queueing, "batch_window", 1),
        warned(lambda: settings.batching is settings.queueing),
    ]


# contract: api 4
def claim_selectors_as_keys():
    mapping = kopf.OperatorSettings().watching.label_selectors
    mapping["pods"] = "a"
    mapping["v1", "pods"] = "b"
    mapping[kopf.EVERYTHING] = "c"
    mapping["v1/pods"] = "d"
    mapping[lambda resource: True] = "e"
    pods = kopf.Resource("", "v1", "pods")
    return [
        mapping.collect(pods),
        mapping["pods"],
        ("v1", "pods") in mapping,
        "other" in mapping,
        len(mapping),
        type(next(iter(mapping))).__name__,
        *outcomes(lambda: 1 in mapping, lambda: mapping["other"], lambda: mapping.__setitem__(5, "x")),
        outcome(lambda: kopf.OperatorSettings().watching.label_selectors),
    ]


# --- Storages.

RECORD = {
    "started": "2020-01-01T00:00:00+00:00",
    "retries": 1,
    "success": True,
    "failure": None,
    "message": "é",
}
PROGRESS = {
    "annotations": lambda: kopf.AnnotationsProgressStorage(),
    "prefixed": lambda: kopf.AnnotationsProgressStorage(prefix="my.op.io", verbose=True),
    "without v1": lambda: kopf.AnnotationsProgressStorage(prefix="my.op.io", v1=False),
    "status": lambda: kopf.StatusProgressStorage(name="me"),
    "status field": lambda: kopf.StatusProgressStorage(field="status.x.y"),
    "smart": lambda: kopf.SmartProgressStorage(),
    "multi": lambda: kopf.MultiProgressStorage(
        [kopf.StatusProgressStorage(), kopf.AnnotationsProgressStorage(prefix="a.b")]
    ),
}
KEYS = ["fn", "fn/spec.a", "a" * 63, "b" * 64, "Cl<locals>.fn/x_y", "long/" + "spec." * 30]


# contract: api 1.8
def claim_progress_is_stored():
    answers = {}
    for name, make in PROGRESS.items():
        storage = make()
        for key in KEYS:
            patch = kopf.Patch()
            storage.store(key=key, record=RECORD, body=fresh(), patch=patch)
            answers[f"{name} {key} store"] = json.dumps(patch)
            stored = json.loads(json.dumps(patch))
            stored.setdefault("metadata", {}).setdefault("labels", {})
            answers[f"{name} {key} fetch"] = storage.fetch(key=key, body=kopf.Body(stored))
            purge = kopf.Patch()
            storage.purge(key=key, body=kopf.Body(stored), patch=purge)
            answers[f"{name} {key} purge"] = json.dumps(purge)
    return answers


# contract: api 1.8
def claim_progress_is_purged_before_it_was_sent():
    answers = []
    for make in PROGRESS.values():
        storage, patch = make(), kopf.Patch()
        storage.store(key="fn", record=RECORD, body=fresh(), patch=patch)
        storage.purge(key="fn", body=fresh(), patch=patch)
        answers.append(json.dumps(patch))
    return answers


# contract: api 1.8
def claim_objects_are_touched():
    answers = []
    for make in PROGRESS.values():
        storage = make()
        for value in ["now", None]:
            patch = kopf.Patch()
            storage.touch(body=fresh(), patch=patch, value=value)
            answers.append(json.dumps(patch))
    return answers


# contract: api 1.8
def claim_essences_are_cleared():
    answers = []
    for make in PROGRESS.values():
        storage, patch = make(), kopf.Patch()
        storage.store(key="fn", record=RECORD, body=fresh(), patch=patch)
        essence = json.loads(json.dumps(patch))
        essence.setdefault("spec", {"x": 1})
        answers.append(json.dumps(storage.clear(essence=essence)))
    return answers


# contract: api 1.8
def claim_attributes_of_storages():
    one, two = kopf.AnnotationsProgressStorage(), kopf.StatusProgressStorage(name="n")
    answers = [one.prefix, one.verbose, one.touch_key, one.v1, two.field, two.touch_field]
    two.field = "status.{name}.z"
    two.touch_field = ["a", "b"]
    base = kopf.StatusDiffBaseStorage(name="n")
    answers += [two.field, two.touch_field, base.field]
    base.field = "status.q"
    return [*answers, base.field, len(kopf.MultiProgressStorage([one, two]).storages), one.flush()]


# contract: api 1.8
def claim_keys():
    replica_set = kopf.Body(
        {"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "Deployment", "controller": True}]}}
    )
    storages = [
        kopf.AnnotationsProgressStorage(prefix=p, v1=v) for p in ["kopf.zalando.org", "x"] for v in [0, 1]
    ]
    return [
        [list(storage.make_keys(key, body=body)) for key in KEYS for body in [None, fresh(), replica_set]]
        for storage in storages
    ]


# contract: api 1.8
def claim_prefixes():
    return [
        outcome(kopf.AnnotationsProgressStorage, prefix=""),
        outcome(kopf.AnnotationsDiffBaseStorage, prefix=""),
        warned(lambda: len(kopf.AnnotationsProgressStorage(prefix="x" * 190).prefix)),
        warned(lambda: len(kopf.AnnotationsProgressStorage(prefix="x" * 189).prefix)),
    ]


DIFFBASES = {
    "annotations": lambda: kopf.AnnotationsDiffBaseStorage(),
    "prefixed": lambda: kopf.AnnotationsDiffBaseStorage(prefix="my.op.io", key="last"),
    "ignoring": lambda: kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.b.c", ("metadata", "labels")]),
    "status": lambda: kopf.StatusDiffBaseStorage(name="me"),
    "multi": lambda: kopf.MultiDiffBaseStorage(
        [kopf.StatusDiffBaseStorage(), kopf.AnnotationsDiffBaseStorage(prefix="a.b")]
    ),
}


# contract: api 1.8, api 3.5
def claim_essences_are_built_and_stored():
    answers = {}
    for name, make in DIFFBASES.items():
        storage, patch = make(), kopf.Patch()
        essence = storage.build(body=fresh())
        answers[f"{name} build"] = json.dumps(essence)
        extra = [("status", "s"), ("metadata", "finalizers"), ("nope",)]
        answers[f"{name} extra"] = json.dumps(storage.build(body=fresh(), extra_fields=extra))
        storage.store(body=fresh(), patch=patch, essence=essence)
        answers[f"{name} store"] = json.dumps(patch)
        answers[f"{name} fetch"] = json.dumps(storage.fetch(body=kopf.Body(json.loads(json.dumps(patch)))))
        answers[f"{name} absent"] = storage.fetch(body=fresh())
    return answers


# contract: api 1.8, api 3.5
def claim_ignored_fields_can_be_changed():
    annotations = kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.b.c"])
    status = kopf.StatusDiffBaseStorage()
    multi = kopf.MultiDiffBaseStorage([annotations, status])
    for storage in (annotations, status, multi):
        storage.ignored_fields.append("metadata.labels")
    return [
        [storage.ignored_fields, json.dumps(storage.build(body=fresh()))]
        for storage in (annotations, status, multi)
    ]


# contract: api 1.8
def claim_abstract_storages():
    return outcomes(kopf.ProgressStorage, kopf.DiffBaseStorage)


# contract: api 1.8
def claim_storages_of_users():
    class Mine(kopf.ProgressStorage):
        def fetch(self, *, key, body):
            return None

        def store(self, *, key, record, body, patch): ...

        def purge(self, *, key, body, patch): ...

        def touch(self, *, body, patch, value): ...

        def clear(self, *, essence):
            return super().clear(essence=essence)

    essence = {"metadata": {"annotations": {"a": "b"}}, "spec": {}}
    mine = Mine()
    cleared = mine.clear(essence=essence)
    mine.remove_annotations(cleared, {"a"})
    answers = [cleared is essence, json.dumps(cleared)]
    mine.remove_empty_stanzas(cleared)
    return [*answers, json.dumps(cleared), mine.flush()]


# --- Credentials.

PEM = "-----BEGIN X-----\nabc\n-----END X-----\n"


# contract: api 7.1
def claim_headers():
    cases = [
        {},
        {"username": "u", "password": "p", "token": "t"},
        {"username": "u"},
        {"scheme": "S", "token": "t"},
        {"scheme": "S"},
        {"token": "t"},
        {"username": "ü", "password": "p:"},
    ]
    return [kopf.ConnectionInfo(server="https://h", **case).as_http_headers() for case in cases]


# contract: api 7.1
def claim_credentials_as_values():
    one, two = (kopf.ConnectionInfo(server="h", token="t") for _ in range(2))
    return [
        one == two,
        hash(one) == hash(two),
        outcome(setattr, one, "token", "x"),
        outcome(kopf.ConnectionInfo),
        outcome(kopf.ConnectionInfo, "h"),
        *[
            outcome(kopf.ConnectionInfo, server="h", **{f"{name}_path": "a", f"{name}_data": "b"})
            for name in ["ca", "certificate", "private_key"]
        ],
        kopf.ConnectionInfo(server="h", expiration=datetime.datetime(2020, 1, 1)).expiration.isoformat(),
        [one.priority, one.default_namespace, one.insecure, one.trust_env, one.proxy_url],
        warned(one.as_aiohttp_basic_auth),
    ]


# contract: api 7.1
def claim_ssl_contexts():
    contexts = [
        kopf.ConnectionInfo(server="https://h").as_ssl_context(),
        kopf.ConnectionInfo(server="https://h", insecure=True).as_ssl_context(),
        kopf.ConnectionInfo(server="https://h", certificate_data=PEM).as_ssl_context(),
    ]
    bad = base64.b64encode(PEM.encode()).decode()
    return [[c.check_hostname, c.verify_mode.name, type(c) is ssl.SSLContext] for c in contexts] + [
        outcome(kopf.ConnectionInfo(server="h", ca_path="/nope").as_ssl_context),
        outcome(kopf.ConnectionInfo(server="h", ca_data=bad).as_ssl_context).split(":")[0],
    ]


# contract: api 7.4
def claim_logins():
    return outcomes(
        kopf.login_with_kubeconfig,
        kopf.login_with_service_account,
        kopf.login_via_client,
        kopf.login_via_pykube,
    )


# --- Logs.


def line(log_format, prefix=False, refkey=None, **fields):
    from kopf._core.actions.loggers import make_formatter

    formatter = make_formatter(log_format, prefix, refkey)
    values = {
        "name": "kopf.objects",
        "levelno": 30,
        "levelname": "WARNING",
        "msg": "hello %s",
        "args": ("x",),
    }
    return formatter.format(logging.makeLogRecord({**values, "created": 0, "msecs": 0, **fields}))


REF = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "namespace": "ns"}


# contract: api 5.5
def claim_lines_of_logs():
    answers = []
    for prefix in [False, True, None]:
        for ref in [{"k8s_ref": REF}, {"k8s_ref": {**REF, "namespace": None}}, {}]:
            for log_format in [kopf.LogFormat.PLAIN, kopf.LogFormat.FULL, "%(levelname)s: %(message)s"]:
                answers.append(re.sub(r"^\[\d{4}-[^]]*\]", "[moment]", line(log_format, prefix, **ref)))
            answers.append(json.loads(line(kopf.LogFormat.JSON, prefix, **ref)))
    return answers


# contract: api 5.5
def claim_json_logs():
    levels = [logging.DEBUG, logging.INFO, 25, logging.WARNING, logging.ERROR, logging.CRITICAL, 5]
    extras = {"user": {"x": 1}, "k8s_skip": True, "settings": object(), "when": datetime.date(2020, 1, 1)}
    return [json.loads(line(kopf.LogFormat.JSON, levelno=level))["severity"] for level in levels] + [
        json.loads(line(kopf.LogFormat.JSON, **extras)),
        list(json.loads(line(kopf.LogFormat.JSON, k8s_ref=REF))),
        json.loads(line(kopf.LogFormat.JSON, refkey="ref", k8s_ref=REF)),
        json.loads(line(kopf.LogFormat.JSON, severity="mine")),
    ]


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    color: Color


class Unprintable:
    def __str__(self):
        raise ValueError

    def __repr__(self):
        return "<unprintable>"


def raised():
    try:
        raise ValueError("boom")
    except ValueError as e:
        return e


# contract: api 5.5
def claim_values_in_json_logs():
    values = {
        "error": ValueError("boom"),
        "class": ValueError,
        "member": Color.RED,
        "members": Color,
        "object": Point(1, Color.RED),
        "dataclass": Point,
        "bytes": b"ab",
        "urlsafe": bytearray(b"\xfb\xff"),
        "time": datetime.time(1, 2),
        "set": {1},
        "unprintable": Unprintable(),
        "nested": [{"error": KeyError("x")}],
    }
    traced = json.loads(line(kopf.LogFormat.JSON, tb=raised().__traceback__))["tb"]
    return [json.loads(line(kopf.LogFormat.JSON, **values)), traced.splitlines()[1:2]]


# contract: api 5.5
def claim_tracebacks_in_json_logs():
    error = raised()
    exc_info, stack_info = (type(error), error, None), "the stack"
    return [
        json.loads(line(kopf.LogFormat.JSON, msg=msg, args=(), exc_info=exc_info, stack_info=stack_info))
        for msg in ("text", {"exc_info": "mine", "stack_info": "mine"}, {"exc_info": "", "stack_info": None})
    ]


# contract: api 5.5
def claim_formats_that_are_not():
    return outcomes(lambda: kopf.configure(log_format=5), lambda: kopf.configure(log_format=None))


# contract: api 5.5
def claim_levels_of_logs():
    root, noisy = logging.getLogger(), logging.getLogger("asyncio")
    before = list(root.handlers)
    answers = []
    for options in [{}, {"quiet": True}, {"verbose": True, "quiet": True}, {"debug": True}]:
        kopf.configure(**options)
        added = [handler for handler in root.handlers if handler not in before]
        answers.append([root.level, noisy.propagate, len(added), shown(added[0].stream is not None)])
    root.handlers[:] = before
    return answers


# --- The command line.


def invoked(*args, **env):
    import click.testing
    from kopf import cli

    result = click.testing.CliRunner().invoke(cli.main, args, env=env)
    return [result.exit_code, result.output.splitlines()[-1:], shown(result.exception)]


# contract: api 5.3
def claim_usage_errors():
    return [
        invoked("run", "-A", "-n", "x"),
        invoked("run", "-A", KOPF_RUN_NAMESPACES="a"),
        invoked("run", "--nope"),
        invoked("run", "-p", "high"),
        invoked("run", "--log-format", "nope"),
        invoked("freeze", "-P", "x"),
        invoked("freeze", "-t", "5")[::2],
        invoked("resume")[::2],
        invoked("nope"),
        invoked("run", "-m", "nope_nope")[::2],
    ]


def claim_texts_of_missing_options():
    return [invoked("freeze", "-t", "5")[1], invoked("resume")[1]]


def claim_wrong_usage_by_its_exit_code():
    return [
        invoked("run", "/nope/nope.py")[::2],
        invoked("freeze", "-A", "-n", "x", "-P", "p", "-t", "1"),
    ]


# contract: api 5.1
def claim_help_of_commands():
    return [invoked("--help")[0], invoked()[0], invoked("run", "--help")[0]]
