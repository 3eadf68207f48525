"""The part of `mutate.py` that runs inside pytest: notes which tests reach a line, or runs some tests in an order.

What it does stands in a file of JSON, which the environment variable RPQ_MUTATE names.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

#: What a mutant may take: it may well ask for all the memory there is, or write without an end.
MOST_MEMORY, MOST_WRITTEN = 16 << 30, 2 << 30


def pytest_configure(config: pytest.Config) -> None:
    plan = json.loads(Path(os.environ["RPQ_MUTATE"]).read_text())
    if "map" not in plan:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
        config.pluginmanager.register(Chosen(plan), "mutate-chosen")
    elif hasattr(config, "workerinput"):
        config.pluginmanager.register(Mapping(plan, config.workerinput["workerid"]), "mutate-mapping")


class Mapping:
    """Notes, for each line of the packages, the tests that came by, and how long each test took."""

    def __init__(self, plan: dict[str, Any], worker: str) -> None:
        import coverage  # noqa: PLC0415 (only where it is needed)

        self._package = Path(plan["package"])
        self._to = Path(plan["map"]) / f"{worker}.json"
        sources = [str(self._package / name) for name in plan["packages"]]
        self._coverage = coverage.Coverage(data_file=None, source=sources, config_file=False)
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up; a test that did not pass says nothing of mutants."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        reached = {
            str(Path(file).relative_to(self._package)): {
                line: [context for context in contexts if context]
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        told = {"seconds": self._seconds, "failed": sorted(self._failed), "reached": reached}
        self._to.write_text(json.dumps(told))


class Chosen:
    """Runs the tests that were chosen, in their order, each within a limit, and tells which one failed."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._limits: dict[str, float] = plan["tests"]
        self._to = Path(plan["result"])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = {test: place for place, test in enumerate(self._limits)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        for item in items:
            item.add_marker(pytest.mark.timeout(self._limits[item.nodeid]), append=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            hung = "from pytest-timeout" in report.longreprtext
            self._to.write_text(json.dumps({"by": report.nodeid, "hung": hung}))
