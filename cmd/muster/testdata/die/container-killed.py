# The container of node 1, near its limit of memory, is killed with all that is in it: nobody there can say why, but the
# other node knows how much memory it had.
#
# memory: 192 MiB
# code: 138
# class: lost
# gone: 1
# gone code: -1
# gone says: nearly full
# says: node 1 (
# says: was lost:
# says: of 192 MiB memory when it was last heard, and was probably killed for that
import os, signal, time

if os.environ["RANK"] != "2":
    time.sleep(1000)
group = next(l.strip().split(":")[2] for l in open("/proc/self/cgroup") if ":memory:" in l)
usage = "/sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes"
held = []
while int(open(usage).read()) < 0.94 * (192 << 20):
    held.append(b"x" * (1 << 20))
print("nearly full", flush=True)
time.sleep(2)  # for the agent to tell
for pid in reversed(open("/sys/fs/cgroup/memory" + group + "/cgroup.procs").read().split()):
    if int(pid) != os.getpid():
        os.kill(int(pid), signal.SIGKILL)
