"""A damaged file searched again in the bytes that its parity rebuilds. An async shell."""

from __future__ import annotations

from resilient_pq.format.footer import PARITY_SHARE_KEY
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.report import Damage, Finding


async def find_parity(known: Reconstruction, *, only_ended: bool = False) -> HealedStore | None:
    """A file through its parity, inside it or beside it; None without any.

    With `only_ended` nothing is read but the end of a file whose last parity group is not there.
    """
    source, contents, footer = known.source.origin, known.contents, known.torn_footer
    named = contents is None or PARITY_SHARE_KEY in contents.key_value
    inside = named or (footer is not None and not footer.complete)  # its keys stand at its end: they may be lost
    return await HealedStore.find(source.store, source.info, inside=inside, thorough=named and not only_ended)


async def read_through_parity(known: Reconstruction, *, only_ended: bool = False) -> Reconstruction | None:
    """What is known of a file when its damaged bytes are rebuilt; None where no parity rebuilds any."""
    view = await find_parity(known, only_ended=only_ended)
    if view is None or (only_ended and view.file.last_place is None) or not view.rebuilds(await view.examine()):
        return None
    return await read_rebuilt(known, view)


async def read_rebuilt(known: Reconstruction, view: HealedStore) -> Reconstruction:
    """What is known of a file in the bytes that its examined parity rebuilds."""
    rebuilt = await known.source.origin.rebuilt_by(view)
    if (decrypt := known.source.decrypt) is not None:
        rebuilt = await decrypt(rebuilt)
    found = await reconstruct(rebuilt, known.given, known.siblings)
    damaged = view.file.num_damaged
    message = f"damaged blocks: {damaged:,}, of which {damaged - view.file.num_not_rebuilt:,} are rebuilt from parity"
    return found.with_findings(Finding(Damage.CORRUPT, message, costs_rows=False))
