"""Karpenter objects over an API server: applied with our field manager, listed page by page, none where not served."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tidemill.kube.api import APPLY_PATCH, KubeApi
from tidemill.kube.custom_objects import CustomObjects
from tidemill.kube.errors import NOT_SERVED
from tidemill.model.errors import Gone, Retryable
from tidemill.provision.karpenter.differences import KINDS


class Answers:
    """Records what is sent; `pages` are what a list answers, one after the other."""

    def __init__(self, *pages: Any) -> None:
        self.pages = list(pages)
        self.server = "https://api"
        self.asked: list[tuple[Any, ...]] = []

    def get(self, path: str, params: Any = None) -> bytes:
        self.asked.append(("GET", path, dict(params)))
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, bytes) else json.dumps(page).encode()

    def send(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        self.asked.append((method, path, given))
        return b"{}"


def objects(answers: Answers) -> CustomObjects:
    return CustomObjects(cast(KubeApi, answers))


def test_all_pages_are_listed():
    answers = Answers(
        {"metadata": {"continue": "next"}, "items": [{"a": 1}]}, {"metadata": {}, "items": [{"a": 2}]}
    )
    assert objects(answers).listed("NodePool") == [{"a": 1}, {"a": 2}]
    assert answers.asked[1][2]["continue"] == "next"


def test_a_kind_that_is_not_served_has_no_objects_and_other_errors_are_errors():
    assert objects(Answers(Gone("no such resource", code=NOT_SERVED))).listed("EC2NodeClass") == []
    with pytest.raises(Gone):
        objects(Answers(Gone("it went", code="not-found"))).listed("EC2NodeClass")


@pytest.mark.parametrize(
    "answer",
    [b"<html>sign in</html>", b'{"metadata": {}, "items": [{"kind": "Node', b"\xff\xfe", b"[]", b"{}",
     b'{"metadata": {}, "items": ["a"]}', b'{"metadata": null}', b'{"metadata": {"continue": 1}}'],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_asked_for_again_later(answer: bytes):
    with pytest.raises(Retryable, match="sent a list of NodePools that cannot be read"):
        objects(Answers(answer)).listed("NodePool")


def test_an_object_is_applied_with_our_field_manager_and_never_forced():
    answers = Answers()
    objects(answers).apply({"kind": "NodePool", "metadata": {"name": "train"}})
    ((method, path, given),) = answers.asked
    assert (method, path) == ("PATCH", "/apis/karpenter.sh/v1/nodepools/train")
    assert given == {"content_type": APPLY_PATCH, "params": {"fieldManager": "tidemill"}}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_that_the_reconciler_keeps_has_its_place(kind: str):
    answers = Answers()
    objects(answers).remove(kind, "train")
    ((method, path, _),) = answers.asked
    assert method == "DELETE"
    assert path.endswith("/train")
