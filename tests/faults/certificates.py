"""Certificate authorities and certificates of a test, as files."""

import json
import pathlib
import ssl

import trustme


class Trust:
    """An authority, which may be replaced by another one, and a server's certificate by it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.authority = trustme.CA()
        self.publish()

    def publish(self) -> None:
        """Let the clients know of the present authority."""
        fresh = self._folder / "ca.fresh"
        self.authority.cert_pem.write_to_path(fresh)
        fresh.replace(self._folder / "ca.pem")

    def replace(self) -> None:
        """Issue certificates by a new authority from now on. No client trusts it yet."""
        self.authority = trustme.CA()

    def context(self) -> ssl.SSLContext:
        """A server's side, with a new certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        return context

    def files(self) -> dict[str, str]:
        """The same as files, for the options of webhook servers."""
        leaf = self.authority.issue_cert("127.0.0.1")
        certificate, key = self._folder / "server.pem", self._folder / "server.key"
        leaf.cert_chain_pems[0].write_to_path(certificate)
        leaf.private_key_pem.write_to_path(key)
        return {"certfile": str(certificate), "pkeyfile": str(key), "cafile": str(self._folder / "ca.pem")}

    def kubeconfig(self, url: str, token: str = "first") -> pathlib.Path:
        """A kubeconfig with the authority in a separate file."""
        path = self._folder / "kubeconfig"
        cluster = {"server": url, "certificate-authority": str(self._folder / "ca.pem")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": token}}],
        }
        path.write_text(json.dumps(config))
        return path
