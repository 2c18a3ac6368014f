"""A file system of one file, "data", that can be looked at and opened, but whose contents never come: a server that has died
inside. Nothing but the kernel's own protocol (linux/fuse.h), and a process that serves it. As long as that lives, nothing ends
who waits for the contents, not even SIGKILL."""
import ctypes
import os
import struct
import subprocess
import sys
import tempfile

LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR, ACCESS = 1, 3, 14, 15, 26, 27, 34
ENOENT, ENOSYS = 2, 38
NEWNS, REC, PRIVATE = 0x20000, 1 << 14, 1 << 18


def attr(ino):
    mode = 0o040755 if ino == 1 else 0o100644
    return struct.pack("<QQQQQQIIIIIIIIII", ino, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(op, node, body):
    if op == INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 16, 0, 0)
    if op == LOOKUP:
        if body.rstrip(b"\0") != b"data":
            return ENOENT
        return struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attr(2)
    if op == GETATTR:
        return struct.pack("<QII", 3600, 0, 0) + attr(node)
    if op in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    if op == READ:
        return None
    return ENOSYS


def serve(fd):
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError:
            return
        _, op, unique, node = struct.unpack_from("<IIQQ", request)
        reply = answer(op, node, request[40:])
        if reply is None:
            continue
        error, body = (-reply, b"") if isinstance(reply, int) else (0, reply)
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError:
            pass  # to a request that the kernel no longer has


def must(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(where):
    """Mounts it on a new directory, for this thread and its children only, and returns the path of its file."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    place = tempfile.mkdtemp(prefix="dead.", dir=where)
    libc = ctypes.CDLL(None, use_errno=True)
    must(libc.unshare(NEWNS))
    must(libc.mount(None, b"/", None, REC | PRIVATE, None))
    must(libc.mount(b"dead", place.encode(), b"fuse.dead", 0, f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()))
    subprocess.Popen([sys.executable, "-I", __file__, str(fd)], pass_fds=[fd])
    os.close(fd)
    return f"{place}/data"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
