"""Runs a scene of train.py on this machine, without any launcher, and writes what an agent would know of its ranks: a line of
JSON with the scene and the answer that is expected, then one a second with the beats of all ranks (job.Beat).

record.py OUT PYTHON TORCH CLASS SECONDS SCENE ARGS...

It ends SECONDS after the step at which the scene begins.
"""
import collections
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

out, python, version, klass, seconds = sys.argv[1:6]
here = os.path.dirname(os.path.abspath(__file__))
scene = sys.argv[6]
args = sys.argv[6:]
fault_rank = int(args[args.index("--rank") + 1]) if "--rank" in args else 0
SIZE = 4
two = scene == "partition"
stack_signal = signal.SIGRTMIN + 3


def run(*argv, **kw):
    return subprocess.run(argv, capture_output=True, text=True, **kw)


def boxes():
    """Two network namespaces with a wire between them."""
    found = []
    for i in range(2):
        p = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up; echo; exec sleep infinity"], stdout=subprocess.PIPE)
        p.stdout.read(1)
        found.append(p)
    a, b = (str(p.pid) for p in found)
    net = lambda pid, *c: subprocess.run(["nsenter", "-n", "-t", pid, *c], check=True)
    net(a, "ip", "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", b)
    for i, pid in enumerate((a, b)):
        net(pid, "ip", "addr", "add", f"10.78.0.{i + 1}/24", "dev", "e0")
        net(pid, "ip", "link", "set", "e0", "up")
    return found


cut_off = "add table t"
for way, name in ("input", "iifname"), ("output", "oifname"):
    cut_off += f"; add chain t {way} {{ type filter hook {way} priority 0; }}; add rule t {way} {name} e0 drop"

dir = tempfile.mkdtemp(prefix="faults-", dir="/var/tmp")
hosts = boxes() if two else []
port = 29000 + os.getpid() % 3000
workers = []
for r in range(SIZE):
    env = dict(os.environ, RANK=str(r), WORLD_SIZE=str(SIZE), LOCAL_RANK=str(r % 2), MASTER_ADDR="10.78.0.1" if two else "127.0.0.1",
               MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="e0" if two else "lo", OMP_NUM_THREADS="1", SCRATCH=dir, PAGE=f"{dir}/{r}",
               USE_LIBUV="0" if version.startswith("1.") else "1")
    if os.environ.get("NOHOOK"):
        env["PAGE"] = ""
    enter = ["nsenter", "-n", "-t", str(hosts[r // 2].pid), "--"] if two else []
    workers.append(subprocess.Popen([*enter, python, "-u", f"{here}/recorder.py", f"{here}/train.py", *args], env=env,
                                    stdout=open(f"{dir}/out{r}", "w"), stderr=subprocess.STDOUT))


def read(path, how="r"):
    try:
        with open(path, how) as f:
            return f.read()
    except OSError:
        return ""


def stat(pid):
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2:].split() if text else None


def family(pid):
    """A process and all its descendants."""
    found = [pid]
    for p in found:
        for task in os.listdir(f"/proc/{p}/task") if os.path.isdir(f"/proc/{p}/task") else ():
            found += [int(c) for c in read(f"/proc/{p}/task/{task}/children").split()]
    return found


def sockets():
    """Bytes and stuck peers of each process's TCP sockets."""
    wire, stuck = collections.Counter(), collections.defaultdict(list)
    for host in hosts or [None]:
        enter = ["nsenter", "-n", "-t", str(host.pid)] if host else []
        for line in run(*enter, "ss", "-tnpOi").stdout.splitlines():
            pids = set(map(int, re.findall(r"pid=(\d+)", line)))
            n = sum(int(x) for x in re.findall(r"bytes_(?:acked|received):(\d+)", line))
            for pid in pids:
                wire[pid] += n
                again = re.search(r"backoff:(\d+)", line)
                if again and "unacked:" in line:
                    stuck[pid].append(f"{line.split()[4]}, {again[1]} retransmissions")
    return wire, stuck


def file_of(pid):
    call = read(f"/proc/{pid}/syscall").split()
    if call and call[0] in ("0", "17", "1", "18", "19"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{int(call[1], 16)}")
            return path if path.startswith("/") else ""
        except OSError:
            return ""


hz = os.sysconf("SC_CLK_TCK")


def sight(pid, wire, stuck, held):
    s = stat(pid)
    if not s:
        return None
    all = [x for x in map(stat, family(pid)) if x]
    io = sum(int(n) for p in family(pid) for n in re.findall(r"\n(?:read_bytes|write_bytes): (\d+)", read(f"/proc/{p}/io")))
    see = {"st": ord(s[0]), "cpu": sum(int(x[11]) + int(x[12]) for x in all) * (10 ** 9 // hz), "io": io,
           "net": sum(wire[p] for p in family(pid)), "stuck": stuck[pid], "wchan": read(f"/proc/{pid}/wchan").strip("0"),
           "file": file_of(pid), "gil": held}
    return {k: v for k, v in see.items() if v}


def stack(r):
    """The last that faulthandler wrote of the main thread."""
    text = read(f"{dir}/{r}.stack")
    main = re.split(r"(?:Current thread|Thread) .*\n", text)[-1]
    lines = re.findall(r'File "(.*?)", line (\d+) in (\S+)', main)
    return [f"{os.path.basename(f)}:{n} {name}" for f, n, name in lines[:4]]


def beats(now):
    wire, stuck = sockets()
    line = []
    for r, w in enumerate(workers):
        if w.poll() is not None or not stat(w.pid):
            continue
        b = {"r": r, "pid": w.pid, "l": r % 2}
        page = json.loads(read(f"{dir}/{r}") or "{}")
        held = bool(page) and now - page.pop("t") > 2.5
        if page:
            b.update({k: v for k, v in page.items() if v})
        else:
            b["mute"] = "no hook"
        b["see"] = sight(w.pid, wire, stuck, held)
        if stack(r):
            b["stack"] = stack(r)
        line.append(b)
    return line


def ask():
    """Has all workers that can write their stacks do so."""
    for r, w in enumerate(workers):
        if w.poll() is None and os.path.exists(f"{dir}/{r}.stack"):
            open(f"{dir}/{r}.stack", "w").close()
            os.kill(w.pid, stack_signal)


head = {"scene": scene, "torch": version, "fault": scene, "rank": fault_rank if klass in "AB" else -1, "class": klass, "args": args[1:],
        "expect": os.environ.get("EXPECT", "")}
lines, begin, cut, here = [], time.monotonic(), None, None
step = int(args[args.index("--at") + 1]) if "--at" in args else 20
for i in range(240):
    time.sleep(max(0, begin + i + 1 - time.monotonic()))
    if all(w.poll() is not None for w in workers):
        break
    if here is None and (step == 0 or f"step {step - 1}\n" in read(f"{dir}/out{fault_rank}")):
        here = i
        head["line"] = i + 1  # of the first beats after it
    if here is not None and i > here + int(seconds):
        break
    if here is not None and klass != "none" and i == here + int(seconds) - 5:
        ask()
    lines.append(beats(time.monotonic()))
    if two and not cut and "cut" in read(f"{dir}/out{fault_rank}"):
        cut = run("nsenter", "-n", "-t", str(hosts[1].pid), "nft", cut_off).returncode == 0
        assert cut
        open(f"{dir}/cut", "w").close()

ends = [w.poll() for w in workers]
for p in workers + hosts:
    for pid in family(p.pid) if p.poll() is None else ():
        os.kill(pid, signal.SIGKILL)
    p.wait()
head["ends"] = ends
said = [read(f"{dir}/out{r}") for r in range(SIZE)]
start = next((i for i, b in enumerate(lines) if any(b1.get("n") for b1 in b)), 0)
if scene != "compile" and start > 6:  # importing PyTorch takes what it takes
    del lines[3:start - 3]
    head["line"] -= start - 6
with open(out, "w") as f:
    f.write("\n".join(json.dumps(x, separators=(",", ":")) for x in [head, *lines]) + "\n")
shutil.rmtree(dir)
print(f"{out}: {len(lines)} s, ends {ends}, last words {[s.strip().splitlines()[-1][-90:] if s.strip() else '' for s in said]}")
for b in lines[-1] if lines else []:
    see = b.get("see") or {}
    print("  r", b["r"], "n", b.get("n"), [(l.get("name"), l["e"], l["c"], l.get("op"), l.get("size")) for l in b.get("lanes", [])], chr(see.get("st", 32)),
          {k: v for k, v in see.items() if k in ("wchan", "file", "gil", "stuck")}, b.get("stack"))
