"""Which pool and which types a training job would get, what its pods request, and what is said when nothing fits."""

from __future__ import annotations

import pytest

from tests.decide.builders import hourly_pool, pool
from tidemill.catalog import load
from tidemill.model.errors import SpecError
from tidemill.report.job_nodes import WantedNodes, choose_nodes, nodes_of_a_type
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-15")
GIB = 2**30


def chosen(*pools, **wanted):
    return choose_nodes({one.name: one for one in pools}, load(), WantedNodes(**{"gpus": 8, **wanted}))


def refused(*pools, **wanted) -> str:
    with pytest.raises(SpecError) as caught:
        chosen(*pools, **wanted)
    return str(caught.value)


@pytest.mark.requirement("PE-14")
def test_a_whole_node_is_asked_for_as_it_is_known_to_work():
    found = chosen(pool())
    assert dict(found.requests) == {"cpu": 180_000, "memory": 1700 * GIB, names.NVIDIA_GPU: 8}
    assert (found.pool, found.whole) == ("p5", True)


def test_several_nodes_ask_for_every_efa_interface_of_their_type():
    assert dict(chosen(pool(), nodes=4).requests)[names.EFA] == 32


def test_a_part_of_a_node_gets_its_part_of_everything():
    found = chosen(pool(), gpus=2, nodes=2)
    assert dict(found.requests) == {
        "cpu": 45_000, "memory": 425 * GIB, names.NVIDIA_GPU: 2, names.EFA: 8
    }  # fmt: skip
    assert not found.whole


def test_types_that_differ_are_asked_for_what_all_of_them_have():
    mixed = pool(requirements={"instanceTypes": ["p5.48xlarge", "p5en.48xlarge"]})
    found = chosen(mixed, nodes=2)
    assert dict(found.requests)[names.EFA] == 16
    assert found.efa_differs
    one = chosen(mixed, nodes=2, instance_type="p5.48xlarge")
    assert dict(one.requests)[names.EFA] == 32
    assert not one.efa_differs


def test_trainium_is_asked_for_by_its_own_name():
    found = chosen(pool(requirements={"instanceTypes": ["trn1.32xlarge"]}), gpus=16, nodes=2)
    assert dict(found.requests)[names.NEURON] == 16
    assert dict(found.requests)[names.EFA] == 8


def test_what_every_type_of_the_catalog_is_asked_for_fits_beside_the_usual_daemons():
    from tidemill.catalog.sizing import USUAL_DAEMONS
    from tidemill.model.resources import Resources

    for kind in load().types.values():
        if not kind.gpus:
            continue
        for gpus in {1, kind.gpus}:
            wanted = WantedNodes(gpus, kind.gpus // gpus + 1, instance_type=kind.name)
            requests = nodes_of_a_type(load(), wanted).requests
            free = Resources(kind.allocatable).minus(dict(USUAL_DAEMONS))
            for _ in range(kind.gpus // gpus):
                assert free.fits(requests), (kind.name, gpus)
                free.subtract_pod(requests)


def test_the_pool_with_the_highest_weight_is_taken():
    assert chosen(pool("a"), pool("b", weight=10)).pool == "b"


def test_among_equal_pools_the_user_chooses():
    assert refused(pool("a"), pool("b")) == "several pools could run it; add --pool, one of: a, b"
    assert chosen(pool("a"), pool("b"), pool="b").pool == "b"


def test_a_pool_that_cannot_run_it_is_no_choice():
    small = hourly_pool("small", "g6.12xlarge")
    assert chosen(small, pool("large")).pool == "large"


# --- what cannot be says what to write instead --------------------------------------------------------


def test_an_unknown_pool_names_the_nearest():
    assert (
        refused(pool("training"), pool="trainign") == "there is no pool 'trainign'; did you mean 'training'?"
    )


def test_more_gpus_than_a_node_has_are_several_nodes():
    said = refused(pool(), gpus=32, pool="p5")
    assert said == (
        "pool p5 could never run it: a node has at most 8 GPUs (p5.48xlarge), not 32; --gpus counts those of one node: "
        "write --gpus 8 --nodes 4"
    )


def test_more_nodes_than_the_limits_allow_say_how_many_would_do():
    said = refused(pool(limits={"nodes": 3}), nodes=4, pool="p5")
    assert said == (
        "pool p5 could never run it: its limits allow 3 p5.48xlarge at once, and 4 are needed; ask for --nodes 3 or "
        "fewer, or raise them"
    )


def test_pods_that_share_nodes_need_fewer_of_them():
    assert chosen(pool(limits={"nodes": 1}), gpus=2, nodes=4).pool == "p5"
    assert "allow 1 p5.48xlarge at once, and 2 are needed" in refused(
        pool(limits={"nodes": 1}), gpus=2, nodes=5
    )


def test_a_gang_larger_than_any_block_is_refused_where_there_are_only_blocks():
    assert "at most 64 instances" in refused(pool(limits={"nodes": 100}), nodes=65)


def test_every_pool_says_why_it_cannot():
    said = refused(
        hourly_pool("small", "g6.12xlarge"), pool("closed", allowedNamespaces=["ml"]), pool("bare", limits=None),
        namespace="default",
    )  # fmt: skip
    split = "--gpus counts those of one node: write --gpus 4 --nodes 2"
    assert said.splitlines() == [
        "no pool could ever run it:",
        "  bare: it has no limits, and without limits it launches nothing; set spec.limits",
        "  closed: it does not serve namespace default; add --namespace with one of: ml",
        f"  small: a node has at most 4 GPUs (g6.12xlarge), not 8; {split}",
    ]


def test_a_type_that_the_pool_does_not_have_is_refused():
    assert "it has no p4d.24xlarge; its types: p5.48xlarge" in refused(pool(), instance_type="p4d.24xlarge")
    assert "did you mean 'p5.48xlarge'?" in refused(pool(), instance_type="p5.48xlrge")
