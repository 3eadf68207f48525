"""What writers are known to have got wrong, by the name that they leave in their files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """How a writer's files differ from the specification.

    Attributes:
        zero_crc_is_none: It computes no page CRC32, and leaves 0 for it.
        lsb_levels: It packs BIT_PACKED levels from the least significant bit on, not from the most significant.
    """

    zero_crc_is_none: bool = False
    lsb_levels: bool = False

    @classmethod
    def of(cls, created_by: str | None) -> Quirks:
        """The quirks of a file by its footer's `created_by`."""
        name = (created_by or "").lower()
        return cls(
            zero_crc_is_none=name.startswith("parquet.jl"),
            lsb_levels=name.startswith("impala"),  # IMPALA-3006
        )


NO_QUIRKS = Quirks()
