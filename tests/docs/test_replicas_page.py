"""The test on the page about replicas passes as it is."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/how-to/replicas.md"


@pytest.mark.kopf_embedded_only
def test_the_failover_of_the_page(kopf_cluster, kopf_operator):
    """LEA-19."""
    [block] = re.findall(r"^```python\n(# test_failover.py\n.*?)^```", PAGE.read_text(), re.M | re.S)
    names = {}
    exec(compile(block, "test_failover.py", "exec"), names)
    names["test_another_replica_continues_after_a_crash"](kopf_cluster, kopf_operator)
