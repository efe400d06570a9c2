"""All documents of one run with the catalog: what a rule looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.catalog import Catalog
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Path
from tidemill.spec.located import Heading, M, Written, of_kind
from tidemill.spec.model import Document
from tidemill.spec.problem import Problem, quoted, suggestion


@dataclass(frozen=True, slots=True)
class Shelf:
    documents: tuple[Written[Document], ...]
    headings: tuple[Heading, ...]
    catalog: Catalog

    def all(self, kind: type[M]) -> Iterator[Written[M]]:
        return of_kind(self.documents, kind)

    def names(self, kind: str) -> set[str]:
        """Of sound and broken documents alike: a reference to a broken one is not wrong as well."""
        return {heading.name for heading in self.headings if heading.kind == kind}

    def pool(self, name: str) -> ComputePool | None:
        return next((pool.model for pool in self.all(ComputePool) if pool.name == name), None)

    def windows(self) -> Iterator[tuple[Written[CapacityPlan], int, DemandWindow]]:
        for plan in self.all(CapacityPlan):
            for index, window in enumerate(plan.model.spec.demand):
                yield plan, index, window

    def missing(self, document: Written[Document], path: Path, kind: str, name: str) -> Iterator[Problem]:
        """A problem when no document of that kind has that name."""
        if name not in self.names(kind):
            hint = suggestion(name, self.names(kind))
            yield document.error(path, f"no {kind} is named {quoted(name)}; {hint}", "reference")

    def unknown_type(self, document: Written[Document], path: Path, name: str) -> Iterator[Problem]:
        if name not in self.catalog.types:
            hint = suggestion(name, self.catalog.types)
            yield document.error(path, f"unknown instance type {quoted(name)}; {hint}", "instance-type")

    def not_sold_as_block(self, document: Written[Document], path: Path, name: str) -> Iterator[Problem]:
        kind = self.catalog.types.get(name)
        if kind is not None and not (kind.block or kind.ultraserver):
            yield document.error(path, f"EC2 does not sell {name} as Capacity Blocks", "not-a-block-type")
