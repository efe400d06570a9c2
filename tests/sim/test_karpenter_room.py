"""What is remembered of a NodePool's room is what would be worked out anew."""

from __future__ import annotations

from random import Random

from tidemill.catalog import load
from tidemill.model.resources import Amounts, Resources
from tidemill.sim.karpenter.offerings import NodePool
from tidemill.sim.karpenter.room import Room

CATALOG = load()
TYPES = [CATALOG.types[name] for name in ("p5.48xlarge", "g6.xlarge", "g6.12xlarge")]


def node_pool(name: str, nodes: int) -> NodePool:
    return NodePool(name, 0, {}, {}, (), (), {"nodes": nodes}, None, None)


def test_room_is_that_of_the_nodes_there_are_and_of_the_daemons_on_them():
    random, pools = Random(3), [node_pool("a", 2), node_pool("b", 4)]
    claims: list[tuple[str, int]] = []
    daemons: Amounts = (("cpu", 100),)
    room = Room(lambda pool: [TYPES[kind] for name, kind in claims if name == pool], lambda: daemons)
    for _ in range(300):
        step = random.randrange(6)
        if step == 0:
            claims.append((random.choice("ab"), random.randrange(3)))
            room.changed()
        elif step == 1 and claims:
            claims.pop(random.randrange(len(claims)))
            room.changed()
        elif step == 2:
            daemons = (("cpu", random.choice((100, 250))), ("pods", 1))
        pool, kind = random.choice(pools), random.choice(TYPES)
        has = [TYPES[number] for name, number in claims if name == pool.name]
        assert room.allows(pool, kind) == pool.allows(kind, has)
        free = Resources(kind.allocatable)
        free.subtract_pod(daemons)
        assert room.free(kind) == free


def test_types_of_one_name_are_found_again_whatever_catalog_they_come_from():
    again = load()
    assert set(TYPES) == {again.types[kind.name] for kind in TYPES}
