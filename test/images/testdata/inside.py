# What a worker sees in a container: muster is its first process, nobody is root, and nothing may be written or done that needs more.
import errno, os

status = dict(line.split(":", 1) for line in open("/proc/self/status"))
first = open("/proc/1/cmdline", "rb").read().split(b"\0")
assert first[0].endswith(b"muster"), first
assert os.getuid() in (65532, 1000) and os.getgid() == os.getuid(), (os.getuid(), os.getgid())
for name in ("CapEff", "CapPrm", "CapBnd", "CapInh"):
    assert int(status[name], 16) == 0, (name, status[name])
assert status["NoNewPrivs"].strip() == "1", status["NoNewPrivs"]
try:
    open("/written", "w")
    raise SystemExit("the root file system can be written to")
except OSError as e:
    assert e.errno in (errno.EROFS, errno.EACCES), e
assert os.statvfs("/").f_flag & os.ST_RDONLY
print("rank", os.environ["RANK"], "is as it should be")
