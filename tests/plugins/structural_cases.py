"""The cases of the structural torture: each is drawn from its seed, and is the same each time.

First records may be destroyed in the files of a family, then one damage of `structural_damage` is done.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from structural_damage import DAMAGES, flipped, written_over
from structural_files import CASES_OF_A_FAMILY, INNER, Family, destroyable, family_of

#: What is lost of a disk at once.
SECTOR = 512


@dataclass(frozen=True)
class Case:
    """A damaged file."""

    seed: int  # What it was drawn from
    family: Family = field(repr=False)  # What it was made of
    damage: str  # The class of the damage
    words: str  # What was done, for people
    data: bytes = field(repr=False)  # The damaged bytes
    versions: tuple[str, ...]  # Whose rows may be there: those of a splice may be either's
    exchanged: bool  # Whether bytes lie in the place of as many others, and all else where it was
    sibling: bool  # Whether the schema of a sibling is given
    policy: str  # `on_damage` of the second recovery; the first is "drop"


def with_records_destroyed(family: Family, rng: random.Random) -> tuple[Family, str]:
    """The family with some records of some kinds destroyed, in each of its files."""
    files, words = {}, []
    kinds = [name for name, _ in destroyable(family.own)]
    chosen = set(rng.sample(kinds, min(len(kinds), rng.choice((1, 1, 2, 3)))))
    one = rng.random() < 0.5
    for version, file in family.files.items():
        data = file.data
        if version == INNER:
            files[version] = file
            continue
        for name, places in destroyable(file):
            if name in chosen:
                for place in [rng.choice(places)] if one else places:
                    if rng.random() < 0.3:
                        data = flipped(data, rng.choice(place), rng)
                    else:
                        data = written_over(data, place, rng)
        files[version] = replace(file, data=data)
    words = ("one " if one else "each ") + ", ".join(sorted(chosen))
    return replace(family, files=files), words


def damaged_again(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A second damage, which knows nothing of the structure."""
    place = range(at := rng.randrange(len(data) // SECTOR) * SECTOR, at + SECTOR)
    match rng.randrange(3):
        case 0:
            return written_over(data, place, rng), f"then written over from {at} to {place.stop}"
        case 1:
            return data[: place.start] + data[place.stop :], f"then {at} to {place.stop} deleted"
        case _:
            at = rng.randrange(len(data))
            return flipped(data, at, rng), f"then a bit at {at}"


def case_of(seed: int) -> Case:
    """The case of a seed: the same file, damaged in the same way, each time."""
    family = family_of(seed // CASES_OF_A_FAMILY)
    rng = random.Random(f"case {seed}")
    names = list(DAMAGES)
    if family.nested and rng.random() < 0.35:
        damage = "inner file"
    elif len(family.own.data) > 100_000 and rng.random() < 0.5:  # searches may take too long
        damage = rng.choice(("text", "no footer", "deleted"))
    else:
        damage = rng.choices(names, [weight for _, weight in DAMAGES.values()])[0]
    words, source = [], family
    if damage == "records" or rng.random() < 0.4:
        source, destroyed = with_records_destroyed(family, rng)
        words.append(f"destroyed: {destroyed}")
    hit = DAMAGES[damage][0](source, rng)
    words.append(hit.words)
    data, exchanged = hit.data, hit.exchanged
    if rng.random() < 0.12 and damage != "cut":
        end = rng.randrange(len(data) // 2, len(data) + 1)
        data = data[:end]
        words.append(f"then cut at {end}")
    policy = rng.choice(("null", "columns"))
    more = random.Random(f"more of case {seed}")
    if more.random() < 0.12 and len(data) > 2 * SECTOR:
        data, what = damaged_again(data, more)
        words.append(what)
    sibling = (not family.ours or damage == "no footer") and rng.random() < 0.6
    return Case(seed, family, damage, "; ".join(words), data, hit.versions, exchanged, sibling, policy)
