"""The five daily commands; CONTRIBUTING.md says what they are for. They run in the environment that is active."""

from __future__ import annotations

import os

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["quick", "lint"]

#: The checkout is tested, not an installed copy.
CHECKOUT = {"RPQ_ALLOW_CHECKOUT": "1"}
DOCUMENT_TESTS = ("tests/test_docs.py", "tests/test_document_links.py", "tests/test_recipes.py")


@nox.session
def setup(session: nox.Session) -> None:
    """Install the package in place, with what tests and checks need, and compile the kernels."""
    session.run("pip", "install", "-e", ".[test,dev]")


@nox.session
def quick(session: nox.Session) -> None:
    """All quick tests."""
    session.run("pytest", "-q", *session.posargs, env=CHECKOUT)


@nox.session
def thorough(session: nox.Session) -> None:
    """A slice of the exhaustive tests, another one for each process that asks."""
    chosen = session.posargs or ["--slice", "0.04", "--slice-seed", str(os.getpid())]
    session.log(f"pytest {' '.join(chosen)}")
    session.run("pytest", "-q", "-m", "thorough", *chosen, env=CHECKOUT)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff and mypy."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", "--quiet", "resilient_pq", "tests", "scripts")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Write docs/cli.md from the help texts, and run the code in all documents."""
    session.run("python", "scripts/cli_docs.py", env=CHECKOUT)
    session.run("pytest", "-q", "-n", "0", *DOCUMENT_TESTS, env=CHECKOUT)
