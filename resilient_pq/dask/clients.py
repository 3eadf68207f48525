"""Which cluster computes: the caller's, or threads of this process for as long as a call takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from distributed import Client, LocalCluster, default_client


@contextmanager
def client_of(client: Client | None) -> Iterator[Client]:
    """The client that is given; else that of this thread; else one to a cluster in this process, closed at the end."""
    with ExitStack() as closing:
        if client is None:
            try:
                client = default_client()
            except ValueError:
                cluster = LocalCluster(processes=False, n_workers=1, dashboard_address="127.0.0.1:0")
                client = closing.enter_context(Client(closing.enter_context(cluster), set_as_default=False))
        # Waiting for futures asks for the client of this thread, whoever made them.
        closing.enter_context(client.as_current())
        yield client
