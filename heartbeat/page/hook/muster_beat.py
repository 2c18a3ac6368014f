"""Tells muster how far a program is. Outside a job it does nothing, and it never fails; it may be copied into a project.

    import muster_beat
    muster_beat.step(500)
    with muster_beat.phase("checkpoint", 600):  # seconds that it takes at most
        save()
"""
import contextlib, fcntl, mmap, os, struct, threading, time

_lock, _page = threading.Lock(), None


def _write(at, form, *values):
    global _page
    with _lock, contextlib.suppress(Exception):
        if _page is None:
            fd = os.open(os.environ["MUSTER_PAGE"], os.O_RDWR)
            _page = fd, mmap.mmap(fd, 4096)
        fd, mem = _page
        if mem[:12] != b"MUSTERPG\1\0\0\0":
            return
        _take(fd)
        turn, count = struct.unpack_from("<Q8xQ", mem, 64)
        struct.pack_into("<Q", mem, 64, turn | 1)  # odd: do not read now
        struct.pack_into(form, mem, at, *values)
        struct.pack_into("<Q", mem, 80, count + 1)
        struct.pack_into("<Q", mem, 64, (turn | 1) + 1)
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, 64)


def _take(fd):
    for _ in range(100):  # another program's write takes microseconds, but it may be stopped in the middle
        with contextlib.suppress(BlockingIOError):
            return fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 64)
        time.sleep(0.001)
    raise TimeoutError


def step(n):
    _write(72, "<Q", n)


@contextlib.contextmanager
def phase(name, seconds=0):
    text = str(name).encode()[:63]
    _write(88, "<Q8xB63s", int((time.monotonic() + seconds) * 1e9) if seconds else 0, len(text), text)
    try:
        yield
    finally:
        _write(88, "<Q8xB63s", 0, 0, b"")
