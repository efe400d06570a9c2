"""`tidemill lint`: traps in files of any origin, each with its place, why it bites and the fix.

The story: files are read and sorted by kind (`sources`), joined into one picture (`inventory`), and every rule
(`rules`) looks at all of them. Findings that a comment or an option silences are set aside. `edits` fixes what is safe
to fix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.platform.lint.edits import fixed
from tidemill.platform.lint.finding import Finding, Report
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.rules import RULES
from tidemill.platform.lint.sources import Source, ignored_rules, read_source

# A fix can bring another finding to light, such as two in one line; a rule that never rests is a bug.
MAX_PASSES = 5


def lint(
    files: Mapping[str, bytes],
    *,
    rules: Collection[str] = (),
    ignore: Collection[str] = (),
    catalog: Catalog | None = None,
) -> Report:
    """What all rules find in all files together. `rules`: only these; empty: all."""
    sources = [read_source(file, content) for file, content in files.items()]
    inventory = Inventory(sources, catalog or shipped.load())
    found = sorted({finding for rule in RULES for finding in rule(inventory)})
    wanted = [each for each in found if (not rules or each.rule in rules) and each.rule not in ignore]
    texts = {source.file: source.text for source in sources if source.may_be_fixed}
    silenced = _silenced(sources, wanted)
    return Report(
        tuple(
            each if each.file in texts else replace(each, edits=()) for each in wanted if each not in silenced
        ),
        tuple(sorted(each for source in sources for each in source.not_linted)),
        tuple(source.file for source in sources if source.objects or source.is_template),
        tuple(each for each in wanted if each in silenced),
        texts,
    )


def _silenced(sources: Sequence[Source], findings: Sequence[Finding]) -> set[Finding]:
    ignored = {
        source.file: ignored_rules(source.text) for source in sources if "tidemill-lint" in source.text
    }
    return {
        each
        for each in findings
        if each.file in ignored
        and (each.rule in ignored[each.file][0] or each.rule in ignored[each.file][1].get(each.line, ()))
    }


def fix(
    files: Mapping[str, bytes],
    *,
    rules: Collection[str] = (),
    ignore: Collection[str] = (),
    catalog: Catalog | None = None,
) -> dict[str, str]:
    """The new text of each file that a safe fix changes.

    A file whose new text would not parse, or would have a finding that its old text had not, stays as it is.
    """
    current = dict(files)
    for _ in range(MAX_PASSES):
        report = lint(current, rules=rules, ignore=ignore, catalog=catalog)
        changed: dict[str, bytes] = {}
        for file, text in report.texts.items():
            after = fixed(text, (each for each in report.findings if each.file == file))
            if after != text:
                changed[file] = after.encode()
        if not changed:
            break
        after_report = lint({**current, **changed}, rules=rules, ignore=ignore, catalog=catalog)
        for file in list(changed):
            before = sum(each.file == file for each in report.findings)
            still = sum(each.file == file for each in after_report.findings)
            if file not in after_report.texts or still >= before:
                del changed[file]
        if not changed:
            break
        current |= changed
    return {file: content.decode() for file, content in current.items() if content != files[file]}
