"""`settings.networking.compression`: responses are compressed on request, those of watches are not."""

import socket
import threading

import pytest
import yaml

SOURCE = """
import kopf

kopf.cache("configmaps")

@kopf.on.startup()
def configure(settings, memo, **_):
    settings.networking.compression = memo.compression

@kopf.on.login()
def login(memo, **_):
    return kopf.ConnectionInfo(**memo.connection)

@kopf.on.create("widgets")
def created(api, configmaps, memo, **_):
    answer = api.request("GET", "/api/v1/namespaces/default/configmaps")
    sizes = [len(answer.bytes), len(api.list("configmaps", "default")), len(configmaps)]
    memo.calls.append(("created", [*sizes, "content-encoding" in answer.headers]))
"""


class Forwarder:
    """Forwards TCP connections to a port, and counts the bytes of the responses."""

    def __init__(self, port):
        self.port, self.received = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, target, counts):
        try:
            while data := source.recv(65536):
                self.received += len(data) if counts else 0
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("compression", [False, True])
def test_responses_are_compressed_on_request(run, make, cluster, compression):
    for number in range(30):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"cm-{number}"}}
        cluster.create({**body, "data": {"x": "abc" * 10_000}})
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    known = config["clusters"][0]["cluster"]
    forwarder = Forwarder(int(known["server"].rpartition(":")[2]))
    connection = {
        "server": f"https://127.0.0.1:{forwarder.listener.getsockname()[1]}",
        "ca_data": known["certificate-authority-data"],
        "token": config["users"][0]["user"]["token"],
    }
    running = run(source=SOURCE, share={"compression": compression, "connection": connection})
    make()
    running.until("created")
    running.stop()
    forwarder.listener.close()
    ((length, *others),) = running.of("created")
    assert length > 900_000 and others == [30, 30, False]
    # The cache, and two requests for the list.
    assert forwarder.received < 300_000 if compression else forwarder.received > 2_700_000
