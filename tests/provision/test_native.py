"""A launch that the documents do not allow is refused with their words, and reaches nobody."""

from __future__ import annotations

from typing import cast

import pytest

from tests.decide.builders import launch_intent
from tests.provision.documents import BLOCK, documents
from tidemill.model.errors import NoCapacity, Refused
from tidemill.ports.compute import Compute
from tidemill.provision.images import PretendImages
from tidemill.provision.native import DOCUMENTS, NativeLauncher


class BootingImages(PretendImages):
    boots = True


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ({"cluster": {"name": "ml"}}, "spec.cluster.endpoint is not set"),
        ({"nodeRole": ""}, "spec.nodeRole is not set"),
        ({"securityGroups": []}, "spec.securityGroups is not set"),
    ],
)
def test_what_could_never_join_is_refused_and_no_want_of_capacity(platform: dict[str, object], words: str):
    spec = documents(platform=platform)
    nobody = cast(Compute, object())  # it is not asked
    launcher = NativeLauncher(spec, nobody, BootingImages(), lambda source, provisioner: None)
    intent = launch_intent(pool="train", source=BLOCK, zone="us-east-1a")
    with pytest.raises(Refused, match=words) as refused:
        launcher.launch(intent, ())
    assert not isinstance(refused.value, NoCapacity)
    assert refused.value.code == DOCUMENTS
