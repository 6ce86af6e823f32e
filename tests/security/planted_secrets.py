"""Secrets that are recognised in any output, in plain and in encoded form."""

import base64
import dataclasses
import json
import urllib.parse

MARK = "planted"


@dataclasses.dataclass(frozen=True)
class Plant:
    """A secret of some kind."""

    kind: str

    @property
    def text(self) -> str:
        return f"{MARK}-{self.kind}-0123456789"

    @property
    def encoded(self) -> str:
        return base64.b64encode(self.text.encode()).decode()


TOKEN = Plant("token")
STALE = Plant("stale-token")
PASSWORD = Plant("password")
KEY = Plant("private-key")
PROXY = Plant("proxy-password")
PLUGIN = Plant("plugin-output")
PAYLOAD = Plant("payload-of-a-secret")
LATER = Plant("later-payload-of-a-secret")
PATCHED = Plant("patched-payload-of-a-secret")
HEADER = Plant("header-of-a-review")
BODY = Plant("body-of-a-review")
ALL = (TOKEN, STALE, PASSWORD, KEY, PROXY, PLUGIN, PAYLOAD, LATER, PATCHED, HEADER, BODY)


def found(text: str) -> list[str]:
    """Where plants are in the text, in any form."""
    shown = []
    for plant in ALL:
        forms = {plant.text, plant.encoded.rstrip("="), plant.encoded[3:-4], urllib.parse.quote(plant.text)}
        forms |= {
            base64.b64encode(b"Basic " + plant.text.encode()).decode(),
            json.dumps(list(plant.text.encode())),
        }
        # Bytes as some languages show them, and what stands behind other texts in one encoding.
        forms |= {base64.b64encode(b"x" * shift + plant.text.encode()).decode()[4:-4] for shift in (1, 2)}
        for form in forms:
            at = text.find(form)
            if at >= 0:
                shown.append(f"{plant.kind}: ...{text[max(0, at - 300) : at + 80]}")
                break
    return shown
