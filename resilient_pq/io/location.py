"""How a location may be shown, and what leads to it. Pure.

A URL may hold a user and a password, and a query that is a signature: whoever has the text has the data. So a location
has two forms. Requests are sent to its **address**; everything else (errors, reports, tables, journals, commands to run
next, logs) gets its **display form**, without the user, and with a short hash where a query was:
``https://host/day.parquet?~5f2c9a01``. Two presigned URLs of one object stay two. The hash cannot be turned back.

Every store makes both: `ReadStore.address_of` and `ReadStore.url_of`. What libraries say goes through `scrubbed`.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_SCHEME: Final = re.compile(r"[A-Za-z][\w+.\-]*", re.ASCII)
_LINK: Final = re.compile(r"::(?=[A-Za-z][\w+.-]*(?:://|::))", re.ASCII)  # of a chain; a password may have colons, too
#: Where what follows a question mark is no part of a name.
_WEB: Final = frozenset({"http", "https", "webdav", "webdavs", "dav", "davs"})
#: Where names are taken as they stand, question marks included.
_WHOLE_NAMES: Final = frozenset({"s3", "s3a", "file", "local", "memory"})
#: Where what stands before an @ is a container.
_CONTAINERS: Final = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
_WEB_QUERY: Final = re.compile(r"[?#]")
_QUERY: Final = re.compile(r"\?[^/?#=\s]+=")
#: Stands for a query, and is never one: a display form can be told from a URL, and is that of itself.
_HASHED: Final = re.compile(r"\?~[0-9a-f]{8}")
_URL_IN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s'\"<>]+")
_USER_IN_TEXT: Final = re.compile(r"(?:(?<![\w/])|(?<=[A-Za-z]:/)|(?<=:///))[^\s'\"<>/:@=]+:[^\s'\"<>/@]+@(?=[\w\[])")
#: A user and a password before a host, where a scheme is missing or mistyped; a drive of Windows is none.
_MISTYPED: Final = re.compile(
    r"(?![A-Za-z]:[\\/])(?P<scheme>[A-Za-z][\w+.\-]+(?::/?|//?))?"
    r"[^/:@\s]+:(?:[^/@]|(?<!/)/(?!/))*@(?P<host>[\w.\-\[\]:]+)(?=/|$)",
    re.ASCII,
)
_QUERY_IN_TEXT: Final = re.compile(r"\?[^/?#=\s'\"<>]+=[^\s'\"<>]*")


class Address(str):
    """A URL that requests are sent to, or a key that is one: a string whose `repr` is its display form."""

    # So what holds one (options, pinned versions, tasks of a cluster) can be printed. Whoever formats the string itself
    # has the whole URL.

    __slots__ = ()

    def __repr__(self) -> str:
        """The display form, quoted."""
        return repr(shown(self))


def shown(url: str) -> str:
    """The display form of a URL, or of a chain of them; a path is its own."""
    return "::".join(map(_link_shown, _LINK.split(url)))


def has_user(url: str) -> bool:
    """Whether the display form of a URL lacks a user, or a user and a password."""
    return not url.startswith(without_query(shown(url)))


def mistyped(path: str) -> str | None:
    """Of a path that begins like a URL with a user and a password: the folder that this would be; None of others."""
    # ``http:/me:secret@host/day.parquet``, ``me:secret@host/day.parquet``.
    found = _MISTYPED.match(path)
    return None if found is None or (found["scheme"] is None and found.end() == len(path)) else found[0]


def without_query(url: str) -> str:
    """A display form without the hash that stands for a query: what the name of the object ends with."""
    found = _HASHED.search(url)
    return url if found is None or found.end() != len(url) else url[: found.start()]


def is_web(url: str) -> bool:
    """Whether a URL, or the last of a chain, is one of a web server: that can only be read."""
    return _LINK.split(url)[-1].partition("://")[0].lower() in ("http", "https") and "://" in url


def is_shown(url: str) -> bool:
    """Whether something is the display form of a URL that had a query: it leads nowhere."""
    return _HASHED.search(url) is not None and shown(url) == url and "://" in url


def fingerprint(address: str) -> str:
    """What stands for an address where it is remembered: 32 hexadecimal digits, others for every other one."""
    return _hash(address, 16)


def scrubbed(text: str) -> str:
    """A message of a library or a server, with the display forms of the URLs in it."""
    text = _URL_IN_TEXT.sub(lambda found: shown(found[0]), text)
    text = _USER_IN_TEXT.sub("", text)
    return _QUERY_IN_TEXT.sub(lambda found: f"?~{_hash(found[0], 4)}", text)


def cause_to_show(error: BaseException) -> BaseException | None:
    """An error of a library as the cause of one of ours; None where its chain holds a URL with secrets."""
    # Tracebacks print every error of a chain, and some reporters of errors their `repr`.
    chain = _chain(error)
    texts = [text for each in chain for text in (str(each), repr(each))]
    # Answers of aiohttp's come with the request that was sent, headers and all.
    told = any(hasattr(each, "request_info") for each in chain) or any(scrubbed(text) != text for text in texts)
    return None if told else error


def let_go(error: BaseException) -> None:
    """Have every error of a chain that was raised `from None` forget what it came from."""
    # Tracebacks pass it over, but what pickles errors, or sends them somewhere, may go on to it.
    for each in _chain(error):
        if each.__suppress_context__ and each.__cause__ is None:
            each.__context__ = None


def _chain(error: BaseException) -> list[BaseException]:
    """An error and all that it came from, each once."""
    chain, waiting = dict[int, BaseException](), [error]
    while waiting:
        each = waiting.pop()
        if id(each) not in chain:
            chain[id(each)] = each
            waiting += [found for found in (each.__cause__, each.__context__) if found is not None]
    return list(chain.values())


def _link_shown(link: str) -> str:
    scheme, found, rest = link.partition("://")
    if not found or _SCHEME.fullmatch(scheme) is None:
        return link if mistyped(link) is None else _MISTYPED.sub(r"\g<scheme>\g<host>", link, count=1)
    kind = scheme.lower()
    if kind not in _WHOLE_NAMES and rest.startswith("/") and mistyped(named := rest.lstrip("/")):
        rest = "/" * (len(rest) - len(named)) + _without_user(kind, named)
    rest = _without_user(kind, rest)
    query = None if kind in _WHOLE_NAMES else (_WEB_QUERY if kind in _WEB else _QUERY).search(rest)
    if query is None or _HASHED.fullmatch(rest, query.start()):
        return f"{scheme}://{rest}"
    return f"{scheme}://{rest[: query.start()]}?~{_hash(rest[query.start() :], 4)}"


def _without_user(kind: str, rest: str) -> str:
    """What follows the ``://`` of a URL of some scheme, without a user and a password."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, found, _ = authority.rpartition("@")
    if kind == "github" or (kind in _CONTAINERS and ":" not in user):
        return rest  # github://organization:repository@commit/
    if found:
        return rest[len(user) + 1 :]
    _, colon, port = authority.rpartition(":")
    if colon and port and not port.isdecimal() and not authority.endswith("]") and not authority.startswith("arn:"):
        return rest.rpartition("@")[2]  # a slash within a password that should have been quoted
    return rest


def _hash(text: str, num_bytes: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=num_bytes).hexdigest()
