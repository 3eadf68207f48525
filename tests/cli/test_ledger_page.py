"""The page of a ledger: what is in it, and how it behaves in a browser."""

from __future__ import annotations

import html.parser
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ledger_check import check_ledger

from resilient_pq.cli import recover_verb
from resilient_pq.errors import NotFoundError, Where
from resilient_pq.recovery.ledger.html_page import ledger_page, save_html
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Ledger, LedgerSource, Region, RowsFate
from resilient_pq.recovery.report import Damage, Finding, Kept, Outcome, Report

HOSTILE = [
    "</script><script>document.title='had'</script>",
    "<img src=x onerror=\"document.title='had'\">",
    "\"' onmouseover='document.title=1",
    "&lt;b&gt;",
    "bell\x07 null\x00 escape\x1b[31m",
    "\u202egnp.exe",
    "\u05e9\u05dc\u05d5\u05dd",
    "lone\ud800surrogate",
    "two\nlines",
    "",
    "x" * 5000,
    "-->]]><!--",
]


def _report(ledger: Ledger, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "verb": "recover",
        "url": ledger.sources[0].url,
        "outcome": Outcome.PARTIAL,
        "num_rows": ledger.rows_kept,
        "next": (("rpq", "check", "saved file.parquet"),),
        "kept": Kept("saved file.parquet", ledger.rows_kept, 1000, ledger.rows_lost, ledger=ledger),
    }
    return Report(**{**values, **changes})


def _page(ledger: Ledger, **changes: Any) -> str:
    return ledger_page(ledger, _report(ledger, **changes))


class Parsed(html.parser.HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def test_what_is_on_the_page(sample_ledgers: Any) -> None:
    finding = Finding(Damage.TORN, "the file ends within row group 11", Where(offset=5))
    page = _page(sample_ledgers.damaged(), findings=(finding,), schema="message m {\n  required int64 event_id;\n}")
    text = " ".join(Parsed(page).text.split())
    for words in (
        "Recovery of 2026-11-20.parquet",
        "16,000 of 24,000 rows kept, 8,000 lost.",
        "rpq check 'saved file.parquet'",
        "checkpoint at byte 481,680: 6,000 rows before it",
        "lost: its values are lost, and its rows with them",
        "8,000 to 9,000",
        "row group 4, note, pages 2 to 3",
        "mended (header-copy)",
        "repaired (bit-repair)",
        "not there; it should begin at 1,816,625",
        "the file ends within row group 11",
        "required int64 event_id;",
        "s3://lake/events/2026-11-20.parquet",
        '"8c1f0a"',
    ):
        assert words in text
    titles = [element["title"] for tag, element in Parsed(page).elements if tag == "button"]
    assert len(titles) == 12 * (8 * 4 + 1)
    (lost,) = [title for title in titles if title and title.startswith("Row group 4, note, page 2\n")]
    assert lost.split("\n")[1:] == [
        "lost: its values are lost, and its rows with them",
        "Reason: its checksum does not hold: 0x1f2e3d4c is stored, the bytes have 0x00000000",
        "Bytes: 750,886 to 776,921 (25.4 KiB)",
        "Rows: 9,000 to 9,500 (500, 0 kept)",
        "Found by: row-group-record",
    ]


def test_it_stands_alone_and_is_the_same_every_time(sample_ledgers: Any) -> None:
    page = _page(sample_ledgers.damaged())
    assert page == _page(sample_ledgers.damaged())
    parsed = Parsed(page)
    assert not parsed.open
    assert not {tag for tag, _ in parsed.elements} & {"link", "img", "iframe", "object", "base", "form"}
    for _, attributes in parsed.elements:
        assert "src" not in attributes and "style" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\(|@import|fetch|XMLHttp", page)
    assert not re.search(r"\d\d:\d\d", parsed.text)
    ledger = sample_ledgers.damaged()
    made = ledger_page(ledger, _report(ledger), made=datetime(2026, 11, 21, 8, 5, tzinfo=UTC))
    assert "2026-11-21 08:05:00+00:00" in made


def test_every_link_leads_somewhere(sample_ledgers: Any) -> None:
    wide = sample_ledgers.made_up([f"c{i}" for i in range(200)], 20, 3, lost=90, seed=3)
    for ledger in (sample_ledgers.damaged(), sample_ledgers.damaged("null"), wide):
        elements = Parsed(_page(ledger)).elements
        identifiers = [attributes["id"] for _, attributes in elements if "id" in attributes]
        assert len(identifiers) == len(set(identifiers))
        links = [attributes["href"] or "" for tag, attributes in elements if tag == "a"]
        assert links
        assert {link[1:] for link in links} <= set(identifiers)


def test_a_large_file_is_drawn_smaller(sample_ledgers: Any) -> None:
    ledger = sample_ledgers.made_up([f"column {i}" for i in range(200)], 70, 2, lost=500, seed=4)
    page = _page(ledger)
    assert len(page) < 4_000_000
    assert "Drawn smaller than it is" in page
    assert "200 columns" in page
    parsed = Parsed(page)
    assert sum(tag == "button" for tag, _ in parsed.elements) <= 8_000
    assert "more, which --json lists" in parsed.text
    many = sample_ledgers.made_up(["a", "b"], 2, 5000, lost=1, seed=4)
    assert len(_page(many)) < 200_000


def test_hostile_words_are_words(sample_ledgers: Any) -> None:
    ledger = sample_ledgers.made_up(HOSTILE, 2, 2, lost=9, seed=5, url=HOSTILE[0])
    page = _page(ledger, url=HOSTILE[1], next=(("rpq", "check", HOSTILE[2]),), schema=HOSTILE[0])
    page.encode()
    parsed = Parsed(page)
    assert not parsed.open
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("script") == 1 and "img" not in tags and "b" not in tags
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert "</script><script>document.title='had'</script>" in parsed.text
    assert "&lt;b&gt;" in parsed.text
    assert r"\u202egnp.exe" in parsed.text
    assert "x" * 301 not in page


def test_a_ledger_of_nothing(sample_ledgers: Any) -> None:
    region = Region(0, 0, 9, ByteUse.LOST, "unknown", reason="no Parquet")
    lost = RowsFate(None, None, None, False, reason="nothing is known of them")
    ledger = Ledger((LedgerSource("f", 9),), (), (), (region,), (lost,))
    assert check_ledger(ledger) == []
    page = _page(ledger, outcome=Outcome.NOTHING, kept=Kept(None, 0, 0, None, ledger=ledger), next=())
    text = Parsed(page).text
    assert "0 rows kept, and an unknown number of rows lost." in text
    assert "The file as a map" not in text
    empty = Ledger((LedgerSource("f", 0),), (), (), (), ())
    assert "There were no rows." in Parsed(_page(empty)).text


def test_pages_of_several_inputs_and_chunks_that_were_not_read(sample_ledgers: Any) -> None:
    whole = sample_ledgers.made_up(["a", "b"], 1, 2)
    first, second, *others = whole.regions
    copied = replace(first, mended="other-copy", reason="its checksum does not hold")
    chunk = replace(
        others[0], end=others[1].end, what="chunk", page=None, first_row=0, num_rows=20, rows_kept=20,
        confidence=Confidence.UNREAD,
    )  # fmt: skip
    copies = tuple(replace(region, source=1) for region in whole.regions)
    ledger = replace(
        whole, sources=(*whole.sources, LedgerSource("copy.parquet", 400)), regions=(copied, second, chunk, *copies)
    )
    titles = [element["title"] or "" for tag, element in Parsed(_page(ledger)).elements if tag == "button"]
    assert [title.split("\n")[:2] for title in titles] == [
        ["Row group 0, a, page 0", "mended (other-copy): put together of more than one place, and as it was written"],
        ["Row group 0, a, page 1", "whole: as it was written"],
        ["Row group 0, b, chunk", "unread: copied within the store, not read"],
    ]
    assert "source 1: copy.parquet" in Parsed(_page(ledger)).text


def test_several_sources_have_a_bar_each(sample_ledgers: Any) -> None:
    region = Region(0, 0, 9, ByteUse.DEAD, "padding")
    ledger = Ledger(
        (LedgerSource("one", 9), LedgerSource("two", 9)), (), (), (region, Region(1, 0, 9, ByteUse.DEAD, "padding")), ()
    )
    page = _page(ledger)
    assert page.count('class="bar"') == 2
    assert "source 1: two" in Parsed(page).text


# -- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def show(browser_page: Any, tmp_path: Path) -> Any:
    """Opens the page of a ledger, and holds that it neither complains nor asks for anything."""

    async def opened(ledger: Ledger, **how: Any) -> Any:
        path = tmp_path / "ledger.html"
        path.write_text(_page(ledger), encoding="utf-8")
        await browser_page.open(path, **how)
        assert browser_page.logged == []
        assert {url.partition("#")[0] for url in browser_page.requests} == {path.as_uri()}
        return browser_page

    return opened


TIP = "document.getElementById('tip')"


async def test_it_tells_what_is_pointed_at(show: Any, sample_ledgers: Any) -> None:
    page = await show(sample_ledgers.damaged())
    assert await page.evaluate(f"{TIP}.hidden")
    await page.point("#g4-c6-p2")
    told = await page.evaluate(f"{TIP}.innerText")
    assert told.startswith("Row group 4, note, page 2\nlost: ")
    assert "Rows: 9,000 to 9,500 (500, 0 kept)" in told
    inside = f"(() => {{ const at = {TIP}.getBoundingClientRect(); return at.left >= 0 && at.right <= innerWidth; }})()"
    assert await page.evaluate(inside)
    await page.point("h1")
    assert await page.evaluate(f"{TIP}.hidden")
    assert page.logged == []


async def test_it_can_be_walked_through_with_keys(show: Any, sample_ledgers: Any) -> None:
    page = await show(sample_ledgers.damaged())
    focused = "document.activeElement.id"
    assert await page.evaluate("document.querySelectorAll('.map .p[tabindex=\"0\"]').length") == 1
    await page.evaluate("document.querySelector('.map .p').focus()")
    assert await page.evaluate(focused) == "g0-c0-p0"
    for key, expected in [
        ("ArrowRight", "g0-c0-p1"),
        ("ArrowDown", "g1-c0-p1"),
        ("End", "g1-c7-p3"),
        ("ArrowRight", "g1-c7-p3"),
        ("Home", "g1-c0-p0"),
        ("ArrowUp", "g0-c0-p0"),
        ("ArrowUp", "g0-c0-p0"),
    ]:
        await page.press(key)
        assert await page.evaluate(focused) == expected
    assert (await page.evaluate(f"{TIP}.innerText")).startswith("Row group 0, event_id, page 0\nwhole: ")
    await page.press("Escape")
    assert await page.evaluate(f"{TIP}.hidden")


async def test_a_link_leads_to_the_page_on_the_map(show: Any, sample_ledgers: Any) -> None:
    page = await show(sample_ledgers.damaged(), fragment="#g8-c5-p3")
    assert (await page.evaluate(f"{TIP}.innerText")).startswith("Row group 8, quantity, page 3\nrepaired")
    await page.evaluate(
        "new Promise((done) => { document.querySelector('a[href=\"#g2-c4-p1\"]').click();"
        " requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))); })"
    )
    assert (await page.evaluate(f"{TIP}.innerText")).startswith("Row group 2, price, page 1\nmended")


async def test_hostile_words_do_nothing(show: Any, sample_ledgers: Any) -> None:
    page = await show(sample_ledgers.made_up(HOSTILE, 2, 2, lost=9, seed=5, url="\u202e</title>.parquet"))
    for column in range(len(HOSTILE)):
        await page.point(f"#g1-c{column}-p0")
        assert not await page.evaluate(f"{TIP}.hidden")
    assert await page.evaluate("document.title") == "Recovery of title>.parquet"
    assert await page.evaluate("document.querySelectorAll('script, img').length") == 1
    assert page.logged == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", ["damaged", "wide"])
async def test_it_fits_the_screen(show: Any, sample_ledgers: Any, width: int, which: str) -> None:
    wide = sample_ledgers.made_up([f"measurement_{i:04}" for i in range(200)], 40, 3, lost=300, seed=1)
    page = await show(sample_ledgers.damaged("null") if which == "damaged" else wide, width=width)
    assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_without_scripts_it_still_tells(show: Any, sample_ledgers: Any) -> None:
    page = await show(sample_ledgers.damaged(), scripts=False)
    title = await page.evaluate("document.getElementById('g4-c6-p2').title")
    assert title.startswith("Row group 4, note, page 2")


#: The contrast of an element's text against what is behind it, as WCAG 2 counts it; of patterns, the darkest colour
#: and the lightest.
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => {
    const [r, g, b] = rgb(colour).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, two) => {
    const [low, high] = [light(one), light(two)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue('--' + name).trim();
  const states = ['whole', 'unread', 'mended', 'repaired', 'dropped', 'nulled', 'lost'];
  return Object.fromEntries([
    ['text', ratio(colour('text'), colour('ground'))],
    ['quiet', ratio(colour('quiet'), colour('ground'))],
    ['link', ratio(colour('link'), colour('ground'))],
    ...states.map((state) => [state, ratio(colour('on-' + state), colour(state))]),
  ]);
})()
"""


@pytest.mark.parametrize("dark", [False, True])
async def test_words_and_letters_can_be_read(show: Any, sample_ledgers: Any, dark: bool) -> None:
    page = await show(sample_ledgers.damaged(), dark=dark)
    contrasts = await page.evaluate(CONTRAST)
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 24, 27)" if dark else "rgb(255, 255, 255)")


async def test_on_paper_there_is_no_tip_and_nothing_is_cut_off(show: Any, sample_ledgers: Any) -> None:
    wide = sample_ledgers.made_up([f"measurement_{i:04}" for i in range(200)], 40, 3, lost=300, seed=1)
    for ledger in (sample_ledgers.damaged(), wide):
        page = await show(ledger, media="print", width=800, fragment="#g4-c6-p2")
        assert await page.evaluate(f"getComputedStyle({TIP}).display") == "none"
        assert await page.evaluate("document.documentElement.scrollWidth") == 800


# -- as a file -----------------------------------------------------------------------------------


async def test_the_page_as_a_file(sample_ledgers: Any, tmp_path: Path) -> None:
    ledger = sample_ledgers.damaged()
    path = tmp_path / "page.html"
    path.write_text("an older one, " * 100_000)
    assert await save_html(str(path), _report(ledger))
    assert path.read_bytes() == _page(ledger).encode()
    without = tmp_path / "none.html"
    assert not await save_html(str(without), _report(ledger, kept=None))
    assert not without.exists()
    with pytest.raises(NotFoundError):
        await save_html(str(tmp_path / "no" / "page.html"), _report(ledger))


def test_the_page_never_replaces_what_it_tells_of(rpq_run: Any, torn: Path, tmp_path: Path) -> None:
    before = torn.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(torn)
    saved = tmp_path / "saved.parquet"
    for page in (torn, link, saved, tmp_path / "no" / "page.html"):
        assert rpq_run("recover", torn, saved, "--html", page).code == 2
        assert not saved.exists()
    assert torn.read_bytes() == before


def test_a_command_that_is_asked_for_a_page(
    rpq_run: Any, sample_ledgers: Any, torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = sample_ledgers.damaged()

    async def recovered(*_: object, **__: object) -> Report:
        return _report(ledger)

    monkeypatch.setattr(recover_verb.rpq, "recover", recovered)
    path = tmp_path / "page.html"
    ended = rpq_run("recover", torn, tmp_path / "saved.parquet", "--html", path)
    assert ended.code == 1
    assert f"page        the file as a map: {path}" in ended.err
    assert "16,000 of 24,000 rows kept" in path.read_text(encoding="utf-8")
    assert "\nrow group " in ended.out and "LLLL" in ended.out
