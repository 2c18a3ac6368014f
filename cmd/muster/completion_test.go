package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a person types before the tabulator key, and what stands there then, in each of the shells.
var completed = []struct{ typed, becomes string }{
	{"muster stat", "muster status"},
	{"muster torch", "muster torchrun"},
	{"muster ctl pau", "muster ctl pause"},
	{"muster completion z", "muster completion zsh"},
	{"muster run --on-ha", "muster run --on-hang"},
	{"muster run --nnodes 2 --nccl-t", "muster run --nnodes 2 --nccl-tune"},
	{"muster run --on-hang ob", "muster run --on-hang observe"},
	{"muster run --on-hang=ob", "muster run --on-hang=observe"},
	{"muster run --rdzv-endpoint host0:29400 --on-hang=ob", "muster run --rdzv-endpoint host0:29400 --on-hang=observe"},
	{"muster run tra", "muster run train.py"},
	{"muster run train.py da", "muster run train.py data.csv"},
	{"muster run --verdict ver", "muster run --verdict verdict.json"},
	{"muster run --verdict=ver", "muster run --verdict=verdict.json"},
	{"muster run -- only-here-to-be-f", "muster run -- only-here-to-be-found"},
	{"muster install vol", "muster install volume/"},
	{"muster install volume/ --li", "muster install volume/ --links"},
	{"muster install --links=torchrun,pd", "muster install --links=torchrun,pdsh"},
	{"muster torchrun tra", "muster torchrun train.py"},
	{"muster run --nnodes tra", "muster run --nnodes tra"},
	{"muster status tra", "muster status tra"},
	{"muster nothing-of-ours tra", "muster nothing-of-ours train.py"},
}

// quoted are names that want quotes, and what fish offers for them: it has none.
var quoted = []struct{ typed, becomes, offered string }{
	{`muster run two\ w`, `muster run two\ words.py`, `two words.py`},
	{`muster run --verdict=two\ w`, `muster run --verdict=two\ words.py`, `--verdict=two words.py`},
	{`muster run 'two w`, `muster run 'two words.py'`, `two words.py`},
	{"muster run --verdict=~/ver", "muster run --verdict=~/verdict.json", "--verdict=~/verdict.json"},
}

// desk is a directory with a few files, and what a shell needs to find muster and another program.
func desk(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	programs := filepath.Join(dir, "programs")
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(programs, 0o755))
	must(os.Mkdir(filepath.Join(dir, "volume"), 0o755))
	for _, name := range []string{"train.py", "data.csv", "verdict.json", "volume.txt", "two words.py"} {
		must(os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	must(os.Symlink(executable(t), filepath.Join(programs, "muster")))
	must(os.Symlink("/bin/true", filepath.Join(programs, "only-here-to-be-found")))
	return dir, []string{asMuster + "=1", atOnce, "PATH=" + programs + ":/usr/bin:/bin", "HOME=" + dir, "TERM=dumb", "LC_ALL=C.UTF-8", "HISTFILE="}
}

// typist is a shell at a terminal, whose screen is an output.
type typist struct {
	*program
	master *os.File
}

func shellAt(t *testing.T, argv ...string) typist {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	raw, err := master.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_ = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
			n, _ := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			name = fmt.Sprintf("/dev/pts/%d", n)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	dir, env := desk(t)
	p := &program{t: t, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.out.changed = make(chan struct{})
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			p.out.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		master.Close()
		<-read
	})
	return typist{p, master}
}

func (x typist) types(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// In bash and zsh the tabulator key is pressed, and another one, which writes down what stands in the line and clears it.
func TestCompletionAtATerminal(t *testing.T) {
	t.Parallel()
	for _, shell := range []struct {
		argv  []string
		begin string
	}{
		{[]string{"bash", "--norc", "--noprofile", "-i"}, "source <(muster completion bash); bind 'set bell-style none'; " +
			`down() { ((n++)); printf '%s' "$READLINE_LINE" >"line$n"; echo "writ""ten $n;"; READLINE_LINE=; READLINE_POINT=0; }; bind -x '"\C-b": down'`},
		{[]string{"zsh", "-f", "-i"}, "autoload -U compinit; compinit -u -D; source <(muster completion zsh); setopt nobeep; " +
			`down() { ((n++)); printf '%s' "$BUFFER" >"line$n"; print "writ""ten $n;"; BUFFER=; zle reset-prompt }; zle -N down; bindkey '^B' down`},
	} {
		t.Run(shell.argv[0], func(t *testing.T) {
			x := shellAt(t, shell.argv...)
			x.types("PS1='> '; " + shell.begin + "; echo rea''dy\r")
			x.says("ready\r\n")
			all := completed
			for _, c := range quoted {
				all = append(all, struct{ typed, becomes string }{c.typed, c.becomes})
			}
			for i, c := range all {
				x.types(c.typed + "\t\x02")
				x.says(fmt.Sprintf("written %d;", i+1))
				line, err := os.ReadFile(filepath.Join(x.cmd.Dir, fmt.Sprint("line", i+1)))
				if got := strings.TrimSpace(string(line)); err != nil || got != c.becomes {
					t.Errorf("%q becomes %q, want %q; %v", c.typed, got, c.becomes, err)
				}
			}
		})
	}
}

// Fish itself says what it would complete.
func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	dir, env := desk(t)
	offered := func(typed string) string {
		cmd := exec.Command("fish", "--no-config", "-c", `muster completion fish | source; complete -C $argv[1]`, typed)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var all []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			all = append(all, word)
		}
		return strings.Join(all, " ")
	}
	for _, c := range completed {
		_, want := cutLast(c.becomes)
		if c.becomes == c.typed {
			want = ""
		}
		if got := offered(c.typed); got != want {
			t.Errorf("%q becomes %q, want %q", c.typed, got, want)
		}
	}
	for _, c := range quoted {
		if got := offered(c.typed); got != c.offered {
			t.Errorf("for %q it offers %q, want %q", c.typed, got, c.offered)
		}
	}
}

// cutLast is a line's last word, and what stands before it.
func cutLast(line string) (before, last string) {
	i := strings.LastIndex(line, " ")
	return line[:i], line[i+1:]
}

// What a shell is told where several words fit.
func TestComplete(t *testing.T) {
	for _, c := range []struct{ typed, also, words string }{
		{"", "nothing", "run discover env status"},
		{"--", "nothing", "--help --version"},
		{"health ", "nothing", "live ready"},
		{"run --worker-store ", "nothing", "auto agent rank0"},
		{"run --signal-scope=", "nothing", "--signal-scope=leader --signal-scope=group --signal-scope=tree"},
		{"run --nproc_per", "nothing", "--nproc-per-node"},
		{"run --zzz=", "nothing", ""},
		{"run --no-such value", "files", ""},
		{"run --module ", "files", ""},
		{"run --evidence ", "directories", ""},
		{"init ", "commands", ""},
		{"init -- ", "commands", ""},
		{"explain ", "nothing", ""},
		{"install --links=ss", "nothing", "--links=sshd --links=ssh"},
		{"ctl upgrade ", "files", ""},
		{"ctl nothing ", "files", ""},
		{"--help ", "files", ""},
	} {
		a := complete(strings.Split(c.typed, " "))
		var words []string
		for _, w := range a.words {
			words = append(words, w.text)
			if strings.ContainsAny(w.text+w.doc, "\t\n") {
				t.Errorf("%q: %q is no line", c.typed, w)
			}
		}
		got := strings.Join(words, " ")
		if a.also != c.also || got != c.words && (c.typed != "" || !strings.HasPrefix(got, c.words)) {
			t.Errorf("%q: %s and %q, want %s and %q", c.typed, a.also, got, c.also, c.words)
		}
	}
	if a := complete(strings.Split("run -", " ")); len(a.words) > 40 {
		t.Errorf("%d flags are shown at once", len(a.words))
	}
}

func TestCompletionCommand(t *testing.T) {
	for _, words := range []string{"", "csh", "bash zsh"} {
		muster(t, t.TempDir(), nil, append([]string{"completion"}, strings.Fields(words)...)...).ends(2, "give one of bash, zsh, fish")
	}
}
