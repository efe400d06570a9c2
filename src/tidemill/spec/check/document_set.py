"""All documents of one run and the catalog: the input of a rule. Each document has the positions of its parts, so a
rule gives a path in a document and gets a problem with file, line and column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from tidemill.catalog import Catalog
from tidemill.model import ec2_facts
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Document
from tidemill.spec.located_yaml import ParsedYaml, Path
from tidemill.spec.problem import Problem, Severity, quoted, suggestion

M = TypeVar("M", bound=Document)
M_co = TypeVar("M_co", bound=Document, covariant=True)


@dataclass(frozen=True, slots=True)
class Heading:
    """Kind and name of a document. Known even where the rest of the document is wrong: others may refer to it."""

    kind: str
    name: str
    parsed: ParsedYaml
    name_path: Path = ("metadata", "name")

    def problem(self, message: str, code: str) -> Problem:
        line, column = self.parsed.at(self.name_path)
        return Problem(self.parsed.file, line, column, message, code)

    @property
    def place(self) -> str:
        line, column = self.parsed.at(self.name_path)
        return f"{self.parsed.file}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class LocatedDocument(Generic[M_co]):
    """A document that its model accepted, with the position of each part."""

    model: M_co
    parsed: ParsedYaml

    @property
    def name(self) -> str:
        return self.model.name

    def error(self, path: Path, message: str, code: str) -> Problem:
        return self._problem(path, message, code, "error")

    def warning(self, path: Path, message: str, code: str) -> Problem:
        return self._problem(path, message, code, "warning")

    def _problem(self, path: Path, message: str, code: str, severity: Severity) -> Problem:
        line, column = self.parsed.at(("spec", *path))
        return Problem(self.parsed.file, line, column, message, code, severity)


def of_kind(documents: Iterable[LocatedDocument[Document]], kind: type[M]) -> Iterator[LocatedDocument[M]]:
    for document in documents:
        if isinstance(document.model, kind):
            yield cast(LocatedDocument[M], document)


@dataclass(frozen=True, slots=True)
class DocumentSet:
    documents: tuple[LocatedDocument[Document], ...]
    headings: tuple[Heading, ...]
    catalog: Catalog

    def all(self, kind: type[M]) -> Iterator[LocatedDocument[M]]:
        return of_kind(self.documents, kind)

    def names(self, kind: str) -> set[str]:
        """Of valid and invalid documents: a reference to an invalid document is not an error of its own."""
        return {heading.name for heading in self.headings if heading.kind == kind}

    def pool(self, name: str) -> ComputePool | None:
        return next((pool.model for pool in self.all(ComputePool) if pool.name == name), None)

    def windows(self) -> Iterator[tuple[LocatedDocument[CapacityPlan], int, DemandWindow]]:
        for plan in self.all(CapacityPlan):
            for index, window in enumerate(plan.model.spec.demand):
                yield plan, index, window

    def missing(
        self, document: LocatedDocument[Document], path: Path, kind: str, name: str
    ) -> Iterator[Problem]:
        """A problem when no document of that kind has that name."""
        if name not in self.names(kind):
            hint = suggestion(name, self.names(kind))
            yield document.error(path, f"no {kind} is named {quoted(name)}; {hint}", "reference")

    def unknown_type(self, document: LocatedDocument[Document], path: Path, name: str) -> Iterator[Problem]:
        if name not in self.catalog.types:
            hint = suggestion(name, self.catalog.types)
            yield document.error(path, f"unknown instance type {quoted(name)}; {hint}", "instance-type")

    def not_sold_as_block(
        self, document: LocatedDocument[Document], path: Path, name: str
    ) -> Iterator[Problem]:
        instance_type = self.catalog.types.get(name)
        if instance_type is not None and not (instance_type.block or instance_type.ultraserver):
            yield document.error(path, f"EC2 does not sell {name} as Capacity Blocks", "not-a-block-type")

    def part_of_an_ultraserver(
        self, document: LocatedDocument[Document], path: Path, name: str, count: int
    ) -> Iterator[Problem]:
        instance_type = self.catalog.types.get(name)
        if instance_type is None or not instance_type.ultraserver:
            return
        above = ec2_facts.least_sold(count, ultraserver=True)
        if count != above:
            near = [str(one) for one in (above - ec2_facts.SMALLEST_ULTRASERVER, above) if one]
            message = (
                f"EC2 sells {name} by the UltraServer, 9 or 18 instances each:"
                f" write {' or '.join(near)}, not {count}"
            )
            yield document.error(path, message, "block-size")
