"""NodeClass: what is launched should not change without anyone deciding it, should be bootable, and new enough."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.catalog.image_drivers import CUDA, OLDEST_DRIVER, driver_of, too_old
from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.spec.names import NVIDIA_GPU
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted

FAMILIES = ("al2023", "bottlerocket")


def images_are_pinned(shelf: Shelf) -> Iterator[Problem]:
    for node_class in shelf.all(NodeClass):
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            if term.alias is not None and (term.alias.endswith("@latest") or "@" not in term.alias):
                yield node_class.warning(
                    ("amiSelectorTerms", index, "alias"),
                    f"the AMI alias {quoted(term.alias)} moves by itself: nodes of one pool will differ"
                    " and drift; pin a version, such as 'bottlerocket@v1.52.0'",
                    "TR-8",
                )


def images_are_known(shelf: Shelf) -> Iterator[Problem]:
    """A warning: a rehearsal boots nothing, and plays all the same."""
    for node_class in shelf.all(NodeClass):
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            family = term.alias.partition("@")[0] if term.alias else FAMILIES[0]
            if family not in FAMILIES:
                yield node_class.warning(
                    ("amiSelectorTerms", index, "alias"),
                    f"how images of {quoted(family)} join a cluster is not known here, so no node is launched from"
                    f" one; there are {' and '.join(FAMILIES)}",
                    "ami-family",
                )


def drivers_are_new_enough(shelf: Shelf) -> Iterator[Problem]:
    """AE-12, where the image's release notes say which driver it holds; elsewhere nothing is known."""
    versions = {platform.model.spec.cluster.version for platform in shelf.all(Platform)}
    for node_class in shelf.all(NodeClass):
        if not _boots_gpus(shelf, node_class.name):
            continue
        for index, term in enumerate(node_class.model.spec.ami_selector_terms):
            drivers = {driver_of(term.alias, version) for version in versions} if term.alias else set()
            for driver in sorted(each for each in drivers if each is not None and too_old(each)):
                yield node_class.warning(
                    ("amiSelectorTerms", index, "alias"),
                    f"the image {quoted(term.alias)} has NVIDIA driver {driver}; CUDA {CUDA} wants {OLDEST_DRIVER}"
                    " or later: take a newer image",
                    "AE-12",
                )


def _boots_gpus(shelf: Shelf, node_class: str) -> bool:
    return any(
        kind.accelerator is not None and kind.accelerator.resource == NVIDIA_GPU
        for pool in shelf.all(ComputePool)
        if pool.model.spec.node_class_name == node_class
        for kind in matching_types(shelf.catalog, pool.model.spec.requirements)
    )
