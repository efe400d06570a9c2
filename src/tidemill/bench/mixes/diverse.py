"""Karpenter's scheduling benchmark: 400 made-up instance types, and pods of five kinds in equal parts.

Its numbers (sizes, labels, prices, offerings) are Karpenter's and part of the comparison: do not change
them. The other mixes reuse its types and its pods.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidemill.catalog.sizing import GIB, MIB
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem
from tidemill.model.labels import Expression, Selector
from tidemill.model.pods import PodShape, PodTerm, Spread
from tidemill.model.resources import Amounts
from tidemill.spec.names import LABEL_ARCH, LABEL_HOSTNAME, LABEL_TYPE, LABEL_ZONE

ZONES = ("test-zone-1", "test-zone-2", "test-zone-3")
CAPACITY_TYPE = "karpenter.sh/capacity-type"
OFFERINGS = (
    ("spot", ZONES[0]),
    ("spot", ZONES[1]),
    ("on-demand", ZONES[0]),
    ("on-demand", ZONES[1]),
    ("on-demand", ZONES[2]),
)
TYPES = 400
RESERVED_MILLI, RESERVED_BYTES = 100, 10 * MIB
FAR_AWAY = 10**15  # a limit that is never reached

GROUPS = 5
CPU_MILLI = (100, 250, 500, 1000, 1500)
MEMORY_MIB = (100, 256, 512, 1024, 2048, 4096)
LETTERS = "abcdefg"

Sizes = Callable[[random.Random], Amounts]


@dataclass(frozen=True, slots=True)
class FakeType:
    """`fake-it-i`: i + 1 CPUs, twice as many GiB, ten times as many pods."""

    index: int

    @property
    def name(self) -> str:
        return f"fake-it-{self.index}"

    @property
    def cpus(self) -> int:
        return self.index + 1

    @property
    def memory(self) -> int:
        return 2 * self.cpus * GIB

    @property
    def price(self) -> float:
        return 0.1 * self.cpus + 0.1 * self.memory / 1e9

    @property
    def capacity(self) -> dict[str, int]:
        return {
            "cpu": self.cpus * 1000 - RESERVED_MILLI,
            "memory": self.memory - RESERVED_BYTES,
            "pods": 10 * self.cpus,
        }

    @property
    def consumes(self) -> dict[str, int]:
        return {"cpu": self.cpus * 1000, "memory": self.memory, "nodes": 1}

    def labels(self, zone: str, capacity_type: str) -> dict[str, str]:
        large = self.cpus > 4 and self.memory > 8 * GIB
        return {
            LABEL_ARCH: "amd64",
            LABEL_TYPE: self.name,
            LABEL_ZONE: zone,
            CAPACITY_TYPE: capacity_type,
            "size": "large" if large else "small",
            "integer": str(self.cpus),
            **({"special": "optional"} if large else {}),
        }


def options() -> tuple[NodeOption, ...]:
    """Every type in its five offerings, all at one price, for one pool."""
    found = []
    for index in range(TYPES):
        fake = FakeType(index)
        capacity, consumes = fake.capacity, fake.consumes
        for capacity_type, zone in OFFERINGS:
            labels = fake.labels(zone, capacity_type)
            found.append(
                NodeOption(fake.name, labels, capacity, fake.price, budget="default", consumes=consumes)
            )
    return tuple(found)


# --- pods ---------------------------------------------------------------------------------------------


def menu_size(chance: random.Random) -> Amounts:
    return ("cpu", chance.choice(CPU_MILLI)), ("memory", chance.choice(MEMORY_MIB) * MIB)


def any_size(chance: random.Random) -> Amounts:
    return ("cpu", chance.randint(50, 4_000)), ("memory", chance.randint(64 * 1024, 8_192 * 1024) * 1024)


def labelled(key: str, value: str) -> Selector:
    return (Expression(key, "In", (value,)),)


def shapes(
    count: int,
    chance: random.Random,
    *,
    sizes: Sizes = menu_size,
    letters: str = LETTERS,
    anchored: bool = True,
) -> Iterator[PodShape]:
    """The five groups in order, then generic pods to fill up; without the anchor the fifth is generic too."""
    share = count // GROUPS
    groups: list[Callable[[], PodShape]] = [
        lambda: _generic(chance, sizes, letters),
        lambda: _spread(chance, sizes, letters, LABEL_ZONE),
        lambda: _spread(chance, sizes, letters, LABEL_HOSTNAME),
        lambda: _together(chance, sizes, letters),
        lambda: _apart(chance, sizes),
    ]
    if not anchored:
        groups.pop()
    for group in groups:
        for _ in range(share):
            yield group()
    for _ in range(count - share * len(groups)):
        yield groups[0]()


def _generic(chance: random.Random, sizes: Sizes, letters: str) -> PodShape:
    return PodShape(sizes(chance), labels=(("my-label", chance.choice(letters)),))


def _spread(chance: random.Random, sizes: Sizes, letters: str, key: str) -> PodShape:
    rule = Spread(key, labelled("my-label", chance.choice(letters)))
    return PodShape(sizes(chance), labels=(("my-label", chance.choice(letters)),), spread=(rule,))


def _together(chance: random.Random, sizes: Sizes, letters: str) -> PodShape:
    letter = chance.choice(letters)
    rule = PodTerm(LABEL_ZONE, labelled("my-affinity", letter))
    return PodShape(sizes(chance), labels=(("my-affinity", letter),), affinity=(rule,))


def _apart(chance: random.Random, sizes: Sizes) -> PodShape:
    rule = PodTerm(LABEL_HOSTNAME, labelled("app", "nginx"))
    return PodShape(sizes(chance), labels=(("app", "nginx"),), anti_affinity=(rule,))


def pending_pods(shapes: Iterable[PodShape]) -> tuple[PendingPod, ...]:
    """Equal shapes become one object, as in the engine."""
    known: dict[PodShape, PodShape] = {}
    return tuple(PendingPod(f"pod-{n}", known.setdefault(shape, shape)) for n, shape in enumerate(shapes))


# --- problems -----------------------------------------------------------------------------------------


def build(
    pods: int, seed: int, *, sizes: Sizes = menu_size, letters: str = LETTERS, anchored: bool = True
) -> Problem:
    chance = random.Random(seed)
    drawn = shapes(pods, chance, sizes=sizes, letters=letters, anchored=anchored)
    return one_pool(pending_pods(drawn))


def build_preferences(pods: int, seed: int) -> Problem:
    """Equal pods with preferences: of the two about zones, the first can be met and the second cannot."""
    size = menu_size(random.Random(seed))
    same = labelled("app", "nginx")
    shape = PodShape(
        size,
        labels=(("app", "nginx"),),
        preferred_nodes=((1, labelled(LABEL_ZONE, ZONES[0])),),
        preferred_anti_affinity=((10, PodTerm(LABEL_ZONE, same)), (1, PodTerm(LABEL_HOSTNAME, same))),
    )
    return one_pool(pending_pods(shape for _ in range(pods)))


def one_pool(pods: tuple[PendingPod, ...]) -> Problem:
    far = {"cpu": FAR_AWAY, "memory": FAR_AWAY, "nodes": FAR_AWAY}
    return Problem(pods, options=options(), budgets={"default": far})
