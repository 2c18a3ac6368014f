"""Tells muster how far a program is; see docs/heartbeat.md. Outside a job it does nothing, and it never fails."""
import contextlib, fcntl, mmap, os, struct, threading, time

_lock = threading.Lock()

def step(n):
    _write(72, "<Q", n)

@contextlib.contextmanager
def phase(name, seconds=0):
    _write(88, "<Q8x64p", int((time.monotonic() + seconds) * 1e9) if seconds else 0, str(name).encode())
    try:
        yield
    finally:
        _write(88, "<Q8x64p", 0, b"")

def _write(at, form, *values):
    with _lock, contextlib.suppress(Exception), open(os.environ["MUSTER_PAGE"], "r+b", 0) as page, mmap.mmap(page.fileno(), 4096) as mem:
        part = struct.pack(form, *values)
        if mem[:12] == b"MUSTERPG\1\0\0\0" and any(_take(page) for _ in range(100)):
            turn, count = struct.unpack_from("<Q8xQ", mem, 64)
            struct.pack_into("<Q", mem, 64, turn | 1)  # odd: do not read now
            mem[at : at + len(part)] = part
            struct.pack_into("<Q", mem, 80, count + 1)
            struct.pack_into("<Q", mem, 64, (turn | 1) + 1)  # and to close mem lets go of the lock

def _take(page):  # another program's write takes microseconds, but it may be stopped in the middle
    with contextlib.suppress(BlockingIOError):
        return not fcntl.lockf(page, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 64)
    time.sleep(0.001)
