"""GPU caps per namespace: what a document may say, and names that no pool serves."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, joined, pool

pytestmark = pytest.mark.requirement("PE-20")
SERVING = pool("allowedNamespaces: [research]")


def limited(written: str) -> str:
    return f"{PLATFORM.rstrip()}\n  namespaceLimits: {written}\n"


def test_warns_of_a_limit_on_a_namespace_that_no_pool_serves(read: Reader) -> None:
    (problem,) = read(joined(limited("[{namespaces: [reserch], gpus: 8}]"), NODE_CLASS, SERVING)).problems
    assert problem.severity == "warning"
    assert problem.message == (
        "no pool serves namespace 'reserch', so its limit has no effect: the name is mistyped,"
        " or missing in 'allowedNamespaces' of the pools"
    )
    assert read(joined(limited("[{namespaces: [research], gpus: 8}]"), NODE_CLASS, SERVING)).problems == ()


@pytest.mark.parametrize(
    "written", ["[{namespaces: [], gpus: 8}]", "[{namespaces: [a]}]", "[{namespaces: [a], gpus: -1}]",
                "[{namespaces: [No_Name], gpus: 8}]"],
)  # fmt: skip
def test_refuses_a_limit_without_namespaces_or_with_wrong_numbers(read: Reader, written: str) -> None:
    assert read(joined(limited(written), NODE_CLASS, SERVING)).errors
