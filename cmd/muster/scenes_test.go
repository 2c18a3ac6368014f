package main

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// scenes are what the test suites of tini 0.19 and dumb-init 1.2.5 look at, and what people rely on beside.
func scenes() []scene {
	return []scene{
		{name: "version", flags: all("--version"), do: spoken},
		{name: "nothing", flags: all(""), do: spoken},
		{name: "help", flags: all("-h"), do: spoken},
		{name: "licence", flags: all("-l"), do: spoken, odd: map[string]string{"muster as dumb-init": "0, speaks"}},
		{name: "unknown-flag", flags: all("--yolo"), argv: []string{"true"}, do: spoken},
		{name: "verbose", flags: [3]string{"-vvv", "-vvv --", "-v"}, argv: []string{"true"}, do: spoken},
		{name: "silent", flags: all("--"), argv: []string{"true"}, do: spoken},
		{name: "verbose-variable", flags: all("--"), vars: "TINI_VERBOSITY=3 DUMB_INIT_DEBUG=1", argv: []string{"true"}, do: spoken},
		{name: "quiet-variable", flags: all("--"), vars: "TINI_VERBOSITY=0", plain: true, argv: []string{"true"}, do: spoken},
		{name: "two-dashes", flags: all("--"), runs: [][]string{{"true"}, {"false"}, {"--", "true"}}},
		{name: "no-dashes", flags: all(""), runs: [][]string{{"true"}, {"false"}, {"sh", "-c", "exit 7"}}, odd: map[string]string{"muster as tini": "0 1 7"}},
		{name: "not-there", flags: all(""), runs: [][]string{{"/not/there"}, {"--", "/not/there"}}, do: spoken},
		{name: "not-there-single", flags: [3]string{"-c", lacks, "-c"}, runs: [][]string{{"/not/there"}, {"--", "/not/there"}}, do: spoken},
		{name: "no-program", flags: all("--"), runs: [][]string{{"/etc"}, {"/etc/passwd"}}, do: spoken},
		{name: "bare-script", flags: all("--"), front: py(bareScript), runs: [][]string{{"./script", "8"}}},
		{name: "dashed-name", flags: all("--"), front: py(dashedName), runs: [][]string{{"-name", "6"}}},
		{name: "input", flags: all("--"), argv: []string{"sh"}, do: typed},

		{name: "codes", flags: all("--"), argv: sh("exit $0"), runs: words("0 1 2 32 64 127 254 255")},
		{name: "codes-single", flags: [3]string{"-c", lacks, "-c"}, argv: sh("exit $0"), runs: words("0 1 255")},
		{name: "deadly", flags: all("--"), argv: sh("kill -$0 $$"), runs: words("TERM HUP QUIT KILL SEGV")},
		{name: "zero", flags: [3]string{"-e 3 -e143", "-e 3 -e143 --", lacks}, argv: sh("kill -$0 $$; exit $0"), runs: words("0 3 4 15")},
		{name: "zero-others", flags: [3]string{allBut(77), allBut(77) + "--", lacks}, argv: sh("exit $0"), runs: words("76 77 78")},

		{name: "orphans", flags: all("--"), argv: py(orphans, "100"), do: left},
		{name: "orphans-said", flags: [3]string{"-w", "-w --", lacks}, argv: py(orphans, "100"), do: left},
		{name: "orphans-subreaper", flags: [3]string{"-s", "-s --", lacks}, plain: true, argv: py(orphans, "9"), do: left},
		{name: "orphans-subreaper-said", flags: [3]string{"-sw", "-sw --", lacks}, plain: true, argv: py(orphans, "100"), do: left},
		{name: "orphans-variable", flags: [3]string{"--", "--", lacks}, vars: "TINI_SUBREAPER=", plain: true, argv: py(orphans, "9"), do: left},
		{name: "orphans-bit", flags: all("--"), front: py(subreaper), plain: true, argv: py(orphans, "9"), do: left},
		{name: "orphans-lost", flags: all("--"), plain: true, argv: []string{"true"}, do: spoken},
		{name: "zombies", flags: all("--"), argv: sh(`sh -c "sh -c : &" & wait; echo up; read line`), do: zombies},
		{name: "zombie-before", flags: all("--"), front: py(zombie), argv: sh("echo up; read line"), do: zombies, odd: map[string]string{"muster as dumb-init": "0 left"}},

		{name: "zombie-orphan", flags: all("--"), argv: py(zombieOrphan), do: left},
		{name: "entered", flags: all("--"), argv: sh("echo up; exec sleep 1000"), do: entered},
		{name: "no-subreaper", flags: [3]string{"-s", "-s --", lacks}, plain: true, front: py(forbidden), argv: sh("exit 3"), do: spoken, odd: map[string]string{"muster as tini": "3, speaks"}},

		{name: "signals", flags: all("--"), argv: py(tells), do: passed,
			odd: map[string]string{"muster as tini": "all but 4 5 6 7 8 11 23 27 31 34", "muster as dumb-init": "all but 23 27 34"}},
		{name: "signals-session", flags: [3]string{"--session", lacks, "--"}, argv: py(tells), do: passed, odd: map[string]string{"muster as dumb-init": "all but 23 27 34"}},
		{name: "signals-single", flags: [3]string{"-c", lacks, "-c"}, argv: py(tells), do: passed, odd: map[string]string{"muster as dumb-init": "all but 23 27 34"}},
		{name: "signals-end", flags: all("--"), argv: sh("echo up; exec sleep 1000 $0"), runs: words("15 10 12 1"), do: signalled},
		{name: "signals-end-subreaper", flags: [3]string{"-s", "-s --", "--"}, plain: true, argv: sh("echo up; exec sleep 1000 $0"), runs: words("15 10 12 1"), do: signalled},
		{name: "told-inside", flags: all("--"), argv: sh("kill -TERM 1; exec sleep 1000")},
		{name: "immune", flags: all("--"), argv: py(immune)},
		{name: "stopped-outside", flags: all("--"), argv: py(tells), do: stoppedOutside},
		{name: "killed-outside", flags: all("--"), argv: sh("echo up; setsid sleep 1000; :"), do: killedOutside},
		{name: "deaf-to-int", flags: all("--"), front: sh(`trap "" INT; exec "$@"`), argv: sh("echo up; exec sleep 1000"), do: sent(unix.SIGTERM)},
		{name: "stops", flags: [3]string{"-s", "-s --", lacks}, plain: true, argv: py(tells), do: halted},
		{name: "stops-session", flags: [3]string{"-s --session", lacks, "--"}, plain: true, argv: py(tells), do: halted},
		{name: "stops-single", flags: [3]string{"-s -c", lacks, "-c"}, plain: true, argv: py(tells), do: halted},
		{name: "stops-single-variable", flags: [3]string{"-s", lacks, "--"}, vars: "DUMB_INIT_SETSID=0", plain: true, argv: py(tells), do: halted},
		{name: "stops-rewritten", flags: [3]string{"-s --session -r 21:10 -r 22:2 -r 20:1", lacks, "-r 21:10 -r 22:2 -r 20:1"}, plain: true, argv: py(tells), do: halted},
		{name: "rewrite-one", flags: rewriting("-r 15:2"), argv: py(tells), do: rewritten(15, 3, 18, 2)},
		{name: "rewrite-swap", flags: rewriting("-r 12:2 -r2:12 -r 3:3"), argv: py(tells), do: rewritten(12, 3, 18, 2)},
		{name: "rewrite-ends", flags: rewriting("-r 1:31 -r 31:1"), argv: py(tells), do: rewritten(1, 31)},
		{name: "rewrite-none", flags: rewriting("-r 12:3 -r 2:0 -r 28:0"), argv: py(tells), do: rewritten(12, 2, 28, 1)},
		{name: "rewrite-wrong", flags: rewriting(""), do: spoken, runs: [][]string{{"-r"}, {"-r", "", "true"}, {"-r", "herp", "true"}, {"-r", "herp:derp", "true"},
			{"-r", "15", "true"}, {"-r", "15::12", "true"}, {"-r", "15:derp", "true"}, {"-r", "15:12", "-r", "true"}, {"-r", "15:12", "-r", "0", "true"}, {"-r", "15:12", "-r", "1:32", "true"}}},
		{name: "group", flags: [3]string{"-g", "-g --", "--"}, argv: py(deafParent), do: struck},
		{name: "group-variable", flags: [3]string{"--", "--", lacks}, vars: "TINI_KILL_PROCESS_GROUP=", argv: py(deafParent), do: struck},
		{name: "pipeline", flags: [3]string{"-s -g", "-s -g --", "--"}, plain: true, argv: sh(pipeline), do: pipes},
		{name: "pipeline-single", flags: [3]string{"-s", "-s --", "-c"}, plain: true, argv: sh(pipeline), do: pipes},
		{name: "leftover", flags: [3]string{"-s", "-s --", "-c"}, plain: true, argv: sh(leavesOne), do: told},
		{name: "leftover-session", flags: [3]string{"-s --session", lacks, "--"}, plain: true, argv: sh(leavesOne), do: told},
		{name: "leftover-inside", flags: all("--"), argv: sh(leavesOne), do: gone},
		{name: "parent-death", flags: [3]string{"-s -p SIGUSR2", "-s -p SIGUSR2 --", lacks}, plain: true, front: sh(`"$@" & echo $! ; wait`), argv: py(tells), do: bereaved},
		{name: "signal-state", flags: all("--"), front: py(deafAndBlocked), argv: []string{"grep", "^Sig", "/proc/self/status"}, do: maskOf,
			odd: map[string]string{"muster as tini": "blocked 21; ignored 2 22"}},
		{name: "signal-state-session", flags: [3]string{"--session", lacks, "--"}, front: py(deafAndBlocked), argv: []string{"grep", "^Sig", "/proc/self/status"}, do: maskOf},

		{name: "directories", flags: all("--"), argv: sh("pwd; echo up; read line"), do: directories, odd: map[string]string{"muster as tini": "/ and /usr"}},
		{name: "descriptors", flags: all("--"), front: sh(`ulimit -n 300; exec 7</etc/passwd; exec "$@"`), argv: sh("head -c4 <&7; echo; ulimit -n"), do: (*trial).words},
		{name: "capabilities", flags: all("--"), argv: sh(capable), do: (*trial).words},
		{name: "separation", flags: all("--"), argv: sh(apart), do: (*trial).words},
		{name: "separation-session", flags: [3]string{"--session", lacks, "--"}, argv: sh(apart), do: (*trial).words},
		{name: "separation-single", flags: [3]string{"-c", lacks, "-c"}, argv: sh(apart), do: (*trial).words},

		{name: "terminal", flags: all("--"), plain: true, front: terminal("1", "", "1\n2\n3\n\x04"), argv: []string{"tac"}, do: (*trial).words},
		{name: "terminal-exit", flags: all("--"), plain: true, front: terminal("1", "", "exit 7\n"), argv: []string{"sh"}},
		{name: "terminal-ctrl-c", flags: all("--"), plain: true, front: terminal("1", "up", "\x03"), argv: sh("echo up; while :; do sleep 0.1; done")},
		{name: "terminal-job-control", flags: all("--"), plain: true, front: terminal("1", "", "echo flags=$-=\nexit 0\n"), argv: []string{"bash", "--norc", "--noprofile", "-m"}, do: jobControl},
		{name: "terminal-left", flags: [3]string{"--session -vv", lacks, "-v"}, plain: true, front: terminal("1", farewell+"&up", "HUP"), argv: sh("echo up; exec sleep 1000"), do: leftAlone},
		{name: "terminal-tostop", flags: [3]string{"-s -vvv", "-s -vvv --", "-v"}, plain: true, front: append(terminal("0", "", ""), "/bin/bash", "-mc", `"$@"; exit $?`, "-"), argv: sh("stty tostop; kill -WINCH $PPID; exit 7")},
	}
}

// words makes a run of each word.
func words(list string) (runs [][]string) {
	for _, w := range strings.Fields(list) {
		runs = append(runs, []string{w})
	}
	return runs
}

func rewriting(flags string) [3]string { return [3]string{flags, lacks, flags} }

// allBut is -e for every exit code but one.
func allBut(code int) string {
	var b strings.Builder
	for n := range 256 {
		if n != code {
			fmt.Fprintf(&b, "-e %d ", n)
		}
	}
	return b.String()
}

// spoken tells the exit code, and whether there was a word with it.
func spoken(p *trial) string {
	code := p.code()
	return fmt.Sprintf("%d, %s", code, map[bool]string{true: "silent", false: "speaks"}[p.said() == ""])
}

// said is the whole output, when all who could write have ended.
func (p *trial) said() string {
	p.code()
	p.clear()
	return p.out.String()
}

// words is what was said, in one line.
func (p *trial) words() string { return strings.Join(strings.Fields(p.said()), " ") }

func typed(p *trial) string {
	fmt.Fprintln(p.in, "echo hello; exit 9")
	return p.words() + ", " + p.ended()
}

const bareScript = `
import os, sys, tempfile
os.chdir(tempfile.mkdtemp(dir=os.environ['TRIAL']))
with open('script', 'w') as f: f.write('exit $1\n')
os.chmod('script', 0o755)
os.execv(sys.argv[1], sys.argv[1:])
`

const dashedName = `
import os, sys
os.chdir(os.environ['TRIAL'])
with open('-name', 'w') as f: f.write('#!/bin/sh\nexit $1\n')
os.chmod('-name', 0o755)
os.environ['PATH'] += ':' + os.environ['TRIAL']
os.execv(sys.argv[1], sys.argv[1:])
`

// orphans are as many as it is told, which end at different times.
const orphans = `
import os, sys, time
for i in range(int(sys.argv[1])):
    if os.fork() == 0:
        if os.fork() == 0: time.sleep(i / 300)
        os._exit(0)
    os.wait()
os.write(1, b'up\n')
os.read(0, 1)
`

const zombie = `
import os, sys
if os.fork() == 0: os._exit(0)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
os.execv(sys.argv[1], sys.argv[1:])
`

const subreaper = `
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
`

// left waits until the command is init's only child, and counts the lines about the others.
func left(p *trial) string {
	p.says("up")
	result := p.settles(func() string {
		return fmt.Sprintf("%d left, %d lines", p.children(), strings.Count(p.out.String(), "\n")-1)
	})
	p.in.Close()
	p.code()
	return result
}

// zombies counts those that init has not reaped.
func zombies(p *trial) string {
	p.says("up")
	return p.settles(func() string { return fmt.Sprintf("%d left", p.children()-1) })
}

// passed sends every signal, and tells which ones did not reach the command. Signal 64 behind each says that it is through.
func passed(p *trial) string {
	p.says("up")
	var sent []string
	for s := syscall.Signal(1); s < 64; s++ {
		switch s {
		case unix.SIGKILL, unix.SIGTERM, unix.SIGCHLD, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, 32, 33:
			continue // 32 and 33 are the C library's own
		}
		p.signal(s)
		p.signal(64)
		p.counts("got 64\n")
		sent = append(sent, strconv.Itoa(int(s)))
	}
	return p.settles(func() string { // the threads of a Go program may exchange two signals
		got := p.got(0)
		missing := slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return slices.Contains(got, s) })
		if len(missing) == 0 {
			return "all"
		}
		return "all but " + strings.Join(missing, " ")
	})
}

// signalled sends the signal that the command has as its argument.
func signalled(p *trial) string {
	p.says("up")
	n, _ := strconv.Atoi(p.cmd.Args[len(p.cmd.Args)-1])
	p.signal(syscall.Signal(n))
	return p.ended()
}

// immune: PID 1 survives what its children can send it. Signal 64 comes back when all is over.
const immune = `
import os, signal
faults = [4, 5, 6, 7, 8, 11, 16, 24, 25, 31]
signal.pthread_sigmask(signal.SIG_BLOCK, faults + [64])
for s in [9, 19] + faults: os.kill(1, s)
os.kill(1, 64)
signal.sigwait([64])
os._exit(9)
`

// halted sends each of the terminal's signals to stop, and then CONT, and tells what comes of each. When two others have come behind it and
// init goes on, nothing seems to come of it; but the threads of a Go program may exchange signals.
func halted(p *trial) string {
	p.says("up")
	child := p.child()
	var results []string
	for n, s := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		before := len(p.out.String())
		behind := []syscall.Signal{syscall.Signal(40 + n), syscall.Signal(50 + n)}
		p.signal(s)
		for _, m := range behind {
			p.signal(m)
			p.until(func() bool { return p.has(before, m) || state(p.cmd.Process.Pid) == 'T' }, "init neither stops nor goes on")
		}
		results = append(results, p.settlesPart(n, func() string { return p.cameOf(before, child) }))
		p.signal(unix.SIGCONT)
		p.until(func() bool {
			return p.has(before, unix.SIGCONT) && p.has(before, behind[0]) && p.has(before, behind[1])
		}, "it does not go on")
	}
	p.signal(unix.SIGKILL)
	return strings.Join(results, "; ")
}

// has reports whether s has come to the command since before.
func (p *trial) has(before int, s syscall.Signal) bool {
	return slices.Contains(p.got(before), strconv.Itoa(int(s)))
}

// got is what came to the command since before.
func (p *trial) got(before int) (signals []string) {
	for line := range strings.Lines(p.out.String()[before:]) {
		if s, ok := strings.CutPrefix(strings.TrimPrefix(line, "[rank 0] "), "got "); ok {
			signals = append(signals, strings.TrimSpace(s))
		}
	}
	return signals
}

// cameOf tells what a signal did to the command and to init.
func (p *trial) cameOf(before, child int) string {
	result := p.gets(before)
	if state(child) == 'T' {
		result = "stops"
	}
	if state(p.cmd.Process.Pid) == 'T' {
		result += ", init stops"
	}
	return result
}

// gets tells which of the standard signals the command got since before.
func (p *trial) gets(before int) string {
	all := slices.DeleteFunc(p.got(before), func(s string) bool { n, _ := strconv.Atoi(s); return n >= 32 })
	if len(all) == 0 {
		return "nothing"
	}
	return "gets " + strings.Join(all, " ")
}

// rewritten sends signals, one after the other, and tells what comes of each.
func rewritten(sent ...syscall.Signal) func(*trial) string {
	return func(p *trial) string {
		p.says("up")
		var results []string
		for n, s := range sent {
			before := len(p.out.String())
			p.signal(s)
			p.signal(64)
			p.counts("got 64\n")
			results = append(results, p.settlesPart(n, func() string { return p.gets(before) }))
		}
		return strings.Join(results, "; ")
	}
}

// deafParent ignores USR1, its child does not.
const deafParent = `
import os, signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.write(1, b'up\n')
    while True: signal.pause()
_, status = os.wait()
os._exit(os.WTERMSIG(status))
`

func struck(p *trial) string {
	p.says("up")
	p.signal(unix.SIGUSR1)
	return p.ended()
}

const pipeline = `yes line | tail & yes other | tail >&2`

// pipes ends a pipeline of four, and tells how many of them live.
func pipes(p *trial) string {
	p.until(func() bool { return len(alive(p.t, p.mark)) == 6 }, "the pipeline is not complete")
	p.signal(unix.SIGTERM)
	p.code()
	return p.settles(func() string { return fmt.Sprintf("%d left", len(alive(p.t, p.mark))) })
}

// leavesOne ends when it is told to, and leaves one behind that says what it gets.
const leavesOne = `
sh -c 'trap "echo got TERM" TERM; trap "echo got USR1; exit" USR1; echo up $$; while :; do sleep 0.02; done' &
read line; exit 5`

// told tells which signals the one left behind got: one from us to end it, after all others.
func told(p *trial) string {
	p.says("up")
	fmt.Fprintln(p.in)
	p.code()
	_, after, _ := strings.Cut(p.out.String(), "up ")
	first, _, _ := strings.Cut(after, "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		p.t.Fatal(err)
	}
	if strings.Contains(p.want, "TERM") {
		p.says("got TERM")
	}
	_ = unix.Kill(pid, unix.SIGUSR1)
	p.says("got USR1")
	return strings.Join(append([]string{p.ended()}, p.lines("got")...), " ")
}

// gone: the kernel ends what PID 1 leaves.
func gone(p *trial) string {
	p.says("up")
	fmt.Fprintln(p.in)
	return p.settles(func() string { return fmt.Sprintf("%s, %d left", p.ended(), len(alive(p.t, p.mark))) })
}

// bereaved kills init's parent.
func bereaved(p *trial) string {
	p.says("up")
	p.signal(unix.SIGKILL)
	p.says("got 12")
	return "got 12"
}

const deafAndBlocked = `
import os, signal, sys
for s in signal.SIGTTOU, signal.SIGUSR1, signal.SIGINT: signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN, signal.SIGILL, signal.SIGTERM])
os.execv(sys.argv[1], sys.argv[1:])
`

func maskOf(p *trial) string {
	return "blocked " + numbers(p.lines("SigBlk:")[0]) + "; ignored " + numbers(p.lines("SigIgn:")[0])
}

// numbers are the signals in a mask, less 32 and 33, which the C library uses as it likes, and PIPE and XFSZ, which Python ignores.
func numbers(mask string) string {
	n, _ := strconv.ParseUint(mask, 16, 64)
	n &^= 1<<31 | 1<<32 | 1<<(unix.SIGPIPE-1) | 1<<(unix.SIGXFSZ-1)
	var out []string
	for ; n != 0; n &= n - 1 {
		out = append(out, strconv.Itoa(bits.TrailingZeros64(n)+1))
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, " ")
}

// directories are init's and the command's.
func directories(p *trial) string {
	p.says("up")
	return p.settles(func() string {
		dir, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "cwd"))
		return dir + " and " + strings.Fields(p.out.String())[0]
	})
}

// capable compares the capabilities with init's, and with none.
const capable = `now=$(grep CapEff /proc/self/status); [ "$now" = "$(grep CapEff /proc/1/status)" ] && [ "${now%%*[1-9a-f]*}" != "$now" ] && echo as init`

// apart tells whether the command leads a group and a session.
const apart = `set -- $(cat /proc/$$/stat); group=$5; session=$6
[ $group = $$ ] && echo own group || echo group of init; [ $session = $$ ] && echo own session || echo session of init`

func jobControl(p *trial) string {
	_, flags, _ := strings.Cut(p.said(), "flags=")
	flags, _, _ = strings.Cut(flags, "=")
	return map[bool]string{true: "yes", false: "no"}[strings.Contains(flags, "m")] + ", " + p.ended()
}

// farewell is what muster or dumb-init says of the HUP with which the terminal leaves.
const farewell = "signal 1 is about|hand-off signal 1."

// leftAlone tells whether that one was dropped. The next one ends the command.
func leftAlone(p *trial) string {
	code := p.ended()
	first := slices.ContainsFunc(strings.Split(farewell, "|"), func(text string) bool { return strings.Contains(p.said(), text) })
	return map[bool]string{true: "dropped, ", false: "passed on, "}[first] + code
}

// terminal runs init as the leader of a session with a terminal, in a new PID namespace if inside is 1: it waits for texts (a|b&c: a or b, and
// c), then types, or sends HUP.
func terminal(inside, text, types string) []string { return py(onTerminal, inside, text, types) }

const onTerminal = `
import ctypes, os, pty, signal, sys, termios
inside, text, types = sys.argv[1:4]
if inside == '1': ctypes.CDLL(None).unshare(0x20000000)
ready, go = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.read(ready, 1)
    os.execv(sys.argv[4], sys.argv[4:])
mode = termios.tcgetattr(fd)
mode[1] &= ~termios.OPOST
mode[3] &= ~termios.ECHO
termios.tcsetattr(fd, termios.TCSANOW, mode)
os.write(go, b'x')
seen = b''
while True:
    if types is not None and all(any(t.encode() in seen for t in of.split('|')) for of in text.split('&')):
        if types == 'HUP': os.kill(pid, signal.SIGHUP)
        else: os.write(fd, types.encode())
        types = None
    try: chunk = os.read(fd, 4096)
    except OSError: break
    seen += chunk
    os.write(1, chunk)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
`
