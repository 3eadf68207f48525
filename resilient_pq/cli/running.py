"""Running a verb: the options that every verb has, and its exit code."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints

import typer

from resilient_pq.bulk.file_result import exit_code_of
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.given_keys import ENCRYPTING, OPENING, SEALING, WITH_KEYS, given_keys
from resilient_pq.cli.interrupts import InterruptedVerbError, Interrupts
from resilient_pq.cli.output.output_streams import OutputClosedError
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.shared_options import AsJson, EndpointUrl, RetryFor, Storage, StorageOptions, storage
from resilient_pq.errors import OutOfMemoryError, ResilientPQError

#: The work of a verb: it prints to the output, and returns the exit code.
Work = Callable[[Output], Coroutine[Any, Any, int]]
#: The options of every verb, behind its own.
_SHARED = {
    "endpoint_url": (EndpointUrl, None),
    "storage_option": (StorageOptions, None),
    "retry_for": (RetryFor, None),
    "as_json": (AsJson, False),
}


def verb(
    name: str,
    sound: str,
    damage: str | None,
    *examples: str,
    nothing: str | None = None,
    about: Callable[..., Sequence[str]] | None = None,
) -> Callable[[Callable[..., Coroutine[Any, Any, int]]], Callable[..., int]]:
    """Make a command of an async function of an `Output` and options; its help ends as `epilog` says.

    `about` gives the URLs in the options, where they are not the first.
    """

    def add_options(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., int]:
        types = get_type_hints(function, include_extras=True)
        _, *own = signature(function).parameters.values()
        parameters = [each.replace(annotation=types[each.name]) for each in own]
        keys = {**(OPENING if name in WITH_KEYS else {}), **(SEALING if name in ENCRYPTING else {})}
        for option, (kind, default) in {**keys, **_SHARED}.items():
            parameters.append(Parameter(option, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind))

        @wraps(function)
        def run(*, endpoint_url: Any, storage_option: Any, retry_for: Any, as_json: bool, **options: Any) -> int:
            reached = storage(endpoint_url, storage_option, retry_for)
            if keys:
                reached = replace(reached, keys=given_keys(*map(options.pop, keys)))
            urls = options[own[0].name] if about is None else about(options)
            urls = [urls] if isinstance(urls, str) else urls
            return run_verb(name, lambda output: function(output, **options), urls, as_json=as_json, reached=reached)

        del run.__wrapped__  # inspect would read the signature of the function
        run.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.epilog = epilog(sound, damage, *examples, nothing=nothing)  # type: ignore[attr-defined]
        return run

    return add_options


def run_verb(name: str, work: Work, urls: Sequence[str] = (), *, as_json: bool, reached: Storage | None = None) -> int:
    """Run the work of a verb, which SIGINT, SIGTERM and SIGHUP cancel; a second signal ends the process."""
    output = Output(name, as_json=as_json, urls=urls, reached=reached)
    if output.reached.keys.note is not None:
        output.note(output.reached.keys.note)
    interrupts = Interrupts(waiting=output.ending, leaving=output.leaving)
    with interrupts:
        code = _outcome(output, work, interrupts)
    return code if interrupts.exit_code is None or code == ExitCode.SOUND else interrupts.exit_code


def _outcome(output: Output, work: Work, interrupts: Interrupts) -> int:
    try:
        with _notices(output):
            return asyncio.run(interrupts.run(work(output)))
    except typer.BadParameter:
        raise
    except InterruptedVerbError as interrupt:
        output.interrupted(interrupt.notes)
        return ExitCode.INTERRUPTED
    except OutputClosedError:
        return ExitCode.SOUND  # the reader of stdout has seen enough
    except ResilientPQError as error:
        output.failed(error)
        return exit_code_of(error)
    except MemoryError as error:  # here, or of a whole run
        output.failed(OutOfMemoryError(str(error) or "there is not enough memory"))
        return ExitCode.USAGE
    except Exception as error:
        output.crashed(error)
        return ExitCode.INTERNAL


@contextmanager
def _notices(output: Output) -> Iterator[None]:
    """Turn warnings into notes on stderr, and drop the log, whose messages are in the errors as well."""
    quiet = logging.NullHandler()
    log = logging.getLogger("resilient_pq")
    log.addHandler(quiet)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        output.note(str(message))

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(quiet)
