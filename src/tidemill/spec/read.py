"""Files to checked documents: one run finds every problem of all files.

Nothing in a file makes it raise: each error is a Problem with a position. The rules are in `check`; this module only
brings files, models and rules together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.model.errors import SpecError
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.check import check
from tidemill.spec.check.document_set import Heading, LocatedDocument, M, of_kind
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Document
from tidemill.spec.explain import explain
from tidemill.spec.located_yaml import ParsedYaml, Path, parse
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Position, Problem, quoted, suggestion
from tidemill.spec.scenario import Scenario

KINDS: dict[str, type[Document]] = {
    "Platform": Platform,
    "NodeClass": NodeClass,
    "ComputePool": ComputePool,
    "CapacityPlan": CapacityPlan,
    "Scenario": Scenario,
}
MAX_FILE_BYTES = 8 * 2**20  # 8 MiB: hand-written documents are kilobytes; a log file named by mistake is not


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read. `spec` is None without a Platform or with errors; `scenario` is None without a Scenario or
    with errors."""

    documents: tuple[LocatedDocument[Document], ...]
    problems: tuple[Problem, ...]
    spec: Spec | None
    scenario: Scenario | None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    def checked_spec(self) -> Spec:
        """The spec, or a SpecError that lists every error."""
        if self.errors:
            raise SpecError("the documents cannot be used\n" + "\n".join(map(str, self.errors)))
        if self.spec is None:
            raise SpecError("the files have no Platform document; add the file that has it")
        return self.spec

    def checked_scenario(self) -> Scenario:
        self.checked_spec()
        if self.scenario is None:
            raise SpecError("the files have no Scenario document; add the file that has it")
        return self.scenario


def load(
    paths: Sequence[FilePath | str],
    catalog: Catalog | None = None,
    *,
    catalog_of: Callable[[str], Catalog] | None = None,
) -> Loaded:
    """Read, check and bundle the documents of all files. A file named twice is read once.

    They are checked against `catalog`, else what `catalog_of` gives for the Platform's region, else the shipped
    catalog.
    """
    files = dict.fromkeys(FilePath(path) for path in paths)
    return checked((parsed for path in files for parsed in read_file(path)), catalog, catalog_of)


def load_objects(
    objects: Iterable[Mapping[str, Any]], *, catalog_of: Callable[[str], Catalog] | None = None
) -> Loaded:
    """Like `load`, of objects that an API server holds. A problem's `file` is the object, as `ComputePool/train`."""
    return checked((_of_object(each) for each in objects), None, catalog_of)


def object_name(kind: str, name: str) -> str:
    return f"{kind}/{name}"


def _of_object(thing: Mapping[str, Any]) -> ParsedYaml:
    """What a person wrote of it: not its status, and of its metadata what a document has."""
    metadata = thing.get("metadata", {})
    data = {key: thing[key] for key in ("apiVersion", "kind", "spec") if key in thing}
    data["metadata"] = {
        key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key) is not None
    }
    parsed = ParsedYaml(object_name(str(thing.get("kind")), str(metadata.get("name"))), data)
    for line, path in enumerate(
        _paths(data), 1
    ):  # an object has no lines; each part gets a position of its own
        parsed.keys[path] = parsed.values[path] = Position(line, 1)
    return parsed


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield from _paths(member, (*at, key))


def checked(
    parsed_documents: Iterable[ParsedYaml],
    catalog: Catalog | None = None,
    catalog_of: Callable[[str], Catalog] | None = None,
) -> Loaded:
    """Like `load`, of YAML that is parsed already."""
    problems: list[Problem] = []
    headings: list[Heading] = []
    documents: list[LocatedDocument[Document]] = []
    for parsed in parsed_documents:
        document = validate(parsed)
        problems += parsed.problems
        headings += heading(parsed)
        documents += [document] if document else []
    types = catalog or _catalog(documents, catalog_of)
    problems += without_reported(check(documents, headings, types), documents)
    return _bundle(documents, problems, types)


def _catalog(documents: Sequence[LocatedDocument[Document]], of: Callable[[str], Catalog] | None) -> Catalog:
    platform = next(of_kind(documents, Platform), None)
    return shipped.load() if of is None or platform is None else of(platform.model.spec.region)


def without_reported(
    problems: Iterable[Problem], documents: Iterable[LocatedDocument[Document]]
) -> Iterator[Problem]:
    """Without problems at positions that already have one."""
    reported = {
        (document.parsed.file, *position) for document in documents for position in document.parsed.reported
    }
    return (problem for problem in problems if (problem.file, problem.line, problem.column) not in reported)


def read_file(path: FilePath) -> Iterator[ParsedYaml]:
    """The YAML documents of a file. A file that cannot be read gives one document without data, with the problem."""
    file = str(path).encode("utf-8", "backslashreplace").decode()  # file names need not be valid text
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        yield _unreadable(file, "the file does not exist")
    except IsADirectoryError:
        yield _unreadable(file, "is a directory; name the files in it")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        yield _unreadable(file, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    else:
        yield from _parsed_content(content, file)


def _parsed_content(content: bytes, file: str) -> Iterator[ParsedYaml]:
    if len(content) > MAX_FILE_BYTES:
        yield _unreadable(file, f"is larger than {MAX_FILE_BYTES // 2**20} MiB; is it really a document?")
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        message = f"is not UTF-8 text: byte 0x{content[error.start]:02x} is not allowed here"
        yield ParsedYaml(file, problems=[Problem(file, line, column, message, "file")])
        return
    documents = list(parse(text, file))
    yield from documents or [_unreadable(file, "has no document in it")]


def _unreadable(file: str, message: str) -> ParsedYaml:
    return ParsedYaml(file, problems=[Problem(file, 1, 1, message, "file")])


def validate(parsed: ParsedYaml) -> LocatedDocument[Document] | None:
    """The document as its model, or None with the reason in `parsed.problems`."""
    if parsed.data is None:
        return None
    model = _model(parsed)
    if model is None:
        return None
    try:
        # Only the YAML names: with by_name the Python names would be accepted too.
        document = model.model_validate(parsed.data, by_alias=True, by_name=False)
    except ValidationError as error:
        parsed.problems += explain(error, model, parsed, model.__name__)
        return _salvaged(error, model, parsed)
    return LocatedDocument(document, parsed)


def _salvaged(
    error: ValidationError, model: type[Document], parsed: ParsedYaml
) -> LocatedDocument[Document] | None:
    """The document without its wrong parts, so that the rules across documents still see the rest.

    The positions around a removed part count as reported, so that no rule reports the missing part.
    """
    data = deepcopy(parsed.data)
    for finding in error.errors(include_url=False, include_input=False, include_context=False):
        path = parsed.known(tuple(finding["loc"]))
        if finding["type"] == "missing":
            return None
        parsed.reported |= {parsed.at(path[:length]) for length in range(len(path) + 1)}
        while path and isinstance(path[-1], int):
            path = path[:-1]  # removing one item of a list would shift the others
        _remove(data, path)
    try:
        return LocatedDocument(model.model_validate(data, by_alias=True, by_name=False), parsed)
    except ValidationError:
        return None


def _remove(data: Any, path: Path) -> None:
    for part in path[:-1]:
        data = data.get(part) if isinstance(data, dict) else data[part] if part in range(len(data)) else None
        if data is None:
            return  # already removed with a part around it
    if path and isinstance(data, dict):
        data.pop(path[-1], None)


def _model(parsed: ParsedYaml) -> type[Document] | None:
    """The model for the document's kind."""
    data = parsed.data
    if not isinstance(data, dict):
        _note(
            parsed,
            (),
            "a document must be a mapping with 'apiVersion', 'kind', 'metadata' and 'spec'",
            "document",
        )
        return None
    version = data.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        message = f"unknown apiVersion {quoted(version)}; write '{API_VERSION}'"
        _note(parsed, ("apiVersion",), message, "api-version")
    if "kind" not in data:
        _note(parsed, (), f"missing key 'kind' in the document; valid: {', '.join(KINDS)}", "missing-key")
        return None
    kind = str(data["kind"])
    if kind not in KINDS:
        _note(parsed, ("kind",), f"unknown kind {quoted(kind)}; {suggestion(kind, KINDS)}", "kind")
    return KINDS.get(kind)


def _note(parsed: ParsedYaml, path: Path, message: str, code: str) -> None:
    line, column = parsed.at(path)
    parsed.problems.append(Problem(parsed.file, line, column, message, code))


def heading(parsed: ParsedYaml) -> Iterator[Heading]:
    """Kind and name of a document that may be wrong elsewhere; nothing where they cannot be read."""
    data = parsed.data if isinstance(parsed.data, dict) else {}
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = str(data.get("kind"))
    if kind in KINDS and isinstance(name, str):
        yield Heading(kind, name, parsed)


def _bundle(
    documents: Sequence[LocatedDocument[Document]], problems: Iterable[Problem], catalog: Catalog
) -> Loaded:
    unique = tuple(sorted(set(problems)))
    valid = not any(problem.severity == "error" for problem in unique)
    platform = next(of_kind(documents, Platform), None)
    scenario = next(of_kind(documents, Scenario), None)
    spec = None
    if valid and platform is not None:
        spec = Spec(
            platform=platform.model,
            catalog=catalog,
            node_classes=_by_name(documents, NodeClass),
            pools=_by_name(documents, ComputePool),
            plans=_by_name(documents, CapacityPlan),
        )
    return Loaded(tuple(documents), unique, spec, scenario.model if valid and scenario else None)


def _by_name(documents: Sequence[LocatedDocument[Document]], kind: type[M]) -> dict[str, M]:
    by_name = sorted(of_kind(documents, kind), key=lambda document: document.name)
    return {document.name: document.model for document in by_name}
