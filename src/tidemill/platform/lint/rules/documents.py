"""Documents of ours: the rules are those of `tidemill validate`; the linter adds its fixes."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.platform.lint.edits import overwritten
from tidemill.platform.lint.finding import Edit, Finding
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.sources import Kind, Located
from tidemill.spec import traps
from tidemill.spec.compute_pool import Requirements, matching_types
from tidemill.spec.problem import Problem
from tidemill.spec.read import checked
from tidemill.spec.units import parse_cpu
from tidemill.wording.traps import TRAPS


def documents_of_ours(files: Inventory) -> Iterator[Finding]:
    """Problems that are no traps are not repeated; that some fields were not looked at is said."""
    parsed = [document for source in files.sources for document in source.documents]
    if not parsed:
        return
    found = checked(parsed, files.catalog).problems
    for source in files.sources:
        errors = [
            problem
            for document in source.documents
            for problem in document.problems
            if problem.severity == "error" and problem.code not in TRAPS
        ]
        if errors:
            first = errors[0]
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            message = f"not all of it could be checked: {first.message}{more}; run `tidemill validate`"
            source.leave_out("unchecked", message, first.line, first.column)
    for problem in found:
        if problem.code in TRAPS:
            yield Finding(
                problem.file,
                problem.line,
                problem.column,
                problem.code,
                problem.message,
                TRAPS[problem.code].fix,
                problem.severity,
                _edits(files, problem),
            )


def _edits(files: Inventory, problem: Problem) -> tuple[Edit, ...]:
    here = next((each for each in files.of(Kind.OURS) if _is_at(each, problem)), None)
    if here is None:
        return ()
    if problem.code == "TR-5":
        return overwritten(here, ("spec", "disruption", "consolidateBlocks"), "false")
    if problem.code == "TR-18":
        wanted = Requirements.model_validate(here.mapping("spec", "requirements"))
        limit = parse_cpu(here.get("spec", "limits", "cpu"))
        partial = traps.partial_node_limit(limit, matching_types(files.catalog, wanted))
        if partial is not None and partial.vcpus_below:
            return overwritten(here, ("spec", "limits", "cpu"), str(partial.vcpus_below))
    return ()


def _is_at(located: Located, problem: Problem) -> bool:
    """Whether the problem is of the one field of this document that can be fixed."""
    path = {"TR-5": ("disruption", "consolidateBlocks"), "TR-18": ("limits", "cpu")}.get(problem.code)
    if path is None or located.parsed.file != problem.file:
        return False
    return located.parsed.values.get(("spec", *path)) == (problem.line, problem.column)
