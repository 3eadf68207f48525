"""`rpq protect` and `rpq repair`: sidecars with parity."""

from __future__ import annotations

from resilient_pq.cli.parity import protect_verb, repair_verb

VERBS = (protect_verb, repair_verb)
