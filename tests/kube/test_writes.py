"""Writes on answers that no API server gives by itself, and objects that no controller would make."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast

import pytest

from tests.kube import manifests as m
from tidemill.kube.admit import Pin, admitted_workload
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_view import ClusterReader
from tidemill.kube.removal import Removal
from tidemill.kube.writes import Ref, Writer
from tidemill.model.errors import Gone, NotAllowed, Refused, Retryable
from tidemill.spec import names

POD = Ref("Pod", "team", "web-1", "uid-web-1")


class Answers:
    """An API server that says what it is told to; and a reader that keeps what it learns."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.refuses: dict[str, Exception] = {}  # by the end of the path
        self.sent: list[str] = []
        self.forgotten: list[str] = []

    def get(self, path: str, params: object = None) -> bytes:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found if isinstance(self.found, bytes) else json.dumps(self.found).encode()

    def send(self, method: str, path: str, body: bytes, **how: Any) -> bytes:
        if path.rpartition("/")[2] in self.refuses:
            raise self.refuses[path.rpartition("/")[2]]
        self.sent.append(f"{method} {path}")
        return self.get(path)

    def learn(self, kind: str, body: bytes) -> None: ...

    def job_of(self, uid: str) -> None: ...

    def forget(self, kind: str, uid: str) -> None:
        self.forgotten.append(uid)


def writer(answers: Answers) -> Writer:
    return Writer(cast(KubeApi, answers), answers, "tidemill")


def test_a_custom_resource_of_an_unknown_form_is_its_own_fault():
    """Its CRD lets a replica without a template pass; the other actions of the tick must go on."""
    odd = {
        "metadata": m.meta("llm", labels={names.HELD_BY: names.HELD_BY_US}),
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 2}}},
    }
    admit = partial(admitted_workload, "PyTorchJob", pin=Pin("cr-1"), whole=True)
    with pytest.raises(Refused, match="PyTorchJob team/llm is not understood"):
        writer(Answers(odd)).change(Ref("PyTorchJob", "team", "llm", "uid-llm"), admit)


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"[]", b"{}", b'{"metadata": null}', b"\xff"])
def test_an_answer_that_is_no_object_may_be_one_later(answer):
    with pytest.raises(Retryable, match="no object"):
        writer(Answers(answer)).change(POD, lambda found: None)


@pytest.mark.parametrize(("code", "forgotten"), [("not-found", ["uid-web-1"]), ("not-served", [])])
def test_only_a_404_that_names_the_object_says_that_it_is_gone(code, forgotten):
    """That of a proxy would hide a running pod for ever, and its node would look empty."""
    answers = Answers(Gone("404", code=code))
    with pytest.raises(Gone):
        writer(answers).read(POD)
    assert answers.forgotten == forgotten


def test_a_pod_is_deleted_in_time_although_its_condition_is_refused():
    answers = Answers(m.pod())
    answers.refuses = {"status": NotAllowed("may not patch pods/status", code="forbidden")}
    removal = Removal(cast(KubeApi, answers), writer(answers), cast(ClusterReader, answers))
    removal.delete(POD, 30, disruption=True)
    assert answers.sent == ["DELETE /api/v1/namespaces/team/pods/web-1"]
