"""Requests of operators to the API server, without a client library."""

import json
import os
import urllib.error
import urllib.request


def create(path, body):
    """Create an object; returns the status of the response and its body."""
    headers = {"Authorization": f"Bearer {os.environ['DIFF_API_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        os.environ["DIFF_API"] + path, data=json.dumps(body).encode(), method="POST", headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
