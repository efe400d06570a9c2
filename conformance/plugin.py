"""The pytest side of conformance: collects the `requirement` marks and prints the table with `--conformance`.

A mark with an unknown id fails every run, so that a typing error cannot pass for a proof. Works under xdist:
ids travel from the workers as user properties of the reports.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance import requirements

PROPERTY = "requirement"
KNOWN = requirements.read()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance", action="store_true", help="run only tests that prove a requirement")
    parser.addoption(
        "--conformance-table",
        action="store_true",
        help="run all tests, and print which requirement they prove",
    )
    parser.addoption(
        "--conformance-real",
        action="store_true",
        help="the same, judged by what is declared proved on a real control plane",
    )


def pytest_configure(config: pytest.Config) -> None:
    real = config.getoption("--conformance-real")
    told = real or config.getoption("--conformance") or config.getoption("--conformance-table")
    if told and not hasattr(config, "workerinput"):
        judged = requirements.of_real_tier(KNOWN.values()) if real else list(KNOWN.values())
        config.pluginmanager.register(Table(judged), "conformance-table")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties.extend((PROPERTY, id_) for id_ in ids_of(item))
    if config.getoption("--conformance"):
        config.hook.pytest_deselected(items=[item for item in items if not ids_of(item)])
        items[:] = [item for item in items if ids_of(item)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    unknown = [id_ for id_ in ids_of(item) if id_ not in KNOWN]
    if unknown:
        pytest.fail(f"the mark names unknown requirements: {', '.join(unknown)}", pytrace=False)


def ids_of(item: pytest.Item) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(id_) for mark in item.iter_markers("requirement") for id_ in mark.args))


class Table:
    """Gathers results in the process that prints."""

    def __init__(self, judged: list[requirements.Requirement]) -> None:
        self.judged = judged
        self.evidence: dict[str, requirements.Evidence] = {}
        self.complaints: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not (report.failed or (report.when == "call" and report.passed)):
            return  # a skipped test proves nothing, and set-up that works is not a result
        for name, id_ in report.user_properties:
            if name == PROPERTY:
                found = self.evidence.setdefault(str(id_), requirements.Evidence())
                found.add(report.nodeid, report.passed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.complaints = list(requirements.complaints(self.judged, self.evidence))
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("conformance")
        for line in requirements.table(self.judged, self.evidence):
            write(line)
        without = [id_ for id_ in KNOWN if id_ not in self.evidence]
        write(f"\n{len(self.evidence)} of {len(KNOWN)} have tests; {len(without)} have none yet:")
        write("  " + " ".join(without))
        for complaint in self.complaints:
            write(f"error: {complaint}", red=True)
