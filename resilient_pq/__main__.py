"""``python -m resilient_pq``: the same as `rpq`."""

from __future__ import annotations

import sys

from resilient_pq_command import main

sys.exit(main())
