"""`kopf init`, `kopf check`, the configuration file, and the choice of the cluster, as users run them."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml
from kopf.testing import Cluster

from tests.support.commands import environment, kopf, unwrapped

pytestmark = pytest.mark.kopf_embedded_only
GOOD = "import kopf\n@kopf.on.create('{0}')\n@kopf.on.update('{0}')\ndef greet(**_):\n    pass\n"


def account_kubeconfig(cluster: Cluster) -> str:
    """A kubeconfig with a token of the service account in the deployment."""
    path = "/api/v1/namespaces/cache-operator/serviceaccounts/cache-operator/token"
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}}
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.call("POST", path, request)["status"]["token"]}
    return str(yaml.safe_dump(config))


@pytest.fixture
def project(tmp_path):
    done = kopf(tmp_path, "init", "cache-operator", "--kind", "CachePolicy", "--group", "caches.example.com")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Next:\n  cd cache-operator\n  python -m pytest\n  kopf dev\n")
    return tmp_path / "cache-operator"


def test_the_tests_of_a_new_project_pass(project):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_new_project_is_correct(project):
    done = kopf(project, "check", "--offline")
    assert done.stdout.splitlines()[-1] == (
        "2 handlers of 1 kind (cachepolicies.v1.caches.example.com): no problems."
    )
    assert done.returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "."],
        cwd=project,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_a_new_project_runs_without_arguments(project, command):
    project.rename(project.parent / "moved")
    folder = project.parent / "moved"
    running = command("dev", folder=folder, environment=environment(folder))
    running.until("Applied: CachePolicy example")
    running.until("export KUBECONFIG=.*/moved/.kopf/kubeconfig\n")
    running.until("kubectl get cachepolicies")
    running.until(r"Serving 2 handlers of 1 kind \(cachepolicies.*\) in all namespaces\.")
    running.until("Hello, Alice!")
    with Cluster("kubeconfig", kubeconfig=folder / ".kopf" / "kubeconfig") as cluster:
        cluster.wait_for("cachepolicies", "example", {"status": {"greeting": "Hello, Alice!"}})
    assert running.stop() == 0
    assert not (folder / ".kopf").exists()


def test_the_permissions_of_a_new_project_are_the_least(project, tmp_path):
    with Cluster(access=True) as cluster:
        cluster.apply(project / "crd.yaml")
        cluster.apply(project / "deployment.yaml")
        (tmp_path / "config").write_text(account_kubeconfig(cluster))
        done = kopf(project, "check", "--kubeconfig", str(tmp_path / "config"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith(": no problems.\n")
        rules = cluster.get("clusterroles", "cache-operator")["rules"]
        for number, rule in enumerate(rules):
            rest = [*rules[:number], *rules[number + 1 :]]
            cluster.patch("clusterroles", "cache-operator", {"rules": rest})
            done = kopf(project, "check", "--kubeconfig", str(tmp_path / "config"))
            group = f" of {rule['apiGroups'][0]}" if rule["apiGroups"][0] else ""
            for verb in rule["verbs"]:
                text = f"- The permission to {verb} {rule['resources'][0]}{group} is missing."
                assert text in done.stdout, done.stdout + done.stderr
            assert done.returncode == 1
            assert f"{len(rule['verbs'])} problem" in done.stdout


@pytest.mark.skipif("KUBEBUILDER_ASSETS" not in os.environ, reason="needs KUBEBUILDER_ASSETS")
def test_a_new_project_has_enough_permissions_on_a_real_control_plane(project, tmp_path, command):
    with Cluster("assets") as cluster:
        for file in ("crd.yaml", "deployment.yaml", "example.yaml"):
            cluster.apply(project / file)
        (tmp_path / "config").write_text(account_kubeconfig(cluster))
        args = ("--kubeconfig", str(tmp_path / "config"))
        done = kopf(project, "check", *args)
        assert done.stdout.endswith(": no problems.\n"), done.stdout + done.stderr
        running = command("run", *args, folder=project, environment=environment(project))
        cluster.wait_for("cachepolicies", "example", {"status": {"greeting": "Hello, Alice!"}}, timeout=30)
        running.until("Creation is processed: 1 succeeded; 0 failed.")
        assert running.stop() == 0
        assert not [line for line in running.seen if "WARNING" in line or "ERROR" in line]


@pytest.mark.parametrize(
    "args, printed",
    [
        (["."], "has files already, which are not changed: handlers.py."),
        (["x", "--kind", "guest"], "--kind must be a name such as CacheCluster, not 'guest'."),
        (["x", "--plural", "Guests"], "--plural must be a name such as cacheclusters, not 'Guests'."),
        (["x", "--group", "example"], "--group must be a domain such as example.com, not 'example'."),
        (["1"], "The folder must have a name such as guest-operator, not '1'."),
    ],
)
def test_mistakes_in_new_projects(tmp_path, args, printed):
    (tmp_path / "handlers.py").write_text("# Mine.")
    done = kopf(tmp_path, "init", *args)
    assert printed in unwrapped(done.stderr)
    assert done.returncode == 2
    assert (tmp_path / "handlers.py").read_text() == "# Mine."
    assert sorted(item.name for item in tmp_path.iterdir()) == ["handlers.py"]


CHECKED = {
    "an empty file": ("# Nothing.", ["- No handlers are declared in handlers.py."]),
    "a misspelled resource": (
        GOOD.format("confgimaps"),
        [
            "- The cluster has no resource 'confgimaps' for greet() (handlers.py:2); "
            "did you mean 'configmaps'? If the name is right, apply its CRD."
        ],
    ),
    "an ambiguous resource": (
        GOOD.format("twins"),
        [
            "- 'twins' of greet() (handlers.py:2) is ambiguous: "
            "twins.v1.one.example.com, twins.v1.two.example.com."
        ],
    ),
    "an argument": (
        "import kopf\n@kopf.on.create('configmaps')\ndef greet(nmae, **_):\n    pass\n",
        [
            "- greet() (handlers.py:2) needs the argument 'nmae'",
            "did you mean 'name'?",
            "1 handler of 1 kind",
        ],
    ),
    "equal ids": (
        "import kopf\n@kopf.on.create('configmaps')\ndef one(**_):\n    pass\n"
        "@kopf.on.create('configmaps', id='one')\ndef two(**_):\n    pass\n",
        ["- one() (handlers.py:2) and two() (handlers.py:5) have the same id 'one'"],
    ),
}
TWINS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: twins.{0}.example.com}}
spec:
  group: {0}.example.com
  scope: Namespaced
  names: {{plural: twins, singular: twin, kind: Twin}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object}}}}
"""


@pytest.mark.parametrize("name", CHECKED)
def test_problems_are_found_in_a_cluster(kopf_cluster, tmp_path, name):
    source, printed = CHECKED[name]
    kopf_cluster.apply("---".join(TWINS.format(group) for group in ("one", "two")))
    (tmp_path / "handlers.py").write_text(source)
    done = kopf(tmp_path, "check", "handlers.py", KUBECONFIG=str(kopf_cluster.kubeconfig))
    for text in printed:
        assert text in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 1 problem.")
    assert done.returncode == 1


@pytest.mark.parametrize("scope", [("-A",), ("-n", "default")])
def test_the_printed_permissions_are_enough(tmp_path, scope):
    (tmp_path / "handlers.py").write_text(GOOD.format("configmaps"))
    account = "/api/v1/namespaces/default/serviceaccounts/mine/token"
    with Cluster(access=True) as cluster:
        args = ("manifests", "handlers.py", *scope, "--name", "mine", "--image", "mine:1")
        done = kopf(tmp_path, *args, KUBECONFIG=str(cluster.kubeconfig))
        assert done.returncode == 0, done.stderr
        cluster.apply(done.stdout)
        kinds = [body["kind"] for body in yaml.safe_load_all(done.stdout)]
        assert ("Role" in kinds) == (scope[0] == "-n")
        assert kinds[-2:] == ["Deployment", "Service"] and "ClusterRole" in kinds
        [*_, deployment, _] = yaml.safe_load_all(done.stdout)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert "--liveness=http://0.0.0.0:8080/healthz" in container["args"]
        assert container["ports"] == [{"name": "status", "containerPort": 8080}]
        probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
        assert probes == {
            "startupProbe": {"path": "/startupz", "port": "status"},
            "livenessProbe": {"path": "/livez", "port": "status"},
            "readinessProbe": {"path": "/readyz", "port": "status"},
        }
        assert {container[name]["timeoutSeconds"] for name in probes} == {3}
        token = cluster.call("POST", account, {"spec": {}})["status"]["token"]
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        done = kopf(tmp_path, "check", "handlers.py", *scope, "--kubeconfig", "config")
        assert done.stdout.endswith(": no problems.\n"), done.stdout + done.stderr
        cluster.delete("clusterroles.rbac.authorization.k8s.io", "mine")
        done = kopf(tmp_path, "check", "handlers.py", *scope, "--kubeconfig", "config")
        assert done.returncode == 1, "the permissions are those of the manifests"


def test_the_printed_permissions_cover_related_kinds_and_caches(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(
        """
import kopf
pods = kopf.cache("pods", namespaces=["a"])
@kopf.on.reconcile("configmaps", owns=["services"], watches=[
    kopf.watch("secrets", map=kopf.same_name(), namespaces="*"),
    kopf.watch("endpoints", map=kopf.same_name()),
])
def sync(**_): ...
"""
    )
    args = ("manifests", "handlers.py", "-n", "default", "--name", "mine")
    done = kopf(tmp_path, *args, KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    roles = {
        (rule["resources"][0], body["metadata"].get("namespace")): rule["verbs"]
        for body in yaml.safe_load_all(done.stdout)
        for rule in body.get("rules", ())
    }
    reading = ["list", "watch"]
    assert roles.pop(("customresourcedefinitions", None)) == roles.pop(("namespaces", None)) == reading
    assert roles == {
        ("configmaps", "default"): [*reading, "patch"],
        ("services", "default"): reading,
        ("endpoints", "default"): reading,
        ("secrets", None): reading,
        ("pods", "a"): reading,
        ("events", "default"): ["create"],
    }


def test_manifests_need_the_resources(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(GOOD.format("nosuchs"))
    done = kopf(tmp_path, "manifests", "handlers.py", "-A", KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert done.returncode == 1
    assert "is unknown or ambiguous: apply its CRD first." in done.stderr


def test_namespaces_without_a_match_are_found(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(GOOD.format("configmaps"))
    args = ("check", "handlers.py", "-n", "default", "-n", "defautl", "-n", "team-*")
    done = kopf(tmp_path, *args, KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert done.stdout == (
        "- No namespace matches 'defautl' yet; did you mean 'default'?\n"
        "- No namespace matches 'team-*' yet.\n"
        "2 handlers of 1 kind (configmaps): 2 problems.\n"
    )
    assert done.returncode == 1


def test_clusters_that_cannot_be_checked(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(GOOD.format("configmaps"))
    done = kopf(tmp_path, "check", "handlers.py")
    assert done.stdout == (
        "The cluster is not checked: there is neither a kubeconfig nor a service account of a pod.\n"
        "2 handlers of 1 kind (configmaps): no problems.\n"
    )
    assert done.returncode == 0
    config = kopf_cluster.kubeconfig.read_text()
    (tmp_path / "config").write_text(config.replace(kopf_cluster.connection.token, "wrong"))
    done = kopf(tmp_path, "check", "handlers.py", "--kubeconfig", "config")
    assert f"The API server {kopf_cluster.url} rejects the credentials" in done.stdout
    assert "- There are no valid credentials: " in done.stdout and "(401 Unauthorized)" in done.stdout
    assert done.returncode == 1
    broken = yaml.safe_load(config)
    broken["clusters"][0]["cluster"] = {"server": kopf_cluster.url, "certificate-authority": "/nope.crt"}
    (tmp_path / "config").write_text(yaml.safe_dump(broken))
    done = kopf(tmp_path, "check", "handlers.py", "--kubeconfig", "config")
    assert "- There are no valid credentials: The kubeconfig cannot be used: failed to" in done.stdout
    assert done.returncode == 1
    (tmp_path / "config").write_text(config.replace(kopf_cluster.url, "https://127.0.0.1:1"))
    done = kopf(tmp_path, "check", "handlers.py", "--kubeconfig", "config")
    assert (
        "- The cluster cannot be checked: cannot discover the resources: cannot reach https://127.0.0.1:1: "
        in done.stdout
    )
    assert done.returncode == 1
    (tmp_path / "handlers.py").write_text("import nope")
    done = kopf(tmp_path, "check", "handlers.py")
    assert "Error: Cannot load handlers.py: ModuleNotFoundError: No module named 'nope'" in done.stderr
    assert done.returncode == 1


PLUGIN = """
import json, os
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
print(json.dumps({"status": {"token": os.environ["THE_TOKEN"]}}))
"""


def test_credentials_of_plugins_and_token_files(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(GOOD.format("configmaps"))
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "token").write_text(f"{kopf_cluster.connection.token}\n")
    config = yaml.safe_load(kopf_cluster.kubeconfig.read_text())

    def check(**user):
        config["users"][0]["user"] = user
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        return kopf(tmp_path, "check", "handlers.py", "--kubeconfig", "config")

    variables = [{"name": "THE_TOKEN", "value": kopf_cluster.connection.token}]
    plugin = {"command": sys.executable, "args": ["plugin.py"], "env": variables}
    for user in ({"exec": plugin}, {"tokenFile": str(tmp_path / "token")}):
        done = check(**user)
        assert done.stdout == "2 handlers of 1 kind (configmaps): no problems.\n", done.stdout + done.stderr
    done = check(exec={**plugin, "env": None})
    assert "- There are no valid credentials: The kubeconfig cannot be used: the command of " in done.stdout
    assert "the auth plugin failed with exit status: 1: KeyError: 'THE_TOKEN'" in done.stdout
    done = check(exec={"command": "nope-nope"})
    assert 'the auth plugin "nope-nope" cannot be run: ' in done.stdout
    done = check(exec={"command": "true"})
    assert "the output of the auth plugin has no token and no certificate with its key" in done.stdout
    assert done.returncode == 1


def test_the_context_is_chosen_on_the_command_line(kopf_cluster, tmp_path, command):
    config = yaml.safe_load(kopf_cluster.kubeconfig.read_text())
    [context] = config["contexts"]
    config["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    broken = {"cluster": "nowhere", "user": context["context"]["user"]}
    config["contexts"] = [{"name": "broken", "context": broken}, {**context, "name": "good"}]
    config["current-context"] = "broken"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    args = ("run", "-A", "--kubeconfig", "config", "--context")
    running = command(*args, "good", "handlers.py", environment=environment(tmp_path))
    kopf_cluster.apply((tmp_path / "widgets.yaml").read_text())
    running.until("Hello, first!")
    assert running.stop(signal.SIGINT) == 0
    done = kopf(tmp_path, *args, "god", "handlers.py")
    assert "There is no context 'god' in the kubeconfig config; did you mean 'good'?" in done.stderr
    assert done.returncode == 2
    done = kopf(tmp_path, "run", "-A", "--kubeconfig", "nope", "handlers.py")
    assert "'nope' does not exist" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("compat, is_silent", [("", False), ("1.45", True)])
def test_kopf_1_45_has_neither_a_configuration_file_nor_a_banner(
    kopf_cluster, tmp_path, command, compat, is_silent
):
    (tmp_path / "pyproject.toml").write_text("[tool.kopf]\nnamespace = ['nosuch']")
    env = environment(tmp_path, KUBECONFIG=str(kopf_cluster.kubeconfig), KOPF_COMPAT=compat)
    running = command("run", "handlers.py", environment=env)
    running.until("Initial authentication has finished")
    assert running.stop() == 0
    log = "".join(running.seen)
    assert ("Serving 1 handler of 1 kind (widgets) in namespace nosuch." not in log) == is_silent
    assert ("FutureWarning: Absence of either namespaces or cluster-wide flag" in log) == is_silent


def test_two_runs_in_one_folder_keep_the_newer_kubeconfig(command, tmp_path):
    first = command("cluster")
    first.until("kubectl get namespaces")
    second = command("cluster")
    second.until("kubectl get namespaces")
    published = tmp_path / ".kopf" / "kubeconfig"
    text = published.read_text()
    assert published.stat().st_mode & 0o777 == 0o600
    assert first.stop() == 0
    assert published.read_text() == text
    with Cluster("kubeconfig", kubeconfig=published) as cluster:
        assert cluster.list("namespaces")
    assert second.stop() == 0
    assert not published.parent.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(tmp_path, shell):
    done = kopf(tmp_path, "completion", shell)
    assert "_KOPF_COMPLETE" in done.stdout
    assert done.returncode == 0


def test_commands_and_options_are_completed(tmp_path):
    done = kopf(tmp_path, _KOPF_COMPLETE="bash_complete", COMP_WORDS="kopf ch", COMP_CWORD="1")
    assert done.stdout == "plain,check\n"
    done = kopf(tmp_path, _KOPF_COMPLETE="bash_complete", COMP_WORDS="kopf run --live", COMP_CWORD="2")
    assert done.stdout == "plain,--liveness\n"
    done = kopf(tmp_path, _KOPF_COMPLETE="bash_complete", COMP_WORDS="kopf run hand", COMP_CWORD="2")
    assert done.stdout == "file,hand\n"


OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.name = "ours"
    settings.peering.mandatory = True

@kopf.on.login()
def login(**_):
    print("login", flush=True)
    return kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())

@kopf.on.cleanup()
def clean_up(**_):
    print("cleanup", flush=True)

@kopf.on.create("configmaps")
def create(**_):
    print("create", flush=True)
"""
PEERINGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterkopfpeerings.kopf.dev}
spec:
  group: kopf.dev
  scope: Cluster
  names: {plural: clusterkopfpeerings, kind: ClusterKopfPeering}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def test_the_settings_of_the_operator_decide_which_permissions_are_checked(tmp_path):
    (tmp_path / "handlers.py").write_text(OPERATOR)
    with Cluster(access=True) as cluster:
        cluster.apply(PEERINGS)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
        cluster.create(account)
        token = cluster.call("POST", "/api/v1/namespaces/default/serviceaccounts/mine/token", {"spec": {}})
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token["status"]["token"]}
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config")
        before, after = done.stdout.split("cleanup\n")
        assert before == "login\n", done.stderr
        unless = "is missing. It is needed unless settings.peering.standalone is True."
        peering = "The permission to {} clusterkopfpeerings of kopf.dev"
        assert after.splitlines() == [
            *[f"- The permission to {verb} configmaps is missing." for verb in ("list", "watch", "patch")],
            *[f"- {peering.format(verb)} {unless}" for verb in ("list", "watch")],
            f"- {peering.format('patch')} named 'ours' {unless}",
            "1 handler of 1 kind (configmaps): 6 problems.",
        ]
        (tmp_path / "handlers.py").write_text(OPERATOR.replace("mandatory = True", "mandatory = False"))
        done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config")
        assert "kopf.dev" not in done.stdout, "without the object, the operator works without peering"
        (tmp_path / "handlers.py").write_text(GOOD.format("configmaps"))
        done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config")
        assert (
            "- The permission to watch customresourcedefinitions of apiextensions.k8s.io is missing. "
            "It is needed unless settings.scanning.disabled is True.\n"
        ) in done.stdout
        assert (
            "- The permission to create events is missing. "
            "It is needed unless settings.posting.enabled is False.\n"
        ) in done.stdout


def test_failed_startup_handlers_are_problems(kopf_cluster, tmp_path):
    source = "import kopf\n@kopf.on.startup()\ndef configure(**_):\n    print(1)\n"
    source += "    raise kopf.PermanentError('No disk.')\n"
    (tmp_path / "handlers.py").write_text(source + GOOD.format("configmaps"))
    config = str(kopf_cluster.kubeconfig)
    done = kopf(tmp_path, "check", "handlers.py", "-o", "json", KUBECONFIG=config)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "operator": "2 handlers of 1 kind (configmaps)",
        "skipped": None,
        "problems": [
            {
                "kind": "startup",
                "text": "The startup handler 'configure' failed for good: PermanentError: No disk. "
                "The operator has not started.",
                "permission": None,
            }
        ],
    }
    done = kopf(tmp_path, "check", "handlers.py", "--offline", "-o", "json", KUBECONFIG=config)
    assert json.loads(done.stdout)["skipped"] == "--offline is set."
    assert done.returncode == 0
