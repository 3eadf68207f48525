"""Credentials that expire while a client lives: looked up again where they came from.

botocore refreshes those that say when they expire. Those of the environment, of a profile or of a credential process do
not always say so, and it reads them once: a program that goes on for longer than they last has to look again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, CredentialRetrievalError

from resilient_pq.errors import CredentialsExpiredError, StoreError
from resilient_pq.io.s3.s3_responses import code_of, status_of

log = logging.getLogger("resilient_pq.io")

#: What stores call credentials that were right once.
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
#: What they call those that were removed since, or never were right.
_UNKNOWN: Final = frozenset({"InvalidToken", "InvalidAccessKeyId"})
_WITHOUT_WORDS: Final = frozenset({400, 401, 403})  # The answer to a HEAD has no body that could say so
#: Seconds in which such an answer does not lead to a look-up again that found nothing new.
_LOOKED_UP_LATELY: Final = 60.0


class Renewal:
    """Changes the credentials of a client for newer ones."""

    def __init__(
        self, signer: Any, look_up: Callable[[], Awaitable[Any]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._signer = signer
        self._look_up = look_up
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looked_up_at = float("-inf")
        self._granted = False

    @property
    def in_use(self) -> Any:
        """The credentials that requests are signed with now."""
        return self._signer._credentials

    def granted(self) -> None:
        """Note that a request was: whatever is refused from now on may be so since credentials expired."""
        self._granted = True

    async def after(
        self, error: StoreError, used: Any, in_words: Callable[[], Awaitable[StoreError | None]]
    ) -> StoreError | None:
        """What to raise for a request that was refused; None where it is to be sent once more, by other credentials."""
        told = _of_credentials(error)
        if told is None and not await self._may_have_expired(error, used):
            return error
        async with self._looking:
            if self.in_use is not used:
                return None
            if await self._renewed(used):
                return None
            told = told or _of_credentials(await in_words())
            if told is None:
                self._looked_up_at = self._clock()
        if told is None or not (self._granted or code_of(told) in _EXPIRED):
            return error
        return _expired(told, error)

    async def _may_have_expired(self, error: StoreError, used: Any) -> bool:
        """Whether credentials that do expire were refused without a word why."""
        code = code_of(error)
        if (code and not code.isdecimal()) or status_of(error) not in _WITHOUT_WORDS:
            return False
        names = await _frozen(used)
        lately = self._clock() - self._looked_up_at < _LOOKED_UP_LATELY
        return names is not None and names[2] is not None and not lately

    async def _renewed(self, used: Any) -> bool:
        """Whether other credentials were found than those that were used; the client has them then."""
        try:
            found = await self._look_up()
        except (BotoCoreError, OSError) as error:
            log.warning("credentials cannot be looked up again: %s", type(error).__name__)
            return False
        if found is None or await _frozen(found) == await _frozen(used):
            return False
        self._signer._credentials = found
        log.info("the credentials had expired, and were looked up again")
        return True


def _of_credentials(error: StoreError | None) -> StoreError | None:
    """The error where it is about the credentials, so that others may be accepted; else None."""
    if error is None or code_of(error) in _EXPIRED | _UNKNOWN:
        return error
    return error if isinstance(error.__cause__, CredentialRetrievalError) else None


def _expired(told: StoreError, error: StoreError) -> CredentialsExpiredError:
    """What to raise for a request that was refused since credentials expired, as the store told it in words."""
    expired = CredentialsExpiredError(
        told.message,
        where=error.where,
        hint="nothing newer was found in the environment, the profile or the credential process",
    )
    expired.status = error.status
    expired.__cause__ = told.__cause__
    return expired


async def _frozen(credentials: Any) -> tuple[str, str, str | None] | None:
    """Access key, secret and token; None where they cannot be had any more."""
    try:
        frozen = await credentials.get_frozen_credentials()
    except (BotoCoreError, AttributeError):
        return None
    return frozen.access_key, frozen.secret_key, frozen.token or None
