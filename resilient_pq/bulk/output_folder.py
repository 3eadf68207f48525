"""The folder of recovered files, which must not overlap with that of the damaged ones."""

from __future__ import annotations

import os
from dataclasses import dataclass

from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, SUFFIX
from resilient_pq.bulk.scope import Scope
from resilient_pq.errors import RecoveryError, StoreError, Where
from resilient_pq.io import LocalStore, Stores
from resilient_pq.io.location import Address
from resilient_pq.io.resolve import Location
from resilient_pq.recovery.recover_options import RecoverOptions


@dataclass(frozen=True, slots=True)
class Outputs:
    """The folder of the recovered files, and the options of their recoveries."""

    folder: Scope
    options: RecoverOptions


def resolve_folder(dst: Location, stores: Stores) -> Scope:
    """The scope of a folder, whose name is never a pattern."""
    if isinstance(dst, tuple):
        store, key = dst
        store.check_writable(key)
        return Scope(store, f"{key.rstrip('/')}/" if key else "")
    text = os.fspath(dst)
    if not text:
        raise StoreError("an empty path names no folder", hint='the folder that one is in is "."')
    store, key = stores.resolve(f"{text.rstrip('/') or text}/_")
    store.check_writable(key.removesuffix("_"))
    return Scope(store, Address(key.removesuffix("_")))


def refuse_overlap(output: Scope, scope: Scope, *, same_names: bool) -> None:
    """Refuse outputs among or above the inputs: from ``a/b`` to ``a`` the file ``a/b/b/c`` would become ``a/b/c``."""
    if scope.is_one_file:
        return  # it is compared with its own output
    if isinstance(output.store, LocalStore) and isinstance(scope.store, LocalStore):
        here, there = _real_folder(output), _real_folder(scope)
    elif output.store is scope.store or same_names:
        here, there = output.address, scope.address
    else:
        return
    if here.startswith(there):
        raise RecoveryError(
            f"the outputs would lie below {scope.url}, among what is read",
            where=Where(key=output.url),
            hint="name a folder outside of it",
        )
    if there.startswith(here) and _has_folders(scope):
        raise RecoveryError(
            f"the outputs would lie above {scope.url}, and may fall among what is read",
            where=Where(key=output.url),
            hint="name a folder beside it",
        )


def _has_folders(scope: Scope) -> bool:
    """Whether the names of the inputs may contain folders."""
    if scope.pattern is not None:
        return "/" in scope.pattern
    if scope.may_be_file is None:
        return True
    if isinstance(scope.store, LocalStore):
        return os.path.isdir(scope.store.url_of(scope.may_be_file))
    return not scope.may_be_file.endswith((SUFFIX, SUFFIX + PARTIAL_SUFFIX))  # nobody has asked the store yet


def _real_folder(scope: Scope) -> str:
    """The path of a local folder, the same whatever links lead to it."""
    return os.path.join(os.path.realpath(scope.url or os.curdir), "")
