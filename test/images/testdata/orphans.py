# Leaves fifty orphans, which the first process has to reap, and waits until they are gone.
import os

pids = []
for _ in range(50):
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan:
            os.write(w, b"%d" % orphan)
        os._exit(0)
    os.waitpid(child, 0)
    pids.append(int(os.read(r, 16)))
    os.close(r), os.close(w)
while any(os.path.exists("/proc/%d" % pid) for pid in pids):
    os.sched_yield()
print("no zombie is left")
