"""Files of new projects, as templates for `string.Template`."""

HANDLERS = '''\
"""Handlers of the resource $plural.$group."""

import kopf


@kopf.on.create("$group", "v1", "$plural")
@kopf.on.update("$group", "v1", "$plural", field="spec")
def greet(spec, name, patch, logger, **_):
    """Greet by the name in the spec, and keep the greeting in the status."""
    greeting = f"Hello, {spec.get('name', name)}!"
    patch.status["greeting"] = greeting
    logger.info(greeting)
'''

TESTS = '''\
"""Tests of the operator: each has its own API server, which runs in this process."""

import logging
import pathlib

import kopf
import pytest

import handlers

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def cluster(kopf_cluster, kopf_operator):
    kopf_cluster.apply(HERE / "crd.yaml")
    kopf_operator(HERE / "handlers.py")
    return kopf_cluster


def test_greeting(cluster):
    cluster.apply(HERE / "example.yaml")
    cluster.wait_for("$plural.$group", "example", {"status": {"greeting": "Hello, Alice!"}})


def test_greeting_follows_the_name(cluster):
    cluster.apply(HERE / "example.yaml")
    cluster.wait_for("$plural.$group", "example", {"status": {"greeting": "Hello, Alice!"}})
    cluster.patch("$plural.$group", "example", {"spec": {"name": "Bob"}})
    cluster.wait_for("$plural.$group", "example", {"status": {"greeting": "Hello, Bob!"}})


def test_the_function_alone():
    patch = kopf.Patch()
    handlers.greet(spec={}, name="example", patch=patch, logger=logging.getLogger())
    assert patch == {"status": {"greeting": "Hello, example!"}}
'''

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: $plural.$group
spec:
  group: $group
  scope: Namespaced
  names:
    plural: $plural
    singular: $singular
    kind: $kind
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
      additionalPrinterColumns:
        - name: Greeting
          type: string
          jsonPath: .status.greeting
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                name:
                  type: string
            status:
              type: object
              properties:
                greeting:
                  type: string
"""

EXAMPLE = """\
apiVersion: $group/v1
kind: $kind
metadata:
  name: example
spec:
  name: Alice
"""

DEPLOYMENT = """\
apiVersion: v1
kind: Namespace
metadata:
  name: $name
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: $name
  namespace: $name
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: $name
rules:
  # Kopf: receive the objects, and store progress and results.
  - apiGroups: [$group]
    resources: [$plural]
    verbs: [list, watch, patch]
  - apiGroups: [$group]
    resources: [$plural/status]
    verbs: [patch]
  # Kopf: detect new kinds.
  - apiGroups: [apiextensions.k8s.io]
    resources: [customresourcedefinitions]
    verbs: [list, watch]
  # Kopf: post Kubernetes events.
  - apiGroups: [""]
    resources: [events]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: $name
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: $name
subjects:
  - kind: ServiceAccount
    name: $name
    namespace: $name
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $name
  namespace: $name
spec:
  replicas: 1
  strategy:
    type: Recreate
  selector:
    matchLabels:
      app: $name
  template:
    metadata:
      labels:
        app: $name
    spec:
      serviceAccountName: $name
      terminationGracePeriodSeconds: 60
      containers:
        - name: operator
          image: registry.example.com/$name:1
          startupProbe:
            httpGet:
              path: /startupz
              port: 8080
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 60
          livenessProbe:
            httpGet:
              path: /livez
              port: 8080
            periodSeconds: 20
            timeoutSeconds: 3
          readinessProbe:
            httpGet:
              path: /readyz
              port: 8080
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 2
          resources:
            requests:
              cpu: 50m
              memory: 48Mi
            limits:
              memory: 256Mi
"""

DOCKERFILE = """\
FROM python:3.13-slim AS environment
# The wheels that the operator needs, with that of kopf-rs among them.
COPY wheels /wheels
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --no-index --find-links=/wheels kopf-rs

FROM python:3.13-slim
COPY --from=environment /venv /venv
ENV PATH=/venv/bin:$$PATH PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv
COPY handlers.py ./
USER 65532
ENTRYPOINT ["kopf", "run", "--liveness=http://0.0.0.0:8080/healthz", "handlers.py"]
CMD ["--all-namespaces"]
"""

PYPROJECT = """\
[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
# kopf-rs is not released yet: build its wheel in a checkout, and install that. Its name is not reserved in
# package registries, so add it here only after the release.
dependencies = []

[tool.kopf]
files = ["handlers.py"]
all-namespaces = true

[tool.kopf.dev]
manifests = ["crd.yaml", "example.yaml"]
reload = true

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["."]
"""

README = """\
# $name

An operator for the resource `$plural.$group`.

| command | purpose |
|---|---|
| `kopf dev` | run the operator with an embedded API server and the example object; restart it on changes |
| `python -m pytest` | run the tests; they need no cluster |
| `kopf check` | check the declarations, and the permissions in the current cluster |
| `kubectl apply -f crd.yaml && kopf run` | run the operator in the current cluster |
| `docker build -t registry.example.com/$name:1 .` | build the image; put the wheels into `wheels` first |
| `kubectl apply -f crd.yaml -f deployment.yaml` | deploy it |
"""

GITIGNORE = """\
.kopf/
.pytest_cache/
__pycache__/
wheels/
"""

FILES = {
    "handlers.py": HANDLERS,
    "test_handlers.py": TESTS,
    "crd.yaml": CRD,
    "example.yaml": EXAMPLE,
    "deployment.yaml": DEPLOYMENT,
    "Dockerfile": DOCKERFILE,
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    ".gitignore": GITIGNORE,
}
