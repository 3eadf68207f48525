"""A program that writes rows into a table and is killed at a named step, or at any moment: `python table_crash.py JSON`.

It goes on where it was, as a program does that is started again, and ends when all rows are in the table.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

#: What is killed at; those in parentheses only of Iceberg.
STEPS = (
    "creating", "created", "published", "queued", "footers read", "looked at", "(written)", "committing",
    "committed", "known", "ending", "ended",
)  # fmt: skip


def rows(start: int, end: int) -> dict[str, Any]:
    return {"id": list(range(start, end)), "day": [f"d {each % 2}" for each in range(start, end)]}


def settings(told: dict[str, Any]) -> Any:
    import resilient_pq as rpq

    if told["kind"] == "delta":
        return rpq.DeltaTable(told["folder"])
    catalog = {"type": "sql", "uri": f"sqlite:///{told['database']}", "warehouse": told["folder"]}
    return rpq.IcebergTable("web.events", catalog=catalog)


def write(told: dict[str, Any]) -> None:
    """Go on where the rows were left, to their end."""
    from resilient_pq import sync as rpq

    with rpq.resume_dataset(
        f"{told['folder']}/events",
        replay_from={},
        table=settings(told),
        partition_by=told["partition_by"],
        roll_rows=30,
        storage_options=told["storage_options"],
    ) as writer:
        for start in range(0, told["num_rows"], 20):
            writer.write(rows(start, start + 20))
            if start % 100 == 0:
                writer.checkpoint()


class Killer:
    """Kills this process when a step is reached for the nth time, or after some seconds."""

    def __init__(self, kind: str, step: str | None, nth: int, seconds: float | None) -> None:
        self.kind, self.step, self.left = kind, step, nth
        self.timer = None if seconds is None else threading.Timer(seconds, self.kill)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def reach(self, step: str | None) -> None:
        if step is not None and step.strip("()") == (self.step or "").strip("()"):
            self.left -= 1
            if not self.left:
                self.kill()

    def __enter__(self) -> None:
        from resilient_pq.tables import committer, delta_lake, iceberg

        for table in (iceberg.ConnectedTable, delta_lake.ConnectedDelta):
            self.around(table, "create", "creating", "created")
            self.around(table, "load", None, "looked at")
        self.around(committer.Committer, "publish", "published", "queued")
        self.around(committer, "read_footers", None, "footers read", awaited=True)
        self.around(committer, "commit_files", None, "known")
        self.around(committer.Committer, "finish", "ending", "ended", awaited=True)
        if self.kind == "delta":
            import deltalake

            self.around(deltalake.DeltaTable, "create_write_transaction", "committing", "committed")
        else:
            from pyiceberg.catalog.sql import SqlCatalog

            self.around(SqlCatalog, "_write_metadata", None, "(written)")
            self.around(SqlCatalog, "commit_table", "committing", "committed")
        if self.timer is not None:
            self.timer.start()

    def __exit__(self, *_: object) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def around(self, owner: Any, name: str, before: str | None, after: str | None, *, awaited: bool = False) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            self.reach(before)
            found = call(*arguments, **options)
            self.reach(after)
            return found

        async def waited(*arguments: Any, **options: Any) -> Any:
            self.reach(before)
            found = await call(*arguments, **options)
            self.reach(after)
            return found

        setattr(owner, name, staticmethod(called) if name == "_write_metadata" else waited if awaited else called)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    with Killer(told["kind"], told.get("step"), told.get("nth", 1), told.get("seconds")):
        write(told)
