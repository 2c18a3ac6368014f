package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology/fixture"
)

// machineTree is a machine of topology's testdata.
func machineTree(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../topology/testdata/machines", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return fixture.Tree(t, string(text))
}

// The keys that the JSON has for others, and nvidia-smi's answers in it.
func TestProbe(t *testing.T) {
	root, dir := machineTree(t, "dgx-h100"), t.TempDir()
	smi := script(t, dir, "nvidia-smi", `case "$1" in
--query-gpu=pci.bus_id,uuid,name) echo "00000000:1B:00.0, GPU-other, other" ;;
--query-gpu=pci.bus_id,fabric.state,*) echo "00000000:1B:00.0, Completed, Success" ;;
topo) printf '\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n' ;;
*) echo "Field is not a valid field to query." >&2; exit 2 ;;
esac`)
	picture := filepath.Join(dir, "machine.svg")
	p := muster(t, dir, nil, "probe", "--root", root, "--json", "--svg", picture, "--nvidia-smi", smi)
	p.ends(0)
	var got struct {
		Platform   string
		NVSwitches int
		GPUs       []struct {
			Index                      int
			Address, UUID, Model, CPUs string
			NUMA                       int
			Visible                    bool
			Links                      []struct{ GPU, Links int }
			Told                       struct{ Fabric string } `json:"nvidia_smi"`
		}
		HCAs []struct {
			Name, Address, State, Why string
			Port, NUMA                int
			Rate                      float64 `json:"rate_gbps"`
			Layer                     string  `json:"link_layer"`
			Usable                    bool
		}
		Affinity []struct {
			GPU      int
			HCAs     []string
			Relation string
		}
		Unknown []string
	}
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil {
		t.Fatal(err, p.out.String())
	}
	if got.Platform != "dgx" || got.NVSwitches != 4 || len(got.GPUs) != 8 || len(got.HCAs) != 12 || len(got.Affinity) != 8 || len(got.Unknown) != 3 {
		t.Fatalf("%+v", got)
	}
	g, h, down, a := got.GPUs[0], got.HCAs[0], got.HCAs[2], got.Affinity[7]
	if g.Address != "0000:1b:00.0" || !strings.HasPrefix(g.UUID, "GPU-0000d6a1") || g.Model != "NVIDIA H100 80GB HBM3" || g.CPUs != "0-55,112-167" || g.NUMA != 0 || !g.Visible ||
		g.Told.Fabric != "Completed" || len(g.Links) != 7 || g.Links[6].Links != 18 {
		t.Errorf("GPU %+v", g)
	}
	if h.Name != "mlx5_0" || h.Address != "0000:18:00.0" || h.Port != 1 || h.State != "ACTIVE" || h.Rate != 400 || h.Layer != "InfiniBand" || !h.Usable || h.Why != "" ||
		down.Usable || down.Why == "" || down.State != "DOWN" {
		t.Errorf("adapters %+v and %+v", h, down)
	}
	if a.GPU != 7 || strings.Join(a.HCAs, " ") != "mlx5_11" || a.Relation != "PXB" {
		t.Errorf("affinity %+v", a)
	}
	if b, err := os.ReadFile(picture); err != nil || !strings.HasPrefix(string(b), "<svg ") {
		t.Errorf("the drawing: %v, %.80s", err, b)
	}
}

// script writes a shell script.
func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// This machine, and words that are wrong.
func TestProbeHere(t *testing.T) {
	muster(t, t.TempDir(), nil, "probe").ends(0, "loopback", "CPUs       ")
	here := filepath.Join(t.TempDir(), "here.txt")
	muster(t, t.TempDir(), nil, "probe", "--snapshot", here, "--mask").ends(0)
	text, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	muster(t, t.TempDir(), nil, "probe", "--root", fixture.Tree(t, string(text))).ends(0, "loopback")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "stat /no/such: no such file or directory", []string{"--root", "/no/such"}},
		{2, "not a directory", []string{"--root", "/proc/version"}},
		{2, "it has to be a directory with sys, proc and dev in it", []string{"--root", t.TempDir()}},
		{job.ExitSystem, "probe: --svg: write /dev/full: no space left on device", []string{"--svg", "/dev/full"}},
		{2, "--mask is for --snapshot FILE", []string{"--mask"}},
		{job.ExitSystem, "--snapshot: open /no/such/file", []string{"--snapshot", "/no/such/file"}},
		{2, `not "gpu"`, []string{"gpu"}},
		{job.ExitSystem, "--svg: open /no/such/file", []string{"--svg", "/no/such/file"}},
	} {
		muster(t, t.TempDir(), nil, append([]string{"probe"}, c.args...)...).ends(c.code, c.says)
	}
}
