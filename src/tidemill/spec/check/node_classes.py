"""NodeClass: what is launched should not change without anyone deciding it."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.spec.check.shelf import Shelf
from tidemill.spec.models import NodeClass
from tidemill.spec.problem import Problem, quoted


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
