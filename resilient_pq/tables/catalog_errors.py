"""What the library of a table raises, as errors of ours: those that may pass are retried, others are final."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    ResilientPQError,
    SchemaError,
    StoreError,
    TransientError,
    Where,
)

#: By the names of classes, so that no library is imported for its errors: what another attempt does not change.
_FINAL: Final[dict[str, type[ResilientPQError]]] = {
    **dict.fromkeys(("UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError"), AccessDeniedError),
    **dict.fromkeys(("OAuthError", "PermissionError"), AccessDeniedError),
    **dict.fromkeys(("NoSuchTableError", "NoSuchNamespaceError", "TableNotFoundError"), NotFoundError),
    **dict.fromkeys(("SchemaMismatchError", "ResolveError", "DeltaProtocolError"), SchemaError),
    **dict.fromkeys(("BadRequestError", "NotInstalledError", "ArgumentError", "NoSuchModuleError"), StoreError),
    **dict.fromkeys(("ValidationException", "NotImplementedError", "AttributeError", "ImportError"), StoreError),
}
#: Characters of what a library says.
_MOST_TEXT: Final = 500
#: Where the library says of an argument that it is wrong; but a garbled answer is of these kinds, too.
_MAY_BE_ANSWERS: Final = (ValueError, TypeError, KeyError)


@contextmanager
def telling(table: str) -> Iterator[None]:
    """Raise what another library raises as an error of ours that names the table."""
    try:
        yield
    except (ResilientPQError, MemoryError):
        raise
    except Exception as error:  # catalogues are reached through any number of libraries
        raise _told(table, error).at(Where(key=table)) from error


def _told(table: str, error: Exception) -> ResilientPQError:
    text = " ".join(str(error).split())[:_MOST_TEXT] or type(error).__name__
    names = {kind.__name__ for kind in type(error).__mro__}
    final = next((kind for name, kind in _FINAL.items() if name in names), None)
    if final is None and isinstance(error, _MAY_BE_ANSWERS) and not isinstance(error, OSError):
        final = StoreError
    if final is not None:
        return final(f"the table refused: {text}")
    return TransientError(f"the table or its catalog did not do it: {text}")
