"""The manifests of the objects that the operator keeps for each cache; without requests."""

GROUP = "cache.examples.kopf.dev"
MANAGED_BY = {"app.kubernetes.io/managed-by": "cache-operator"}
CACHE_LABEL = f"{GROUP}/cache"
PORT = 6379


def labels_of(name):
    """The labels of all objects of a cache; the operator watches only objects that have them."""
    return MANAGED_BY | {CACHE_LABEL: name}


def service(name):
    """A headless service: each node has a DNS name, and clients distribute the keys over the nodes."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels_of(name)},
        "spec": {
            "clusterIP": "None",
            "selector": {CACHE_LABEL: name},
            "ports": [{"name": "valkey", "port": PORT, "protocol": "TCP", "targetPort": PORT}],
        },
    }


def secret(name, password):
    """The password of the cache."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels_of(name)},
        "stringData": {"password": password},
    }


def max_memory_of(spec):
    """The memory for data in MiB; the rest is for connections and for the fork of a backup."""
    return spec.get("maxMemory", spec["memory"] * 3 // 4)


def password_variable(name):
    """The environment variable with the password, for servers and clients."""
    return {"name": "VALKEY_PASSWORD", "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}}}


def stateful_set(name, spec, secret_uid):
    """The nodes. A new Secret changes the template, so that Kubernetes restarts them with its password."""
    limit = f"{spec['memory']}Mi"
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels_of(name)},
        "spec": {
            "replicas": spec["replicas"],
            "serviceName": name,
            "selector": {"matchLabels": {CACHE_LABEL: name}},
            "template": {
                "metadata": {"labels": labels_of(name), "annotations": {f"{GROUP}/secret": secret_uid}},
                "spec": {
                    "containers": [
                        {
                            "name": "valkey",
                            "image": f"valkey/valkey:{spec['version']}",
                            "args": [
                                *("--maxmemory", f"{max_memory_of(spec)}mb"),
                                *("--maxmemory-policy", spec["evictionPolicy"]),
                                *("--requirepass", "$(VALKEY_PASSWORD)"),
                            ],
                            "env": [password_variable(name)],
                            "ports": [{"name": "valkey", "containerPort": PORT, "protocol": "TCP"}],
                            "readinessProbe": {"tcpSocket": {"port": PORT}},
                            "resources": {"requests": {"memory": limit}, "limits": {"memory": limit}},
                        }
                    ]
                },
            },
        },
    }


def backup_job(name, spec, uid):
    """A job that copies the data of all nodes to a volume. It has no owner: it outlives the cache."""
    nodes = [f"{name}-{number}" for number in range(spec["replicas"])]
    copy = [
        f'valkey-cli -h {node}.{name} -a "$VALKEY_PASSWORD" --rdb /backup/{name}-{uid}-{number}.rdb'
        for number, node in enumerate(nodes)
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-backup-{uid[:8]}", "labels": labels_of(name)},
        "spec": {
            "backoffLimit": 3,
            "ttlSecondsAfterFinished": 24 * 60 * 60,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "backup",
                            "image": f"valkey/valkey:{spec['version']}",
                            "command": ["sh", "-ec", "\n".join(copy)],
                            "env": [password_variable(name)],
                            "volumeMounts": [{"name": "backup", "mountPath": "/backup"}],
                        }
                    ],
                    "volumes": [
                        {"name": "backup", "persistentVolumeClaim": {"claimName": spec["backup"]["claim"]}}
                    ],
                }
            },
        },
    }
