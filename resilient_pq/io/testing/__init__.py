"""For tests of stores: a contract for any store.

It needs no test framework to be imported; the tests of the contract are coroutines, for pytest-asyncio or the like::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            async with MyStore() as store:
                yield store

        @pytest.fixture
        def prefix(self):
            return "bucket/"      # what a key begins with

`ReadContract` is for stores that can only be read, `MultipartContract` for those that take uploads in parts.
"""

from __future__ import annotations

from resilient_pq.io.testing.read_contract import ReadContract
from resilient_pq.io.testing.upload_contract import MultipartContract
from resilient_pq.io.testing.write_contract import StoreContract

__all__ = ["MultipartContract", "ReadContract", "StoreContract"]
