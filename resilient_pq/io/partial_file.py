"""``NAME.partial``: a file that grows, locked by its writer, and becomes ``NAME`` in one step. Blocking calls only."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence
from io import FileIO

from resilient_pq.errors import AlreadyExistsError, NotFoundError, ObjectChangedError, StoreError, Where
from resilient_pq.io.os_errors import explained, from_os_error
from resilient_pq.io.stored_object import file_info, refuse_special
from resilient_pq.shell_commands import in_shell, shell_line

try:
    import fcntl
except ImportError:  # Windows: files are written there without a lock
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".partial"

_FLAGS = os.O_RDWR | getattr(os, "O_BINARY", 0)
# Bytes of a replaced file from which on freeing them takes the system longer than to start a thread.
_LARGE = 1 << 20
HEAD_BYTES = 4  # First bytes of a copy that are written last
# writev takes at most IOV_MAX buffers; 1,024 everywhere that matters.
_MAX_PIECES = 1024
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV})


class PartialFile:
    """An open, locked ``NAME.partial``; every method blocks, and raises a `StoreError` with the path in it."""

    def __init__(self, descriptor: int, path: str, target: str) -> None:
        """Take over an open file; `create` and `resume` are the ways to get one."""
        self._descriptor: int | None = descriptor
        self._head = b""  # of a copy: the first bytes, until what was written behind it is stored
        # Until the name survives a loss of power: it stays the same when the process goes to another folder.
        self._unstored_name: str | None = os.path.abspath(path)
        self.path = path  # Of ``NAME.partial``
        self.target = target  # Of ``NAME``

    @classmethod
    def create(
        cls, target: str, *, overwrite: bool = False, copies: bool = False, permissions: int | None = None
    ) -> PartialFile:
        """Begin ``NAME.partial``, empty and locked; one that `copies` replaces a copy that was not begun with."""
        target = behind_link(target)
        refuse_special(target)
        path = target + SUFFIX
        existed = False
        allowed = 0o666 if permissions is None else 0o600 | (permissions & 0o066)
        try:
            descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, allowed)
        except FileExistsError:
            existed = True
            with explained("cannot open", path):
                descriptor = os.open(path, _FLAGS)
        except OSError as error:
            raise _cannot_create(error, target) from error
        file = cls(descriptor, path, target)
        try:
            with explained("cannot create", path):
                file._lock()
                if existed and file._let_go_of_published():
                    return cls.create(target, overwrite=overwrite, copies=copies, permissions=permissions)
                if existed and not overwrite and not (copies and has_no_head(path)):
                    raise _left_over(path)
                if existed and permissions is not None and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & allowed)
                os.ftruncate(descriptor, 0)
        except StoreError:
            file.release()
            raise
        return file

    @classmethod
    def resume(cls, target: str) -> PartialFile:
        """Take over the ``NAME.partial`` that an earlier writer left, locked; its bytes stay as they are."""
        target = behind_link(target)
        path = target + SUFFIX
        refuse_special(path)
        with explained("cannot open", path):
            descriptor = os.open(path, _FLAGS)
        file = cls(descriptor, path, target)
        try:
            with explained("cannot open", path):
                file._lock()
                if file._let_go_of_published():
                    raise NotFoundError("the file is complete: its writer had only this name left to remove")
                os.lseek(descriptor, 0, os.SEEK_END)
        except StoreError:
            file.release()
            raise
        return file

    def copies(self, head: bytes) -> None:
        """The first bytes are zeros in place of these, which are written when what is there now is stored."""
        self._head = head

    def size(self) -> int:
        """Bytes of the file now."""
        with explained("cannot read", self.path):
            return os.fstat(self.open_descriptor()).st_size

    def truncate(self, size: int) -> None:
        """Cut the file to its first `size` bytes, and make those survive a loss of power."""
        descriptor = self.open_descriptor()
        with explained("cannot cut", self.path):
            if size > os.fstat(descriptor).st_size:
                raise StoreError(f"the file is shorter than {size:,} bytes", where=Where(key=self.path))
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, size, os.SEEK_SET)
        self.sync()

    def append(self, pieces: Sequence[memoryview]) -> None:
        """Write the pieces at the end, all of them."""
        descriptor = self.open_descriptor()
        try:  # instead of `explained`, which takes longer than to write little
            for begin in range(0, len(pieces), _MAX_PIECES):
                _writev_fully(descriptor, list(pieces[begin : begin + _MAX_PIECES]))
        except OSError as error:
            raise from_os_error(error, "cannot write", self.path) from error

    def sync(self) -> None:
        """Make what was written survive a loss of power, under the name that it has now."""
        self._sync_bytes()
        if self._unstored_name is not None:
            with explained("cannot store", self.path):
                sync_folder(self._unstored_name)
            self._unstored_name = None

    def _sync_bytes(self) -> None:
        descriptor = self.open_descriptor()
        with explained("cannot store", self.path):
            os.fsync(descriptor)
            if self._head:
                os.lseek(descriptor, 0, os.SEEK_SET)
                _write_fully(descriptor, memoryview(self._head))
                os.lseek(descriptor, 0, os.SEEK_END)
                os.fsync(descriptor)
                self._head = b""

    def publish(self, *, exclusive: bool, instead: str | None = None) -> os.stat_result:
        """Give the file its name, in place of the version of an ETag if one is given, and let go of it."""
        self._sync_bytes()
        with explained("cannot complete", self.target, hint=f"what was written is whole in {self.path}"):
            if instead is not None:
                refuse_other_version(self.target, os.stat(self.target), instead)
            if os.name == "nt":
                self.release()  # an open file cannot be renamed there
            if exclusive:
                _rename_exclusively(self.path, self.target)
            else:
                refuse_special(self.target)
                _replace(self.path, self.target)
            sync_folder(self.target)
            status = os.stat(self.target)
        self.release()
        return status

    def discard(self) -> None:
        """Remove the file. One that another writer has taken over meanwhile is left alone."""
        if self._descriptor is None:
            return
        with explained("cannot remove", self.path):
            if self._is_mine():
                os.unlink(self.path)
        self.release()

    def release(self) -> None:
        """Close the file and its lock with it; what was written stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self) -> None:
        """Take the lock, or say that a living writer has it."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self.open_descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyExistsError(
                "another writer is writing this file",
                where=Where(key=self.path),
                hint="wait until it has ended, or choose another name",
            ) from None
        except OSError as error:
            # A file system without locks (some network mounts): O_EXCL alone has to do.
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
        if not self._is_mine():
            raise AlreadyExistsError("another writer took this file", where=Where(key=self.path))

    def _let_go_of_published(self) -> bool:
        """Where the writer died with ``NAME`` given and ``NAME.partial`` not yet removed, remove it."""
        # Both are the very same file then, so a byte written to it, or cut off, would be one of the published file.
        try:
            same = os.path.samestat(os.stat(self.target), os.fstat(self.open_descriptor()))
        except OSError:
            return False
        if same:
            os.unlink(self.path)
            self.release()
        return same

    def _is_mine(self) -> bool:
        """Whether the path still leads to the file that is open here."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.open_descriptor()))
        except FileNotFoundError:
            return False

    def open_descriptor(self) -> int:
        """The descriptor of the file, which stands at its end."""
        if self._descriptor is None:
            raise StoreError("the file is closed", where=Where(key=self.path))
        return self._descriptor


def has_no_head(path: str) -> bool:
    """Whether the first bytes of a file are missing: it is a copy behind which nothing was stored, or empty."""
    with explained("cannot read", path), open(path, "rb", buffering=0) as file:
        return not any(file.read(HEAD_BYTES))


def refuse_other_version(path: str, status: os.stat_result, etag: str | None) -> None:
    """Raise where a file is another version than an ETag names."""
    if file_info(path, status).etag != etag:
        raise ObjectChangedError("the file was replaced meanwhile", where=Where(key=path))


def is_held(path: str) -> bool | None:
    """Whether a living writer holds the file; None where the file system or the operating system has no locks."""
    with explained("cannot open", path):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        if fcntl is None:
            return None
        # Where nobody holds it, this does for a moment; that can only disturb one who begins to write it just then.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(descriptor)


def open_private(path: str) -> FileIO:
    """A file to read and to append to, made for its owner alone where it is missing."""
    return open(path, "a+b", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def make_folders(path: str) -> None:
    """Make a folder and those above it, where they are missing, and have their names survive a loss of power."""
    missing: list[str] = []
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
        if folder in missing:
            break  # the root of a drive that is not there
    with explained("cannot create", path):
        os.makedirs(path or ".", exist_ok=True)
        for made in reversed(missing):
            sync_folder(made)


def behind_link(path: str) -> str:
    """What a symbolic link leads to, so that the link stays one; any other path as it is."""
    return os.path.realpath(path) if os.path.islink(path) else path


def _left_over(path: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        "an earlier writer left a partial file",
        where=Where(key=path),
        hint=f"continue it with `rpq resume` (rpq.resume), or get its rows: `{in_shell('recover', path, 'OUTPUT')}`;"
        " replace it: remove it, or `rpq write --overwrite-partial` (overwrite_partial=True)",
    )


def _cannot_create(error: OSError, target: str) -> StoreError:
    folder = os.path.abspath(os.path.dirname(target))  # in this order: of "a/" it is a
    if isinstance(error, FileNotFoundError):
        hint = "create it: " + shell_line(["mkdir", "-p", folder])
        return NotFoundError("no such folder", where=Where(key=folder), hint=hint)
    return from_os_error(error, "cannot create", target + SUFFIX)


def _write_fully(descriptor: int, piece: memoryview) -> None:
    while piece.nbytes:
        piece = piece[os.write(descriptor, piece) :]


def _writev_fully(descriptor: int, pieces: list[memoryview]) -> None:
    """Write without joining, where the system can; a write may end anywhere, so go on from there."""
    while pieces and not hasattr(os, "writev"):
        _write_fully(descriptor, pieces.pop(0))
    while pieces:
        written = os.writev(descriptor, pieces)
        while pieces and written >= pieces[0].nbytes:
            written -= pieces.pop(0).nbytes
        if written:
            pieces[0] = pieces[0][written:]


def _replace(source: str, target: str) -> None:
    """Rename over a file; a thread frees the replaced file if it is large."""
    try:
        replaced = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) if os.name != "nt" else None
    except OSError:  # nothing is there, or nothing that we may read
        replaced = None
    large = False
    try:
        os.replace(source, target)
        large = replaced is not None and os.fstat(replaced).st_size >= _LARGE
    finally:
        if replaced is not None:
            if large:
                threading.Thread(target=os.close, args=(replaced,), name="free-replaced-file").start()
            else:
                os.close(replaced)


def _rename_exclusively(source: str, target: str) -> None:
    """Rename unless the target exists, decided by the file system in one step."""
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno not in _NO_LINKS:
            raise
        # No hard links here: claim the name with an empty file, which nobody else can do twice.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(source, target)
    else:
        os.unlink(source)


def sync_folder(path: str) -> None:
    """Make the name of a file survive a loss of power."""
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(os.path.dirname(path) or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
