"""A damaged file searched again in the bytes that its parity rebuilds. An async shell."""

from __future__ import annotations

from resilient_pq.format.footer import PARITY_SHARE_KEY
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.report import Damage, Finding


async def read_through_parity(known: Reconstruction, *, only_ended: bool = False) -> Reconstruction | None:
    """What is known of a file when its damaged bytes are rebuilt; None where no parity rebuilds any.

    With `only_ended` nothing is read but the end of a file whose last parity group is not there.
    """
    source, contents = known.source.origin, known.contents
    inside = contents is None or PARITY_SHARE_KEY in contents.key_value
    view = await HealedStore.find(source.store, source.info, inside=inside, thorough=inside and not only_ended)
    if view is None or (only_ended and view.file.last_place is None) or not await view.rebuild():
        return None
    rebuilt = await source.rebuilt_by(view)
    if (decrypt := known.source.decrypt) is not None:
        rebuilt = await decrypt(rebuilt)
    found = await reconstruct(rebuilt, known.given, known.siblings)
    damaged = view.file.num_damaged
    message = f"damaged blocks: {damaged:,}, of which {damaged - view.file.num_not_rebuilt:,} are rebuilt from parity"
    return found.with_findings(Finding(Damage.CORRUPT, message, costs_rows=False))
