"""Who may write a folder that many machines share: one process at a time, and what a former one writes never counts.

A holder has a folder of its own in it, `.lease-00000007`. 7 is its token: each acquisition makes the next one, which
only one process can. Whatever a holder writes is renamed into place out of a folder within that one, whose name nobody
else has, and whatever it removes is renamed into it. Who takes over removes both first. So every later rename of the
former holder fails in the file system itself, however long it slept between two of its instructions.

A live holder counts in the file `alive`. Who wants the lease takes it over once its own clock has gone on for PATIENCE
and that count has not: clocks are never compared. Beside it a `flock` is held, where there is such a thing: it refuses
a second process of one machine at once, and whoever gets it knows that a holder of this machine is dead.
"""

import errno
import fcntl
import logging
import os
import platform
import re
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rope_lab.files import TEMPORARY, append_line, check_folder, check_regular, lock, write_whole

log = logging.getLogger(__name__)

BEAT, PATIENCE = 10.0, 60.0  # seconds between two signs of life, and without one until others take over
NAME = ".lease-" + 8 * "[0-9]"
WITHIN = re.compile(r"[0-9a-f]{16}")  # the name of a holder's folder within its own
RELEASED = b"released"
NO_FLOCK = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


class Held(Exception):
    """Another process has the lease."""


class Lost(OSError):
    """Another process has taken the lease over: nothing that this one writes counts any more."""


class Lease:
    """The right to write `folder`, until `release`; a process that stops for PATIENCE may lose it.

    Raises Held where another process has it, at once or within PATIENCE, and OSError where it cannot be written.
    """

    def __init__(self, folder: Path):
        self.folder, self._count, self._ended = folder, 0, threading.Event()
        self._flock = _flocked(folder / ".lock")
        try:
            self.own = self._acquire()
            self._within = self.own / secrets.token_hex(8)  # which is gone once the lease is lost
            self._within.mkdir()
            self._beat()
        except BaseException:
            self._unlock()
            raise
        self._beating = threading.Thread(target=self._beat_on, daemon=True)
        self._beating.start()

    def write(self, path: Path, content: bytes | memoryview) -> None:
        """`files.write_whole`, of a file in `folder`. Raises Lost, and OSError."""
        with self._fenced():
            write_whole(path, content, self._within)

    def append(self, path: Path, content: dict[str, Any]) -> None:
        """`files.append_line`, to a file that whoever takes over first replaces. Raises Lost, and OSError."""
        with self._fenced():
            append_line(path, content, self.check)  # checked once it is open: what is lost then goes to the old file

    def remove(self, path: Path) -> None:
        """Removes a file in `folder`, if it is there. Raises Lost, and OSError."""
        with self._fenced():
            with suppress(FileNotFoundError):
                os.replace(path, self._within / "removed")
                (self._within / "removed").unlink()
            self.check()

    def check(self) -> None:
        """Raises Lost where it is; by a change, which no cache of a network file system answers."""
        with self._fenced():
            os.utime(self._within)

    def release(self) -> None:
        """Lets others have it at once. Its folder stays, for the next token to be above it."""
        self._ended.set()
        self._beating.join()
        with suppress(OSError):
            self._put(RELEASED)
            self._within.rmdir()
        self._unlock()

    def _acquire(self) -> Path:
        while True:
            holders = self._holders()
            for holder in holders:
                check_folder(holder)
            if holders:
                self._await_end(holders[-1])
            token = int(holders[-1].name[-8:]) + 1 if holders else 1
            with suppress(FileExistsError):  # another process was faster: see what becomes of it
                (own := self.folder / f".lease-{token:08d}").mkdir()
                if self._holders()[-1] != own:  # others have been here, and have removed their own of this token
                    _remove(own)
                    continue
                for holder in holders:
                    _remove(holder)
                return own

    def _holders(self) -> list[Path]:
        """The folders of all holders, the last one's last."""
        return sorted(self.folder.glob(NAME))

    def _await_end(self, holder: Path) -> None:
        """Returns once the holder has released its lease, or is dead. Raises Held where it lives."""
        seen, since = _read(holder), time.monotonic()
        if not holder.exists():
            return
        if seen == RELEASED or (self._flock is not None and seen.startswith(f"{_machine()} flock ".encode())):
            return
        log.warning("%s: another machine has this run, or has died with it: that shows in %g s", self.folder, PATIENCE)
        while time.monotonic() - since < PATIENCE:
            time.sleep(BEAT / 10)
            if (found := _read(holder)) == RELEASED:
                return
            if found != seen:
                raise Held(f"{self.folder} is in use: another process is training this run, on another machine")

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT) and self._within.exists():
            with suppress(OSError):  # the disk may be full for a while
                self._beat()

    def _beat(self) -> None:
        self._count += 1
        self._put(f"{_machine()} {'alone' if self._flock is None else 'flock'} {self._count}".encode())

    def _put(self, content: bytes) -> None:
        (self._within / "beat").write_bytes(content)
        os.replace(self._within / "beat", self.own / "alive")

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if os.path.exists(self._within) or not os.path.exists(self.folder):
                raise
            why = f"another process has taken it over, after no sign of life from this one for {PATIENCE:g} s"
            raise Lost(errno.ESTALE, why) from error

    def _unlock(self) -> None:
        if self._flock is not None:
            os.close(self._flock)


def _flocked(path: Path) -> int | None:
    """The descriptor of a file that is locked while it is open; None where there are no locks. Raises Held, OSError."""
    check_regular(path)
    try:
        return lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Held(f"{path.parent} is in use: another process is training this run") from None
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
        return None


def _machine() -> str:
    """What tells this machine, since it was last started, from all others."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{platform.node()}-{uuid.getnode()}"


def _read(holder: Path) -> bytes:
    with suppress(FileNotFoundError):
        return (holder / "alive").read_bytes()
    return b""


def _remove(holder: Path) -> None:
    """Removes the folder of a former holder, which may still be writing into it, and nothing but what is ours."""
    for attempt in reversed(range(100)):
        try:
            for folder in (*filter(_is_within, holder.iterdir()), holder):
                for path in folder.iterdir():
                    if path.name in ("alive", "beat", "removed") or TEMPORARY.fullmatch(path.name):
                        path.unlink(missing_ok=True)
                folder.rmdir()
            return
        except FileNotFoundError:
            if not holder.exists():
                return
        except OSError:
            if not attempt:
                raise


def _is_within(path: Path) -> bool:
    """Whether it is the folder out of which a holder writes, and no link."""
    return bool(WITHIN.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()
