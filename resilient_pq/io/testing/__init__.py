"""For tests of stores and of what stands on them: a contract any store can be held to, and stores that tell
or fail.

It needs no test framework to be imported; the contract's tests are coroutines, for pytest-asyncio or anything
alike.
"""

from __future__ import annotations

from resilient_pq.io.testing.contract import MultipartContract, ReadContract, StoreContract
from resilient_pq.io.testing.wrappers import Call, Fault, FaultyStore, RecordingStore

__all__ = ["Call", "Fault", "FaultyStore", "MultipartContract", "ReadContract", "RecordingStore", "StoreContract"]
