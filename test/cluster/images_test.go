package cluster

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

const top = "../.."

// registry is where the manifests of the examples have their images. Nobody asks it: all images lie on the nodes.
const registry = "registry.example/"

// An image is made by steps from a directory.
type image struct {
	name  string
	steps string
	from  map[string]string // name in the directory to what it is
}

// images makes what the pods run, without a network, and returns files that hold it.
func (c *cluster) images() []string {
	c.t.Helper()
	of := func(name, program, entry string) image {
		return image{name, "FROM scratch\nCOPY program " + entry + "\nUSER 65532:65532\nENTRYPOINT [\"" + entry + "\"]\n", map[string]string{"program": filepath.Join(c.bin, program)}}
	}
	all := [][]image{{of(pause, "pause", "/pause")}, {base(c.t)}, training(c.t)}
	for _, o := range operators {
		for _, program := range o.images {
			all = append(all, []image{of(registry+program+":1", program, entrypoints[program])})
		}
	}
	var files []string
	for _, images := range all {
		files = append(files, c.archive(images))
	}
	return files
}

// base is muster's base image, but for the licences.
func base(t *testing.T) image {
	t.Helper()
	steps := strings.Replace(text(t, top+"/images/Dockerfile"), " bin/THIRD_PARTY_LICENSES", "", 1)
	return image{registry + "muster:1", steps, map[string]string{"bin/linux-" + runtime.GOARCH + "/muster": stage.Build(t), "LICENSE": top + "/LICENSE"}}
}

// training is Debian with PyTorch, without muster, and what images/pytorch.Dockerfile makes where CUDA's images cannot be had: its steps over
// that, and a training.
func training(t *testing.T) []image {
	t.Helper()
	_, steps, found := strings.Cut(text(t, top+"/images/pytorch.Dockerfile"), "\nFROM made\n")
	if !found {
		t.Fatal("images/pytorch.Dockerfile has no stage called made")
	}
	steps = regexp.MustCompile(`COPY --from=muster \S+`).ReplaceAllString(steps, "COPY muster")
	root := filepath.Join(filepath.Dir(stage.Python(t, "trixie")), "root")
	torch := registry + "torch:1"
	return []image{
		{torch, "FROM scratch\nADD root.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin USE_LIBUV=0 OMP_NUM_THREADS=1\n", map[string]string{"root.tar": root}},
		{registry + "train:1", "FROM " + torch + "\nCOPY nslookup /usr/local/bin/nslookup\nCOPY app /app/demo\nCOPY train.py /app/train.py\nCOPY seed /app/scripts\nCOPY seed /app/lora-scripts/sd-scripts\nCOPY train.py /app/lora-scripts/sd-scripts/train.py\n" + steps,
			map[string]string{"muster": stage.Build(t), "app": top + "/examples/pytorch-ddp", "train.py": "testdata/train.py", "nslookup": "testdata/nslookup", "seed": "../platforms/testdata/seed"}},
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// key changes with whatever is in an image. Debian's system has its recipe in its path.
func (i image) key(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintln(sum, i.name, i.steps)
	for _, name := range slices.Sorted(maps.Keys(i.from)) {
		from := i.from[name]
		if filepath.Base(from) == "root" {
			from, _ = filepath.EvalSymlinks(from)
			fmt.Fprintln(sum, from)
			continue
		}
		err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(sum, f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6])
}

// archive builds images, each of which may stand on those before it, if they are not what they were the last time, and returns the file that
// holds them all.
func (c *cluster) archive(images []image) string {
	t := c.t
	t.Helper()
	kind, keys := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(images[len(images)-1].name, "-"), ""
	for _, i := range images {
		keys += "-" + i.key(t)
	}
	file := filepath.Join(cache(t), "image-"+kind+keys+".tar")
	defer lock(t, filepath.Join(cache(t), "image-"+kind+".lock"))()
	if exists(file) {
		return file
	}
	before, _ := filepath.Glob(filepath.Join(cache(t), "image-"+kind+"-*.tar*"))
	for _, old := range before {
		os.Remove(old)
	}
	dir := c.scratch()
	store := []string{"--storage-driver", "overlay", "--root", dir + "/images", "--runroot", dir + "/run"}
	defer os.RemoveAll(dir)
	defer exec.Command("umount", dir+"/images/overlay").Run()
	save := slices.Concat([]string{"podman"}, store, []string{"save", "--quiet", "--multi-image-archive", "--output", file + ".new"})
	for n, i := range images {
		t.Logf("building %s", i.name)
		from := filepath.Join(dir, fmt.Sprint(n))
		i.gather(t, from)
		command(t, "", slices.Concat([]string{"buildah"}, store, []string{"bud", "--isolation", "chroot", "-t", i.name, from})...)
		save = append(save, i.name)
	}
	command(t, "", save...)
	rename(t, file)
	return file
}

// gather puts what an image is made of into a directory.
func (i image) gather(t *testing.T, dir string) {
	t.Helper()
	for name, from := range i.from {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		argv := []string{"cp", "-rL", "--preserve=mode", from, to}
		if strings.HasSuffix(name, ".tar") {
			argv = []string{"tar", "-C", from, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "--exclude=./usr/share/doc/*", "--exclude=./usr/share/locale/*",
				"--exclude=./var/cache/*", "--exclude=./var/lib/apt/*", "-cf", to, "."}
		}
		command(t, "", argv...)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(i.steps), 0o644); err != nil {
		t.Fatal(err)
	}
}
