package torch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/rendezvous/torchrun"
)

// layout is that of the rendezvous state of b's torchrun.
func (b build) layout() torchrun.Layout {
	if b.modern {
		return torchrun.Torch26
	}
	return torchrun.Torch113
}

// shared reports whether b's torchrun lets the workers use the agent's store.
func (b build) shared() bool { return b.modern && !b.noLibuv }

// joinTorchrun: a node of ours and one of torchrun's are one job, each with a worker, ours with the lower rank and with
// the higher.
func (s *stage) joinTorchrun(t *testing.T) {
	for rank, addr := range []string{"-ours", "zz-ours"} {
		t.Run(fmt.Sprint("as rank ", rank), func(t *testing.T) { s.joinAs(t, rank, addr) })
	}
}

func (s *stage) joinAs(t *testing.T, rank int, addr string) {
	ctx, cancel := context.WithTimeout(t.Context(), 190*time.Second)
	defer cancel()
	port := serve(t)
	pipe := filepath.Join(t.TempDir(), "env")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		args := s.torchrunArgs(2, port, abs(t, "scripts/env_group.py"), "2")
		s.must(t, world{Script: "beside_torchrun.py", Args: args, Envs: []map[string]string{s.torchrunEnv(), {"ENV_FROM": pipe}}})
	})
	defer all.Wait()
	n := torchrun.New(dial(t, ctx, port), torchrun.Config{
		RunID: "job", Desc: torchrun.Desc{Addr: addr, Pid: int32(os.Getpid())}, Slots: 1, Layout: s.layout(),
		Limits: torchrun.Limits{Min: 2, Max: 2}, Shared: s.shared(), Master: s.master(t),
	})
	r, err := n.Join(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	want := torchrun.Round{Rank: rank, Nodes: 2, First: rank, World: 2, RoleFirst: rank, RoleWorld: 2, MasterAddr: r.MasterAddr, MasterPort: r.MasterPort}
	if *r != want {
		t.Errorf("%+v, want %+v", *r, want)
	}
	check(t, "start our worker", s.startWorker(pipe, r))
	waiting, err := n.Beat(ctx)
	if waiting != 0 || err != nil {
		t.Errorf("%d nodes wait, %v", waiting, err)
	}
	check(t, "exit barrier", n.Finish(ctx, r))
	check(t, "close", n.Close(ctx))
}

// master is what our node offers to the workers when it has rank 0: a store, or a port where rank 0 will have one.
func (s *stage) master(t *testing.T) func(context.Context) (string, int, error) {
	return func(context.Context) (string, int, error) {
		if s.shared() {
			return "127.0.0.1", serve(t), nil
		}
		return "127.0.0.1", keepPort(t), nil
	}
}

// startWorker gives our worker its environment, for which it waits.
func (s *stage) startWorker(pipe string, r *torchrun.Round) error {
	env := map[string]string{
		"RANK": strconv.Itoa(r.First), "WORLD_SIZE": strconv.Itoa(r.World), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
		"MASTER_ADDR": r.MasterAddr, "MASTER_PORT": strconv.Itoa(r.MasterPort),
		"TORCHELASTIC_USE_AGENT_STORE": map[bool]string{true: "True", false: "False"}[s.shared()],
		"TORCHELASTIC_RESTART_COUNT":   "0",
	}
	b, err := json.Marshal(env)
	if err != nil {
		return err
	}
	return os.WriteFile(pipe, b, 0o600)
}

// states: PyTorch reads the states that we write, and we read those that it writes, for worlds of up to 300 nodes.
func (s *stage) states(t *testing.T) {
	for _, nodes := range []int{0, 1, 2, 300} {
		from, to := filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
		ours := crowd(s.layout(), nodes)
		if err := os.WriteFile(from, ours.Marshal(), 0o600); err != nil {
			t.Fatal(err)
		}
		s.must(t, world{Script: "echo_state.py", Args: []string{from, to, strconv.Itoa(nodes)}, Envs: ranks(1, 0, nil)})
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := torchrun.Unmarshal(b)
		if err != nil {
			t.Fatalf("state of %d nodes: %v", nodes, err)
		}
		ours.Layout.Protocol = theirs.Layout.Protocol
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("state of %d nodes:\n we wrote %+v\nthey wrote %+v", nodes, ours, theirs)
		}
	}
}

// crowd is a state of many nodes.
func crowd(layout torchrun.Layout, nodes int) *torchrun.State {
	s := &torchrun.State{
		Layout: layout, Round: 3, Deadline: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
		Participants: map[torchrun.Desc]int32{}, WaitList: map[torchrun.Desc]bool{}, Redundancy: map[torchrun.Desc]bool{},
		Heartbeats: map[torchrun.Desc]time.Time{},
	}
	for i := range nodes {
		d := torchrun.Desc{Addr: fmt.Sprintf("host%d.example.com", i), Pid: int32(i * 7000), LocalID: int32(i)}
		s.Participants[d], s.Heartbeats[d] = int32(i), s.Deadline.Add(time.Duration(i)*time.Microsecond)
		s.WaitList[torchrun.Desc{Addr: d.Addr}] = true
		if layout.Redundancy {
			s.Redundancy[torchrun.Desc{Addr: d.Addr, LocalID: 1}] = true
		}
	}
	return s
}
