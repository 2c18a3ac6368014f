// Package images builds muster's images and runs them in a container engine: buildah and podman, as root, with runc, and without a network.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

const top = "../.."

// patience bounds every command; the machine may be busy with much else.
const patience = 8 * time.Minute

func TestMain(m *testing.M) { stage.Main(m, 1) }

// An engine has images of its own.
type engine struct {
	t     *testing.T
	store []string
}

// open is an engine without images, for as long as the test runs. Overlay is quick where the kernel has it here; vfs copies.
func open(t *testing.T) *engine {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "images-") // on a disk: an image with PyTorch is large
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t, []string{"--storage-driver", "overlay", "--root", dir + "/images", "--runroot", dir + "/run"}}
	if _, err := e.try("buildah", "images"); err != nil {
		e.store[1] = "vfs"
	}
	t.Cleanup(func() {
		e.try("podman", "rm", "--all", "--force", "--time", "0")
		exec.Command("umount", dir+"/images/"+e.store[1]).Run()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return e
}

// try runs buildah or podman.
func (e *engine) try(program string, args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	argv := slices.Clone(e.store)
	if program == "podman" {
		argv = append(argv, "--runtime", "/usr/sbin/runc", "--cgroup-manager", "cgroupfs")
	}
	cmd := exec.CommandContext(ctx, program, append(argv, args...)...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (e *engine) do(program string, args ...string) string {
	e.t.Helper()
	said, err := e.try(program, args...)
	if err != nil {
		e.t.Fatalf("%s %q: %v\n%s", program, args, err, said)
	}
	return strings.TrimSpace(said)
}

// last is what a program prints behind its warnings.
func last(said string) string { return said[strings.LastIndex(said, "\n")+1:] }

// base has make build the image that holds nothing but muster, for both architectures, from what is built here already; and before that another
// one of that name, as whoever works on muster has.
func (e *engine) base() {
	e.t.Helper()
	dir := e.t.TempDir()
	if out, err := exec.Command("cp", "-r", top+"/LICENSE", top+"/Makefile", top+"/images", dir).CombinedOutput(); err != nil {
		e.t.Fatalf("%v: %s", err, out)
	}
	licences := filepath.Join(dir, "bin", "THIRD_PARTY_LICENSES")
	makes := []*exec.Cmd{exec.Command("go", "run", "./cmd/release", "-licences", licences, stage.Build(e.t))}
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(dir, "bin", "linux-"+arch, "muster")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("older"), 0o755), os.WriteFile(licences, nil, 0o644)); err != nil {
			e.t.Fatal(err)
		}
		cmd := exec.Command("cp", stage.Build(e.t), file)
		if arch != goarch(e.t) { // without the build for etcd in it
			cmd = exec.Command("sh", "-c", `rm "$1" && go build -o "$1" ./cmd/muster`, "sh", file)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
		}
		makes = append(makes, cmd)
	}
	e.image(dir)
	for _, cmd := range makes {
		cmd.Dir = top
		if out, err := cmd.CombinedOutput(); err != nil {
			e.t.Fatalf("%v: %s", err, out)
		}
	}
	e.image(dir)
}

// image is make's, of what is in a directory.
func (e *engine) image(dir string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-C", dir, "image", "--old-file=both", "BUILDAH=buildah "+strings.Join(e.store, " "))
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("%v: %s", err, out)
	}
}

func goarch(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// bare is how every container runs here: nothing may be written but memory, nobody is root, and there is no capability.
var bare = []string{"run", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none",
	"--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--env", "OMP_NUM_THREADS=1", "--env", "USE_LIBUV=0"} // Debian's PyTorch has no libuv

// run runs a container to its end.
func (e *engine) run(code int, says string, args ...string) {
	e.t.Helper()
	said, err := e.try("podman", slices.Concat(bare, []string{"--rm"}, args)...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		e.t.Fatal(err)
	}
	if got != code || !strings.Contains(said, says) {
		e.t.Errorf("%q: exit code %d, want %d and %q:\n%s", args, got, code, says, said)
	}
}

// programs are what a container without a system needs of another one to run Python: Debian's, with PyTorch, as volumes.
func programs(t *testing.T) (root string, volumes []string) {
	t.Helper()
	root = filepath.Join(filepath.Dir(stage.Python(t, "trixie")), "root")
	for from, to := range map[string]string{"usr": "/usr", "usr/bin": "/bin", "usr/lib": "/lib", "usr/lib64": "/lib64", "etc": "/etc"} {
		volumes = append(volumes, "--volume", filepath.Join(root, from)+":"+to+":ro")
	}
	return root, append(volumes, app(t)...)
}

// app is the demo's training, and what the tests have a worker do. PyTorch, not muster, wants a directory for temporary files.
func app(t *testing.T) []string {
	t.Helper()
	return []string{"--tmpfs", "/tmp", "--volume", stage.File(t, top+"/examples/pytorch-ddp") + ":/app:ro", "--volume", stage.File(t, "testdata") + ":/tests:ro"}
}

// The base image by itself, and as the first process of containers that have another system's Python.
func TestBase(t *testing.T) {
	e := open(t)
	e.base()
	_, volumes := programs(t)
	with := func(args ...string) []string { return slices.Concat(volumes, []string{"localhost/muster"}, args) }
	two := func(args ...string) []string {
		return with(append([]string{"run", "--nproc-per-node", "2"}, args...)...)
	}
	python := func(script string) []string { return two("--", "/usr/bin/python3", "-c", script) }

	for _, arch := range []string{"amd64", "arm64"} {
		e.isFor(arch)
	}
	e.run(0, " linux/", "localhost/muster", "version")
	e.run(2, "muster starts distributed training", "localhost/muster")
	e.run(0, "world size 2, accuracy 0.9", two("/app/train.py", "--expect-world", "2", "--epochs", "8")...)
	e.run(0, "rank 1 is as it should be", two("/tests/inside.py")...)
	e.run(0, "world size 2, accuracy 0.9", slices.Concat([]string{"--user", "1000650000:0", "--unsetenv", "HOME", "--shm-size", "64k"}, two("/app/train.py", "--expect-world", "2", "--epochs", "8"))...) // as OpenShift does
	e.run(7, "exited with code 7", python("import os, sys; sys.exit(7 * (os.environ['RANK'] == '1'))")...)
	e.run(137, "was killed by SIGKILL, which muster did not send", python("import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), 9); signal.pause()")...)
	e.run(122, "SIGSEGV", python("import os, signal; os.kill(os.getpid(), 11)")...)
	e.run(127, "no-such-program", two("--", "no-such-program")...)
	e.run(0, "no zombie is left", two("/tests/orphans.py")...)
	e.run(3, "", with("init", "--", "/usr/bin/python3", "-c", "raise SystemExit(3)")...)
	e.run(71, "has to be writable where muster is installed", "localhost/muster", "install", "/opt/muster")
	e.stops(with("run", "--nproc-per-node", "2", "/tests/saves.py"))
	e.installs(volumes)
}

// isFor looks at the image of an architecture: who it runs as, and for which machine its program is.
func (e *engine) isFor(arch string) {
	e.t.Helper()
	list := struct {
		Manifests []struct {
			Digest   string
			Platform struct{ Architecture, OS string }
		}
	}{}
	if err := json.Unmarshal([]byte(e.do("buildah", "manifest", "inspect", "localhost/muster")), &list); err != nil {
		e.t.Fatal(err)
	}
	for _, m := range list.Manifests {
		if m.Platform.Architecture != arch {
			continue
		}
		from := last(e.do("buildah", "from", "localhost/muster@"+m.Digest))
		at := e.do("buildah", "mount", from)
		out, err := exec.Command("go", "version", "-m", at+"/muster").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "GOARCH="+arch) || !strings.Contains(string(out), "CGO_ENABLED=0") {
			e.t.Errorf("%s: %v %.300s", arch, err, out)
		}
		files, err := os.ReadDir(at)
		if err != nil || len(files) != 3 {
			e.t.Errorf("%s has %v, %v", arch, files, err)
		}
		if text, err := os.ReadFile(at + "/THIRD_PARTY_LICENSES"); err != nil || !strings.Contains(string(text), "\n  go.etcd.io/etcd/client/v3 ") {
			e.t.Errorf("%s: licences of others are not in it: %v %.300s", arch, err, text)
		}
		if said := e.do("buildah", "inspect", "--format", "{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}", from); said != "65532:65532 [/muster]" {
			e.t.Errorf("%s: %s", arch, said)
		}
		if arch != goarch(e.t) {
			e.emulated(arch, at+"/muster")
		}
		e.do("buildah", "rm", from)
		return
	}
	e.t.Errorf("there is no image for %s in %+v", arch, list)
}

// emulators are what runs another architecture's programs, and that one's number in ELF files.
var emulators = map[string][2]string{"arm64": {"qemu-aarch64-static", `\xb7`}, "amd64": {"qemu-x86_64-static", `\x3e`}}

// emulated runs another architecture's program, with workers of this one: in a user namespace, whose kernel alone is told of the emulator.
func (e *engine) emulated(arch, program string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--mount", "--kill-child", "sh", "-euc", `
		mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
		printf '%s' ":other:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00$2\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v $1):F" >/proc/sys/fs/binfmt_misc/register
		$3 version
		$3 run --nproc-per-node 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE; exit $((RANK * 7))'
	`, "sh", emulators[arch][0], emulators[arch][1], program)
	cmd.WaitDelay = 10 * time.Second
	out, _ := cmd.CombinedOutput()
	for _, want := range []string{" linux/" + arch + " ", "[rank 0] rank 0 of 2\n", "[rank 1] rank 1 of 2\n", "exited with code 7; exit 7"} {
		if !strings.Contains(string(out), want) {
			e.t.Errorf("%s: exit code %d, and no %q in\n%s", arch, cmd.ProcessState.ExitCode(), want, out)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		e.t.Errorf("%s: exit code %d, want 7", arch, code)
	}
}

// stops tells a container's first process to end: its workers save, and the last words say so.
func (e *engine) stops(args []string) {
	e.t.Helper()
	id := last(e.do("podman", slices.Concat(bare, []string{"--detach"}, args)...))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	logs := exec.CommandContext(ctx, "podman", slices.Concat(e.store, []string{"logs", "--follow", id})...)
	pipe, err := logs.StdoutPipe()
	if err == nil {
		err = logs.Start()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	said, told := "", false
	for buf := make([]byte, 4096); ; {
		n, err := pipe.Read(buf)
		if said += string(buf[:n]); !told && strings.Count(said, "trains") == 2 {
			told = true
			e.do("podman", "kill", "--signal", "TERM", id)
		}
		if err != nil {
			break
		}
	}
	_ = logs.Wait()
	if code := e.do("podman", "wait", id); code != "143" || strings.Count(said, "saved") != 2 {
		e.t.Errorf("told to stop: exit code %s, want 143, and two saved:\n%s", code, said)
	}
}

// installs has an init container put muster into a volume that anybody may write to, and another image begin with it.
func (e *engine) installs(volumes []string) {
	e.t.Helper()
	volume := e.t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil {
		e.t.Fatal(err)
	}
	e.run(0, ", with links torchrun accelerate ", "--volume", volume+":/opt/muster", "localhost/muster", "install", "/opt/muster", "--links")
	e.do("buildah", "bud", "--isolation", "chroot", "-t", "other", "-f", e.file("FROM scratch\nUSER 4711\n"), e.t.TempDir())
	e.run(0, "world size 2, accuracy 0.9", slices.Concat(volumes, []string{"--volume", volume + ":/opt/muster:ro", "localhost/other",
		"/opt/muster/torchrun", "--nproc_per_node", "2", "/app/train.py", "--expect-world", "2", "--epochs", "8"})...)
}

// file is one with a text.
func (e *engine) file(text string) string {
	e.t.Helper()
	name := filepath.Join(e.t.TempDir(), "Dockerfile")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		e.t.Fatal(err)
	}
	return name
}

// trainings are the images that train.
func trainings(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(top + "/images/*.Dockerfile")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".Dockerfile")] = string(text)
	}
	return all
}

// TestTraining builds each training image from where muster comes into it, over Debian with PyTorch: CUDA's images are not to be had
// without a network. The steps are the same in all of them.
func TestTraining(t *testing.T) {
	e := open(t)
	e.base()
	root, _ := programs(t)
	tar := exec.Command("tar", "-C", root, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "-cf", filepath.Join(t.TempDir(), "root.tar"), ".")
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e.do("podman", "import", tar.Args[len(tar.Args)-2], "localhost/debian-torch")
	same := ""
	for name, text := range trainings(t) {
		_, steps, found := strings.Cut(text, "\nFROM made\n")
		if !found || same != "" && steps != same {
			t.Errorf("the steps of %s are others", name)
		}
		same = steps
	}
	// whatever its user is, and though it has a server for ssh
	e.do("buildah", "bud", "--isolation", "chroot", "-t", "train", "-f", e.file("FROM localhost/debian-torch\nRUN touch /usr/sbin/sshd\nUSER 4711\n"+same), t.TempDir())
	with := func(entry string, args ...string) []string {
		how := []string{"--env", "MUSTER_NPROC_PER_NODE=2"}
		if entry != "" {
			how = []string{"--entrypoint", entry}
		}
		return slices.Concat(app(t), how, []string{"localhost/train"}, args)
	}
	trains := []string{"train.py", "--expect-world", "2", "--epochs", "8"}
	e.run(0, "world size 2, accuracy 0.9", with("", trains...)...)
	e.run(0, "world size 2, accuracy 0.9", with("torchrun", append([]string{"--nproc_per_node=2"}, trains...)...)...)
	e.run(0, "world size 2, accuracy 0.9", with("accelerate", append(strings.Fields("launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"), trains...)...)...)
	e.run(0, "world size 2, accuracy 0.9", with("sh", "-c", "torchrun --nproc_per_node=2 "+strings.Join(trains, " "))...)
	e.run(0, "rank 1 is as it should be", with("", "/tests/inside.py")...)
	e.run(0, " /opt/muster/torchrun (muster), ", with("muster", "doctor")...)
	e.run(0, "muster", with("readlink", "/usr/sbin/sshd")...)

	// What the pages say to write into a Dockerfile.
	e.do("buildah", "bud", "--isolation", "chroot", "-t", "links", "-f", e.file("FROM localhost/debian-torch\n"+written(t, "docs/images.md", "COPY --from=muster")+
		written(t, "docs/moving.md", "RUN muster install")+written(t, "docs/no-ssh.md", "RUN ln -sf")), t.TempDir())
	e.run(0, "world size 2, accuracy 0.9", slices.Concat(app(t), []string{"--workdir", "/app", "--env", "MUSTER_NPROC_PER_NODE=2", "localhost/links"}, trains)...)
	e.run(0, "world size 2, accuracy 0.9", slices.Concat(app(t), []string{"--workdir", "/app", "--entrypoint", "torchrun", "localhost/links", "--nproc-per-node", "2"}, trains)...)
	e.run(0, "", "--entrypoint", "test", "localhost/links", "-x", "/usr/sbin/sshd", "-a", "-x", "/usr/bin/ssh", "-a", "-x", "/usr/local/bin/deepspeed")
	e.checkout("localhost/debian-torch")
}

// checkout types what the README has one type in a checkout, over a base that is to be had here: a checkout has whatever tells engines what to leave out.
func (e *engine) checkout(base string) {
	e.t.Helper()
	dir := e.t.TempDir()
	file := regexp.MustCompile(`^FROM .*`).ReplaceAllString(written(e.t, "README.md", "FROM "), "FROM "+base)
	err := os.WriteFile(dir+"/Dockerfile", []byte(file), 0o644)
	if out, failed := exec.Command("bash", "-euc", `install -D "$1" "$2/bin/muster"; cp -r "$3"/.*ignore "$3/examples" "$2"`, "bash", stage.Build(e.t), dir, top).CombinedOutput(); err != nil || failed != nil {
		e.t.Fatalf("%v, %v: %s", err, failed, out)
	}
	lines := strings.Split(strings.ReplaceAll(written(e.t, "README.md", "docker build "), "$PWD", dir), "\n")
	build, run := strings.Fields(lines[0]), strings.Fields(strings.Split(lines[1], "#")[0])
	if !slices.Equal(run[:2], []string{"docker", "run"}) || build[len(build)-1] != "." {
		e.t.Fatalf("what is %q?", lines)
	}
	build[len(build)-1] = dir
	e.do("buildah", append([]string{"bud", "--isolation", "chroot"}, build[2:]...)...)
	e.run(0, "world size 1, accuracy 0.9", append([]string{"--tmpfs", "/tmp"}, run[2:]...)...)
}

// written is a block of a page that begins so: lines of a Dockerfile.
func written(t *testing.T, page, begins string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(strings.ReplaceAll("\n"+string(text), "\n    ", "\n"), "\n"+begins)
	if !found {
		t.Fatalf("%s has no block that begins with %q", page, begins)
	}
	rest, _, _ = strings.Cut(rest, "\n\n")
	rest, _, _ = strings.Cut(rest, "\n```")
	return begins + rest + "\n"
}

// instructions are those of Dockerfiles that are used here.
var instructions = strings.Fields("ARG FROM RUN COPY ENV USER WORKDIR ENTRYPOINT")

// TestDockerfiles reads what cannot be built here: every line is an instruction, every base has a version, and what is installed is what the
// tests train with.
func TestDockerfiles(t *testing.T) {
	pins := ""
	for _, file := range []string{"requirements.txt", "launchers.txt", "interop/requirements/paddle.txt"} {
		text, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		pins += string(text)
	}
	pin := regexp.MustCompile(`([a-z-]+)==([0-9.]+)`)
	version := regexp.MustCompile(`^ARG [A-Z]+=[a-z./]+:[0-9][0-9a-z.-]+$`)
	for name, text := range trainings(t) {
		lines := strings.Split(strings.TrimSpace(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, "")), "\n")
		stages := []string{"muster"}
		for _, line := range lines {
			word, rest, _ := strings.Cut(line, " ")
			fields := strings.Fields(rest)
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case !slices.Contains(instructions, word) || len(fields) == 0:
				t.Errorf("%s: what is %q?", name, line)
			case word == "ARG" && !version.MatchString(line):
				t.Errorf("%s: %q names no version", name, line)
			case word == "FROM" && fields[0] != "${CUDA}" && !slices.Contains(stages, fields[0]):
				t.Errorf("%s: %q is no stage", name, fields[0])
			case word == "FROM" && len(fields) == 3:
				stages = append(stages, fields[2])
			case word == "COPY" && !slices.Contains(stages, strings.TrimPrefix(fields[0], "--from=")):
				t.Errorf("%s: %q is of no stage", name, line)
			case (word == "ENTRYPOINT" || word == "RUN") && strings.HasPrefix(rest, "["):
				var argv []string
				if err := json.Unmarshal([]byte(rest), &argv); err != nil {
					t.Errorf("%s: %q: %v", name, line, err)
				}
			case word == "RUN":
				if out, err := exec.Command("sh", "-nc", rest).CombinedOutput(); err != nil {
					t.Errorf("%s: %q: %s", name, line, out)
				}
			}
		}
		if last := strings.Join(lines[len(lines)-3:], "\n"); last != "USER 1000:1000\nWORKDIR /app\nENTRYPOINT [\"muster\", \"run\", \"--\"]" {
			t.Errorf("%s ends with\n%s", name, last)
		}
		found := pin.FindAllStringSubmatch(text, -1)
		for _, m := range found {
			if want := fmt.Sprintf("%s==%s\n", strings.TrimSuffix(m[1], "-gpu"), m[2]); !strings.Contains(pins, want) {
				t.Errorf("%s installs %s, which is not what is tested", name, m[0])
			}
		}
		if len(found) == 0 {
			t.Errorf("%s installs nothing", name)
		}
	}
}
