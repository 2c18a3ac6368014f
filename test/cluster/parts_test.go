package cluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A part is a program that is built from a module, whose versions parts/MODULE/go.mod has.
type part struct {
	module, program, path string
}

var parts = []part{
	{"kubernetes", "kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kubernetes", "kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kubernetes", "kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubernetes", "kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"kubernetes", "kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kubernetes", "kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"coredns", "coredns", "."},
	{"training-operator", "training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1"},
	{"lws", "lws", "sigs.k8s.io/lws/cmd"},
	{"volcano", "vc-scheduler", "volcano.sh/volcano/cmd/scheduler"},
	{"volcano", "vc-controller-manager", "volcano.sh/volcano/cmd/controller-manager"},
}

// cache is where what takes long is kept.
func cache(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "muster")
}

// programs builds the cluster's programs once, and returns their directory. Another one at the same time waits.
func programs(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	for _, p := range parts {
		for _, name := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join("parts", p.module, name))
			if err != nil {
				t.Fatal(err)
			}
			sum.Write(text)
		}
	}
	dir := filepath.Join(cache(t), fmt.Sprintf("cluster-%x", sum.Sum(nil)[:6]))
	defer lock(t, dir+".lock")()
	for _, p := range parts {
		if file := filepath.Join(dir, p.program); !exists(file) {
			t.Logf("building %s; all of them take a quarter of an hour, once", p.program)
			p.build(t, file)
		}
	}
	if file := filepath.Join(dir, "pause"); !exists(file) {
		code := filepath.Join(source(t, "kubernetes", "k8s.io/kubernetes"), "build/pause/linux/pause.c")
		command(t, "", "gcc", "-Os", "-static", "-DVERSION=v3.10.1", "-o", file+".new", code)
		rename(t, file)
	}
	return dir
}

func (p part) build(t *testing.T, file string) {
	t.Helper()
	flags := "-s -w"
	if p.module == "kubernetes" { // a kubelet says to which release it belongs
		version := strings.TrimSpace(command(t, "parts/"+p.module, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"))
		numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
		for name, value := range map[string]string{"gitVersion": version, "gitMajor": numbers[0], "gitMinor": numbers[1], "gitTreeState": "clean"} {
			flags += " -X k8s.io/component-base/version." + name + "=" + value
		}
	}
	command(t, "parts/"+p.module, "nice", "go", "build", "-trimpath", "-ldflags", flags, "-o", file+".new", p.path)
	rename(t, file)
}

// source is where a module lies which a part requires.
func source(t *testing.T, part, module string) string {
	t.Helper()
	return strings.TrimSpace(command(t, "parts/"+part, "go", "list", "-m", "-f", "{{.Dir}}", module))
}

// rename makes a file whole at once.
func rename(t *testing.T, file string) {
	t.Helper()
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// lock keeps others out until the function that it returns is called.
func lock(t *testing.T, file string) func() {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// command runs a program here, without the flags for building muster.
func command(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, &said)
	}
	return string(out)
}

// TestVersions holds the page to what is built.
func TestVersions(t *testing.T) {
	page, err := os.ReadFile(top + "/docs/e2e.md")
	if err != nil {
		t.Fatal(err)
	}
	for module, name := range map[string]string{"kubernetes": "kubelet, kubectl", "training-operator": "training-operator", "lws": "LeaderWorkerSet", "volcano": "Volcano", "coredns": "CoreDNS"} {
		text, err := os.ReadFile(filepath.Join("parts", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		_, required, _ := strings.Cut(string(text), "\nrequire ")
		fields := strings.Fields(strings.TrimLeft(required, "( \n\t"))
		if want := name + " " + strings.TrimPrefix(fields[1], "v"); !strings.Contains(string(page), want) {
			t.Errorf("docs/e2e.md does not say %q", want)
		}
	}
}
