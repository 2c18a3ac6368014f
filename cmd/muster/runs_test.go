package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/golden"
)

// runScenes are what PID 1 must do that is the first process of `muster run`. Where muster init, tini and dumb-init have the like, the scene
// has the name that it has there.
func runScenes() []scene {
	return []scene{
		{name: "codes", flags: asRun(""), argv: sh("exit $0"), runs: words("0 1 127 255")},
		{name: "deadly", flags: asRun(""), argv: sh("kill -$0 $$"), runs: words("TERM KILL SEGV")},
		{name: "orphans", flags: asRun("--stdin 0"), argv: py(orphans, "100"), do: onlyWorker((*trial).pid)},
		{name: "orphans-user", flags: asRun("--stdin 0"), plain: true, front: unprivileged, argv: py(orphans, "100"), do: onlyWorker((*trial).child)},
		{name: "orphans-tini", flags: asRun("--stdin 0"), front: []string{"tini", "--"}, argv: sh(daemon), do: adopted},
		{name: "orphans-dumb-init", flags: asRun("--stdin 0"), front: []string{"dumb-init", "--"}, argv: sh(daemon), do: adopted},
		{name: "zombie-orphan", flags: asRun("--stdin 0"), argv: py(zombieOrphan), do: onlyWorker((*trial).pid)},
		{name: "entered", flags: asRun(""), argv: sh("echo up; exec sleep 1000"), do: entered},
		{name: "no-subreaper", flags: asRun(""), plain: true, front: py(forbidden), argv: sh("exit 3"), do: spoken},

		{name: "told-inside", flags: asRun(""), argv: sh("kill -TERM 1; exec sleep 1000")},
		{name: "told-tini", flags: asRun(""), front: []string{"tini", "--"}, argv: sh("echo up; exec sleep 1000"), do: sent(unix.SIGTERM)},
		{name: "immune", flags: asRun(""), argv: sh("for s in KILL STOP TSTP ABRT BUS FPE ILL SEGV SYS TRAP STKFLT XCPU XFSZ; do kill -$s 1; done; exit 9")},
		{name: "stopped-outside", flags: asRun(""), argv: py(tells), do: stoppedOutside},
		{name: "killed-outside", flags: asRun(""), argv: sh("echo up; setsid sleep 1000; :"), do: killedOutside},
		{name: "deaf-to-int", flags: asRun(""), front: sh(`trap "" INT; exec "$@"`), argv: sh("echo up; exec sleep 1000"), do: sent(unix.SIGTERM)},
		{name: "told-as-systemd", flags: asRun(""), argv: sh("echo up; exec sleep 1000"), do: sent(37)},
		{name: "int", flags: asRun(""), argv: sh("echo up; exec sleep 1000"), do: sent(unix.SIGINT)},
		{name: "int-twice", flags: asRun("--grace 1h"), argv: sh(`trap "" TERM; echo up; while :; do sleep 0.05; done`), do: interrupted},
		{name: "term-twice", flags: asRun("--stdin 0 --grace 1h"), argv: py(answers), do: toldTwice},
		{name: "scope", flags: asRun("--stdin 0 --grace 1h"), argv: py(twoHear), do: heard},
		{name: "scope-group", flags: asRun("--stdin 0 --grace 1h --signal-scope group"), argv: py(twoHear), do: heard},
		{name: "scope-tree", flags: asRun("--stdin 0 --grace 1h --signal-scope tree"), argv: py(twoHear), do: heard},
		{name: "deaf", flags: asRun("--grace 1"), argv: sh(`trap "" TERM; setsid sleep 1000 & echo up; while :; do sleep 0.05; done`), do: sent(unix.SIGTERM)},
		{name: "handlers", flags: asRun("--stdin 0 --grace 1h --nproc-per-node 2"),
			argv: append(sh(`[ $RANK = 0 ] && exec python3 -Sc "$0"; echo "up 1"; exec sleep 1000`), answers), do: handled},
		{name: "stops", flags: asRun("--stdin 0"), argv: py(answers), do: unmoved(unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG)},
		{name: "quit", flags: asRun("--stdin 0"), argv: py(answers), do: unmoved(unix.SIGQUIT)},
		{name: "rewrite-one", flags: asRun("--stdin 0 --grace 1h --preempt-signal USR1"), argv: py(answers), do: preempted},

		{name: "round", flags: asRun("--max-restarts 1"), argv: py(hydra), do: (*trial).worker},
		{name: "round-entered", flags: asRun("--max-restarts 1"), argv: sh(twoRounds), do: stranger},
		{name: "leftover-inside", flags: asRun(""), argv: sh("sleep 1000 & setsid sleep 1000 & exit 0"), do: empty},
		{name: "neighbours", flags: asRun(""), front: sh(neighbour), argv: sh("setsid sleep 1000 & >$TRIAL/up; until [ -e $TRIAL/go ]; do sleep 0.02; done; exit 4"), do: spared},

		{name: "tasks", flags: asRun("--max-restarts 1"), front: sh(fewTasks), argv: sh(bomb), do: (*trial).worker},
		{name: "signal-state", flags: asRun(""), front: py(deafAndBlocked), argv: []string{"grep", "^Sig", "/proc/self/status"}, do: maskOf},
		{name: "descriptors", flags: asRun(""), front: sh(`ulimit -n 300; ulimit -Sc $(ulimit -Hc); exec 7</etc/passwd; exec "$@"`), argv: sh("[ -e /proc/self/fd/7 ] || echo none; ulimit -n; ulimit -Sc"), do: (*trial).worker},
		{name: "directories", flags: asRun(""), argv: sh("pwd"), do: (*trial).worker},
		{name: "capabilities", flags: asRun(""), argv: sh(capable), do: (*trial).worker},
		{name: "separation", flags: asRun(""), argv: sh(apart), do: (*trial).worker},
	}
}

func asRun(flags string) [3]string { return [3]string{flags + " --", lacks, lacks} }

// The first process of muster run, as PID 1 of a namespace or below somebody else's.
func TestRuns(t *testing.T) {
	if !golden.Update() { // else another test may write docs/pid1.md
		t.Parallel()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table := readTable(t)
	for _, s := range runScenes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			row := table.row(t, "TestRuns/"+s.name)
			i := initUnderTest{name: "muster run", argv: []string{self, "run"}, column: 0}
			want := row.measured[i.column]
			row.check(t, i, want, s.with(t, i, want))
		})
	}
	t.Cleanup(func() { table.write(t) })
}

func (p *trial) pid() int { return p.cmd.Process.Pid }

// worker is what the worker said, in one line, and the exit code.
func (p *trial) worker() string {
	return strings.Join(slices.Concat(p.lines(""), []string{p.ended()}), ", ")
}

// onlyWorker waits until the worker is the first process's only child that is a Python, which it then tells to end.
func onlyWorker(first func(*trial) int) func(*trial) string {
	return func(p *trial) string {
		p.says("up")
		pid := first(p)
		seen := p.settlesPart(0, func() string { return fmt.Sprintf("%d left", named(pid, "python")) })
		p.in.Close()
		return seen + "; " + p.ended()
	}
}

// named counts the children with a name that begins so.
func named(parent int, name string) (n int) {
	pids, _ := proc.Root("/proc").Children(parent)
	for _, pid := range pids {
		if now, _ := proc.Root("/proc").Process(pid); strings.HasPrefix(now.Name, name) {
			n++
		}
	}
	return n
}

// daemon leaves a process without parent.
const daemon = `(setsid sleep 1000 &); echo up; read line; exit 0`

// adopted tells how many such processes the first process has, which is a child of PID 1 here.
func adopted(p *trial) string {
	p.says("up")
	first := p.child()
	seen := p.settlesPart(0, func() string { return fmt.Sprintf("%d adopted", named(first, "sleep")) })
	p.in.Close()
	return seen + "; " + p.ended()
}

// unprivileged becomes PID 1 where it has no right over anything outside, and cannot get any.
var unprivileged = strings.Fields("setpriv --no-new-privs unshare --user --map-root-user --pid --fork --mount-proc --kill-child")

// zombieOrphan leaves one that has ended before it becomes an orphan.
const zombieOrphan = `
import os
if os.fork() == 0:
    if os.fork() == 0: os._exit(0)
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    os._exit(0)
os.wait()
os.write(1, b'up\n')
os.read(0, 1)
`

// forbidden lets the kernel refuse PR_SET_CHILD_SUBREAPER.
const forbidden = `
import platform
prctl = {'x86_64': 157, 'aarch64': 167}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 3, prctl), (0x20, 0, 0, 16), (0x15, 0, 1, 36), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
` + filtered

// filtered runs a command under that filter (seccomp(2)).
const filtered = `
import ctypes, os, struct, sys
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *c) for c in code))
program = ctypes.create_string_buffer(struct.pack('HP', len(code), ctypes.addressof(filter)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program): sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
`

// enter starts a command as kubectl exec does: in the namespaces of pid, a child of nobody there.
func (p *trial) enter(pid int, script string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	cmd := exec.CommandContext(ctx, "nsenter", slices.Concat([]string{"-t", strconv.Itoa(pid), "-p", "-m", "--"}, sh(script))...)
	cmd.Env = append(os.Environ(), p.mark)
	cmd.WaitDelay = enough // for the output of who outlives it
	return cmd, cancel
}

// entered leaves an orphan there, which tells when it is PID 1's, and waits until it is reaped.
func entered(p *trial) string {
	p.says("up")
	cmd, cancel := p.enter(p.pid(), `(until read -r _ _ _ parent _ </proc/self/stat && [ $parent = 1 ]; do :; done; echo adopted) & exit 0`)
	defer cancel()
	out, err := cmd.CombinedOutput() // to the orphan's end
	if err != nil {
		p.t.Errorf("nsenter: %v", err)
	}
	zombies := p.settlesPart(1, func() string { return fmt.Sprintf("%d zombies", zombiesOf(p.pid())) })
	return strings.TrimSpace(string(out)) + "; " + zombies
}

func zombiesOf(parent int) (n int) {
	pids, _ := proc.Root("/proc").Children(parent)
	for _, pid := range pids {
		if state(pid) == 'Z' {
			n++
		}
	}
	return n
}

// sent sends a signal, and tells the exit code and how many live.
func sent(s syscall.Signal) func(*trial) string {
	return func(p *trial) string {
		p.says("up")
		p.signal(s)
		return empty(p)
	}
}

// empty tells the exit code and how many live after it.
func empty(p *trial) string {
	return p.settles(func() string { return fmt.Sprintf("%s, %d left", p.ended(), len(alive(p.t, p.mark))) })
}

// stoppedOutside: from outside the namespace STOP is for PID 1 as for everybody.
func stoppedOutside(p *trial) string {
	p.says("up")
	p.signal(unix.SIGSTOP)
	p.until(func() bool { return state(p.pid()) == 'T' }, "it is not stopped")
	p.signal(unix.SIGCONT)
	p.until(func() bool { return state(p.pid()) != 'T' }, "it does not go on")
	p.signal(unix.SIGTERM)
	return "stops, goes on, " + p.ended()
}

// killedOutside: with PID 1 goes all.
func killedOutside(p *trial) string {
	p.says("up")
	p.signal(unix.SIGKILL)
	p.code()
	return p.settles(func() string { return fmt.Sprintf("%d left", len(alive(p.t, p.mark))) })
}

// interrupted presses Ctrl-C until it ends.
func interrupted(p *trial) string {
	p.says("up")
	p.until(func() bool {
		_ = p.cmd.Process.Signal(unix.SIGINT) // it may just have ended
		return comes(300*time.Millisecond, func() bool { return closed(p.done) })
	}, "it does not end")
	return p.ended()
}

// answers has handlers that tell of their signals. It ends with its input.
const answers = `
import os, signal
def got(s, _): os.write(1, b'got %d\n' % s)
for s in 1, 10, 12, 15, 28: signal.signal(s, got)
os.write(1, b'up\n')
while os.read(0, 1): pass
os._exit(0)
`

// toldTwice: the second TERM changes nothing, and nobody hears of it.
func toldTwice(p *trial) string {
	p.says("up")
	p.signal(unix.SIGTERM)
	p.says("got 15")
	p.signal(unix.SIGTERM)
	p.signal(unix.SIGUSR2)
	gets := p.settlesPart(0, func() string { return p.gets(0) })
	p.in.Close()
	return gets + "; " + p.ended()
}

// twoHear is a worker that saves what it has, and a data loader of it, which it needs until that is done.
const twoHear = `
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [15, 40])
loader = os.fork()
if loader == 0:
    while (s := signal.sigwait([15, 40])) == 15: os.write(1, b'loader heard\n')
    os._exit(0)
signal.signal(15, lambda *_: os.write(1, b'saved\n'))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
os.write(1, b'up\n')
while os.read(0, 1): pass
os.kill(loader, 40)
os.wait()
`

func heard(p *trial) string {
	p.says("up")
	p.signal(unix.SIGTERM)
	p.says("saved")
	if strings.Contains(p.want, "loader heard") {
		p.says("loader heard")
	}
	p.in.Close()
	p.code()
	said := slices.DeleteFunc(p.lines(""), func(s string) bool { return s == "up" })
	slices.Sort(said)
	return strings.Join(append(said, p.ended()), ", ")
}

// handled sends the signals that workers may have a use for, and TERM.
func handled(p *trial) string {
	p.says("[rank 0] up")
	p.says("[rank 1] up")
	var results []string
	for n, s := range []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP, unix.SIGWINCH, unix.SIGTERM} {
		before := len(p.out.String())
		p.signal(s)
		results = append(results, p.settlesPart(n, func() string { return p.gets(before) }))
	}
	p.in.Close()
	return strings.Join(append(results, p.ended()), "; ")
}

// unmoved sends signals that stop nobody, and then one that the worker gets.
func unmoved(all ...syscall.Signal) func(*trial) string {
	return func(p *trial) string {
		p.says("up")
		for _, s := range all {
			p.signal(s)
		}
		p.signal(unix.SIGUSR1)
		gets := p.settlesPart(0, func() string { return p.gets(0) })
		dumps := ""
		if strings.Contains(p.want, "goroutines") {
			p.says("goroutine ")
			dumps = "goroutines; "
		}
		p.in.Close()
		return gets + "; " + dumps + p.ended()
	}
}

func preempted(p *trial) string {
	p.says("up")
	p.signal(unix.SIGTERM)
	gets := p.settlesPart(0, func() string { return p.gets(0) })
	p.in.Close()
	return gets + "; " + p.ended()
}

// hydra does what it can to leave something behind, and fails; in the second round it looks what is left.
const hydra = `
import os, signal, sys
def heads():
    n = 0
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try: n += open(f'/proc/{pid}/cmdline').read().startswith('sleep')
        except OSError: pass
    return n
def child(*steps, env=os.environ):
    if os.fork() == 0:
        for s in steps:
            if s == 'fork':
                if os.fork(): os._exit(0)
            elif s == 'term': signal.signal(signal.SIGTERM, signal.SIG_IGN)
            else: getattr(os, s)()
        os.execvpe('sleep', ['sleep', '1000'], env)
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
    child()
    child('setpgrp')
    child('setsid')
    child('setsid', 'fork')
    child('fork', 'setsid', 'fork')
    child('term')
    child('setsid', 'fork', 'setsid', env={'PATH': os.environ['PATH']})
    while heads() < 7: pass
    os._exit(3)
print(heads(), 'heads')
`

// fewTasks gives what it starts a limit of processes and threads, in either version of cgroups.
const fewTasks = `
cd /sys/fs/cgroup && if [ -d pids ]; then cd pids; else echo +pids >cgroup.subtree_control; fi || exit
read -r id </proc/sys/kernel/random/uuid
mkdir trial-$id && echo 200 >trial-$id/pids.max || exit
sh -c 'echo $$ >trial-'$id'/cgroup.procs && cd / && exec "$@"' sh "$@"
code=$?
until rmdir trial-$id; do sleep 0.02; done
exit $code`

// bomb fills it in the first round.
const bomb = `
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && echo again && exit 0
exec 2>/dev/null
while :; do sleep 1000 & done`

// twoRounds fails the first time and succeeds the second, each when it is told to.
const twoRounds = `trap 'exit $((3 - 3 * TORCHELASTIC_RESTART_COUNT))' USR1; echo up $TORCHELASTIC_RESTART_COUNT; while :; do sleep 0.05; done`

// stranger: who came from outside, as with kubectl exec, is not the round's, but ends with PID 1.
func stranger(p *trial) string {
	p.says("up 0")
	cmd, cancel := p.enter(p.pid(), "echo here; exec sleep 1000")
	defer cancel()
	cmd.Stdout = &p.out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	defer func() { cancel(); p.clear(); <-gone }()
	p.says("here")
	p.signal(unix.SIGUSR1)
	p.says("up 1")
	there := map[bool]string{true: "gone", false: "there"}[closed(gone)]
	p.signal(unix.SIGUSR1)
	code := p.ended()
	p.until(func() bool { return closed(gone) }, "who came from outside is still there")
	return there + ", " + code
}

// neighbour is PID 1 with another child, which is younger than the workers.
const neighbour = `
"$@" & muster=$!
until [ -e $TRIAL/up ]; do sleep 0.02; done
sleep 1000 & other=$!
>$TRIAL/go; wait $muster; code=$?
kill -0 $other && echo spared
exit $code`

func spared(p *trial) string {
	if !strings.Contains(p.said(), "spared") {
		return "killed, " + p.ended()
	}
	return "spared, " + p.ended()
}
