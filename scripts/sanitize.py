"""The compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer: ``python scripts/sanitize.py``.

Builds them with both into a copy of the package, runs the tests of the kernels on that, then reads, checks and salvages
damaged files and, where there are any, those of a folder of others' (``--corpus``). The first access out of bounds, or
anything else that C leaves undefined, ends it with status 1. Needs gcc with libasan, and what the tests need.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
KERNELS = Path("resilient_pq", "format", "kernels")
#: What is found goes to files of this name: pytest would swallow it.
LOG = "found"
#: Not what was built is tested here, but which of two modules is chosen.
NOT_THESE = ("--deselect", "tests/kernels/test_kernels_choice.py")


def instrumented(folder: Path) -> None:
    """A copy of the package in `folder`, with kernels that watch what they do."""
    shutil.copytree(
        CHECKOUT / "resilient_pq", folder / "resilient_pq", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    kernels = folder / KERNELS
    module = ".".join((*KERNELS.parts, "_native"))
    translate = [sys.executable, "-m", "cython", "-3", "--module-name", module, "_native.pyx", "-o", "_native.c"]
    subprocess.run(translate, cwd=kernels, check=True)
    compiler = shlex.split(sysconfig.get_config_var("CC") or "gcc")
    flags = "-O1 -g -fno-omit-frame-pointer -fPIC -shared -w -fwrapv"
    watched = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
    made = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(
        [*compiler, *flags.split(), *watched.split(), include, "-I.", "_native.c", "-o", made],
        cwd=kernels,
        check=True,
    )


def environment(folder: Path) -> dict[str, str]:
    """What a process needs that loads them: the sanitizer first of all, and memory that Python does not pool."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "gcc")
    # The C++ library as well: else the sanitizer ends a process at the first exception that another library throws.
    found = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    if not os.path.isabs(found[0]):
        raise SystemExit("gcc has no libasan here")
    return os.environ | {
        "LD_PRELOAD": " ".join(filter(os.path.isabs, found)),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={folder / LOG}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder / LOG}",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder),
        "PYTHONSAFEPATH": "1",  # else the package of the working directory would come first, which is not built so
        "PYTHONDONTWRITEBYTECODE": "1",
        "RESILIENT_PQ_KERNELS": "baseline",
        "RPQ_ALLOW_CHECKOUT": "1",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--corpus", type=Path, help="a folder of Parquet files to read as well")
    parser.add_argument("--seconds", type=float, default=60, help="how long files are damaged and read")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        instrumented(folder)
        watched = environment(folder)
        print(f"built in {time.monotonic() - started:.0f} s", flush=True)
        tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kernels", *NOT_THESE]
        tests += ["tests/arrow/test_flat_columns.py", "tests/properties/test_flat_rows_write_the_same.py"]
        tests += ["tests/arrow/test_arrow_many_columns.py", "tests/writer/test_writer_mixed_columns.py"]
        tests += ["tests/arrow/test_shared_streams.py"]
        tests += ["-k", "not _native_avx2"]  # of the same source, and not built here
        feed = [sys.executable, str(CHECKOUT / "scripts" / "sanitize_feed.py"), "--seed", str(arguments.seed)]
        feed += ["--seconds", str(arguments.seconds)]
        if arguments.corpus is not None:
            feed += ["--corpus", str(arguments.corpus)]
        where = "from resilient_pq.format.kernels import _native; print(_native.__file__)"
        loaded = subprocess.run(
            [sys.executable, "-c", where], env=watched, cwd=CHECKOUT, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(loaded).resolve().is_relative_to(folder.resolve()):
            raise SystemExit(f"the kernels that would be run are others: {loaded}")
        for command in (tests, feed):
            status = subprocess.run(command, cwd=CHECKOUT, env=watched, check=False).returncode
            if status:
                for log in folder.glob(f"{LOG}.*"):
                    print(log.read_text(errors="replace"))
                return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
