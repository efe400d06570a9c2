"""A view that is too old is none."""

from __future__ import annotations

from typing import cast

import pytest

from tidemill.engine.clock import WallClock
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster_view import LONGEST_LAG_S, ClusterReader
from tidemill.model.errors import NotAllowed, Retryable


def test_nothing_is_decided_on_what_was_read_long_ago():
    """The lease is renewed while pods cannot be listed: a node whose pods are not seen would look empty, and one whose
    start was not seen as if it never came."""
    reader = ClusterReader(cast(KubeApi, None), WallClock())
    for reflector in reader.reflectors:
        reflector.synced = True
    pods = next(reflector for reflector in reader.reflectors if reflector.kind.name == "Pod")
    pods._heard_at -= LONGEST_LAG_S - 10
    assert reader.view().pods == ()
    pods._heard_at -= 20
    pods.error = NotAllowed("may not list pods")
    with pytest.raises(Retryable, match=r"nothing was heard of Pod for \d+ s \(may not list pods\)"):
        reader.view()
    pods._heard()
    assert reader.view().pods == ()
