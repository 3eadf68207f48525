"""`rpq protect`, `rpq repair` and `rpq scrub`: files that are kept as they were."""

from __future__ import annotations

from resilient_pq.cli.parity import protect_verb, repair_verb, scrub_verb

VERBS = (protect_verb, repair_verb, scrub_verb)
