package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/install"
)

// stagedAt runs muster install in a mount namespace of its own, in which a script has prepared the directory. The program is named by a
// descriptor: another user may not pass through the directories in which tests are built.
func stagedAt(t *testing.T, prepare string, args ...string) (said string, code int) {
	t.Helper()
	self, err := os.Open(executable(t))
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	script := "dir=$1; shift; mount -t tmpfs -o mode=755 tmpfs /mnt; chmod 755 /mnt; " + prepare + "\n"
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-euc", script + `exec $become /proc/self/fd/3 "$@"`, "sh", "/mnt/volume"}, args...)...)
	cmd.Env = []string{asMuster + "=1", atOnce, "PATH=" + os.Getenv("PATH"), "TMPDIR=/mnt", "become="}
	cmd.ExtraFiles = []*os.File{self}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// Who finds another one at work says so, and waits for it, but not for ever.
func TestInstallWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p := muster(t, dir, nil, "install", dir)
	p.says("another muster install is at work there; waiting for it, 2m0s at most")
	if err := unix.Flock(int(other.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	p.ends(0, "/muster is muster")
	synctest.Test(t, func(t *testing.T) {
		began, said := time.Now(), 0
		err := unlessBusy(func() error { return install.ErrBusy }, func() { said++ })
		if took := time.Since(began); !errors.Is(err, install.ErrBusy) || said != 1 || took < busyTime || took > busyTime+time.Second {
			t.Errorf("%v after %v, said %d times", err, took, said)
		}
	})
}

func TestInstall(t *testing.T) {
	const user = `become="setpriv --reuid 1000 --regid 1000 --clear-groups"; `
	install := func(args ...string) []string { return append([]string{"install"}, args...) }
	for _, c := range []struct {
		name, prepare string
		args          []string
		code          int
		says          string
	}{
		{"a volume of all", user + "mkdir -m 777 $dir", install("/mnt/volume", "--links"), 0, ", with links torchrun accelerate "},
		{"some links", user + "mkdir -m 777 $dir", install("--links=sshd,torchrun", "/mnt/volume"), 0, "with links sshd torchrun\n"},
		{"no links", user + "mkdir -m 777 $dir", install("--links=no", "/mnt/volume/made/here"), 0, "/mnt/volume/made/here/muster is muster "},
		{"a volume of another", user + "mkdir $dir", install("/mnt/volume"), 71, "user 1000 may not write in /mnt/volume; let it be the volume's owner, or of its group (a pod's fsGroup)"},
		{"no volume, and none may be made", user, install("/mnt/volume"), 71, "user 1000 may not write"},
		{"little room", "mkdir $dir; mount -t tmpfs -o size=2m tmpfs $dir", install("/mnt/volume"), 71, "no space left on device: muster needs "},
		{"read-only", "mkdir $dir; mount -t tmpfs -o ro tmpfs $dir", install("/mnt/volume"), 71, "/mnt/volume has to be writable where muster is installed; other containers may mount it readOnly"},
		{"not to be run", "mkdir $dir; mount -t tmpfs -o noexec tmpfs $dir", install("/mnt/volume"), 0, "muster: /mnt/volume is mounted noexec here: nothing in it can be run\n"},
		{"a file for a volume", "touch $dir", install("/mnt/volume"), 71, "/mnt/volume is no directory"},
		{"another torchrun", "mkdir $dir; touch $dir/torchrun", install("/mnt/volume", "--links"), 2, "/mnt/volume/torchrun is there already, and is another program; nothing was written: move it away, or give another directory"},
		{"a name that is none", "", install("/mnt/volume", "--links=rsh"), 2, `muster does not stand in for "rsh"; it does for torchrun, `},
		{"a flag that is none", "", install("/mnt/volume", "--link"), 2, "unknown flag --link; did you mean --links?"},
		{"nowhere", "", install("--links"), 2, "install: give one DIR"},
		{"an empty variable", "", install(""), 2, "install: give one DIR"},
		{"names without =", "", install("/mnt/volume", "--links", "torchrun"), 2, "names of links behind =; for example: muster install /opt/muster --links=torchrun,"},
		{"a link that leads nowhere", "ln -s nowhere $dir", install("/mnt/volume"), 71, "/mnt/volume is no directory"},
		{"two places", "", install("/mnt/a", "/mnt/b"), 2, "install: give one DIR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, code := stagedAt(t, c.prepare, c.args...)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.says, said)
			}
		})
	}
}

// What was installed is this program, by its own name and by those of its links, and installs again what is there already.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	for _, how := range []string{" is ", " was already "} {
		muster(t, dir, nil, "install", dir, "--links").ends(0, filepath.Join(dir, "muster")+how+"muster ")
	}
	startProgram(t, dir, nil, filepath.Join(dir, "muster"), "version").ends(0, " linux/")
	startProgram(t, dir, nil, filepath.Join(dir, "torchrun"), "--help").ends(0, "start a job as torchrun does")
	startProgram(t, dir, nil, filepath.Join(dir, "torchrun"), "--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE").ends(0, "rank 0 of 1")
}

// In a shell script that muster runs, too, a variable of its own says nothing of links.
func TestInstallInAScript(t *testing.T) {
	dir := t.TempDir()
	p := muster(t, dir, []string{"SELF=" + executable(t)}, "run", "--", "sh", "-c", `"$SELF" install here && ls here && "$SELF" run -- true`)
	p.ends(0, "here/muster is muster ")
}
