package pmi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/muster-run/muster/rendezvous/store"
)

func TestWorld(t *testing.T) {
	for _, c := range []struct {
		procs []int
		want  string
	}{
		{[]int{2, 2}, "(vector,(0,2,2))"},
		{[]int{4}, "(vector,(0,1,4))"},
		{[]int{8, 8, 8, 4, 8}, "(vector,(0,3,8),(3,1,4),(4,1,8))"},
	} {
		w := NewWorld(c.procs)
		again, err := ParseWorld(c.want)
		if w.String() != c.want || again.String() != c.want || err != nil {
			t.Errorf("%v: %s, %s, %v; want %s", c.procs, w, again, err, c.want)
		}
		size := 0
		for node, n := range c.procs {
			if size += n; w.Procs(node) != n {
				t.Errorf("%s: %d processes on node %d, want %d", w, w.Procs(node), node, n)
			}
		}
		if w.Size() != size || w.Nodes() != len(c.procs) || w.Procs(len(c.procs)) != 0 {
			t.Errorf("%s: %d processes on %d nodes, %d on none", w, w.Size(), w.Nodes(), w.Procs(len(c.procs)))
		}
	}
	for _, text := range []string{"", "(vector)", "(vector,(0,0,1))", "(vector,(1,1,1))", "(vector,(0,1,1),(0,1,1))", "(vector,(0,2,2)) ", "(vector,(0,-1,2))",
		"(vector,(0,9999999,9999999))", "(vector,(0,02,2))", "(vector,(0,2,2),(2,1,2))x"} {
		if w, err := ParseWorld(text); err == nil {
			t.Errorf("%q is %s", text, w)
		}
	}
}

// A client is one process of MPI, as MPICH's library speaks.
type client struct {
	t    *testing.T
	conn *os.File
	in   *bufio.Reader
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		c.t.Error(err)
	}
}

func (c *client) hear() string {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *client) ask(line, want string) {
	c.t.Helper()
	c.say(line)
	if got := c.hear(); got != want {
		c.t.Errorf("%s: %s, want %s", line, got, want)
	}
}

// nodes serves each node of a world, and returns clients by rank and how far each has come.
func nodes(t *testing.T, w World) (clients []*client, come func(rank int) Record, paths []string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	shared := &store.Memory{}
	var mu sync.Mutex
	records := map[int]Record{}
	for node := range w.Nodes() {
		path := filepath.Join(t.TempDir(), "pmi")
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		first := len(clients)
		s := &Server{World: w, Node: node, Name: "kvs_1", Store: shared, Advanced: func(local int, r Record) {
			mu.Lock()
			defer mu.Unlock()
			records[first+local] = r
		}}
		all.Go(func() { s.Serve(ctx, ln) })
		paths = append(paths, path)
		for local := range w.Procs(node) {
			conn, err := Connect(path, local)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			clients = append(clients, &client{t, conn, bufio.NewReader(conn)})
		}
	}
	return clients, func(rank int) Record {
		mu.Lock()
		defer mu.Unlock()
		return records[rank]
	}, paths
}

// What MPICH 4.0.2 asks in MPI_Init and MPI_Finalize, and what its own server answers.
func TestConversation(t *testing.T) {
	clients, come, _ := nodes(t, NewWorld([]int{2, 1}))
	for rank, c := range clients {
		if got := come(rank); got.Stage != Silent {
			t.Errorf("rank %d has come to %c", rank, got.Stage)
		}
		c.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
		c.ask("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024")
		c.ask("cmd=get_universe_size", "cmd=universe_size size=3")
		c.ask("cmd=get_appnum", "cmd=appnum appnum=0")
		c.ask("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1")
		c.ask("cmd=get kvsname=kvs_1 key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))")
		c.ask(fmt.Sprintf("cmd=put kvsname=kvs_1 key=card-%d value=at#%[1]d$a=b", rank), "cmd=put_result rc=0 msg=success")
		c.ask("cmd=get kvsname=kvs_1 key=card-9", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
	}
	barrier(clients)
	for _, c := range clients {
		for of := range clients {
			c.ask(fmt.Sprintf("cmd=get kvsname=kvs_1 key=card-%d", of), fmt.Sprintf("cmd=get_result rc=0 msg=success value=at#%d$a=b", of))
		}
	}
	for rank, c := range clients {
		c.ask(fmt.Sprintf("cmd=put kvsname=kvs_1 key=card-%d value=new", rank), "cmd=put_result rc=0 msg=success")
	}
	barrier(clients)
	for rank, c := range clients {
		c.ask(fmt.Sprintf("cmd=get kvsname=kvs_1 key=card-%d", (rank+1)%3), "cmd=get_result rc=0 msg=success value=new")
		if got := come(rank); got.Stage != Began {
			t.Errorf("rank %d has come to %c", rank, got.Stage)
		}
		c.ask("cmd=finalize", "cmd=finalize_ack")
		if got := come(rank); got.Stage != Finished {
			t.Errorf("rank %d has come to %c", rank, got.Stage)
		}
	}
}

func barrier(clients []*client) {
	for _, c := range clients {
		c.say("cmd=barrier_in")
	}
	for _, c := range clients {
		if got := c.hear(); got != "cmd=barrier_out" {
			c.t.Errorf("barrier: %s", got)
		}
	}
}

// What cannot be is refused in the words that clients understand; what nobody says ends the connection of who does.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 4*maxLine)
	for _, c := range []struct{ say, want string }{
		{"cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"},
		{"cmd=put kvsname=other key=a value=b", "cmd=put_result rc=-1 msg=another_kvsname"},
		{"cmd=put kvsname=kvs_1 key=" + long[:65] + " value=b", "cmd=put_result rc=-1 msg=key_or_value_too_long"},
		{"cmd=put kvsname=kvs_1 key=a value=" + long[:1025], "cmd=put_result rc=-1 msg=key_or_value_too_long"},
		{"cmd=put kvsname=kvs_1 key=PMI_process_mapping value=x", "cmd=put_result rc=-1 msg=reserved_key"},
		{"cmd=get kvsname=other key=PMI_process_mapping", "cmd=get_result rc=-1 msg=key_not_found value=unknown"},
		{"cmd=publish_name service=a port=b", "cmd=publish_result rc=-1 msg=muster_publishes_no_names"},
		{"mcmd=spawn\nnprocs=1\ntotspawns=2\nspawnssofar=1\nendcmd\nmcmd=spawn\ntotspawns=2\nspawnssofar=2\nendcmd", "cmd=spawn_result rc=-1 msg=muster_starts_no_further_processes"},
		{"cmd=dance", "EOF"},
		{"GET / HTTP/1.1", "EOF"},
		{"", "EOF"},
		{"mcmd=spawn\n" + strings.Repeat("a=b\n", maxLines), "EOF"},
	} {
		clients, _, _ := nodes(t, NewWorld([]int{1}))
		clients[0].ask(c.say, c.want)
	}
	clients, _, _ := nodes(t, NewWorld([]int{1}))
	io.WriteString(clients[0].conn, long) // it may be cut off before its end
	if got := clients[0].hear(); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
		t.Errorf("a long line: %s", got)
	}
}

// Who puts more than anybody needs is stopped.
func TestTooMuch(t *testing.T) {
	s := &Server{World: NewWorld([]int{1}), Name: "kvs_1"}
	value := strings.Repeat("v", maxValue)
	for i := range 2 * maxPut / maxValue {
		line, _ := s.answer(0, Message{"put", []Arg{{"kvsname", "kvs_1"}, {"key", fmt.Sprint(i)}, {"value", value}}})
		if strings.Contains(line, "too_many_keys") {
			return
		}
	}
	t.Error("everything was taken")
}

// The agent is told who aborted, also if it comes later.
func TestAbort(t *testing.T) {
	clients, come, paths := nodes(t, NewWorld([]int{2}))
	first, err := Watch(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	clients[1].ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	clients[1].say("cmd=abort exitcode=7 message=application called MPI_Abort(comm=0x84000000, 7)")
	later, err := Watch(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	for _, w := range []*Watcher{first, later} {
		for _, want := range []Event{{Began: true}, {Local: 1}} {
			if e, err := w.Next(); e != want || err != nil {
				t.Errorf("%+v, %v; want %+v", e, err, want)
			}
		}
	}
	if got := come(1); got != (Record{Aborted, 7}) {
		t.Errorf("record %v", got)
	}
}

// An agent hears of the world that began on another node, where all wait for this one's.
func TestAwait(t *testing.T) {
	clients, _, paths := nodes(t, NewWorld([]int{2, 1, 2}))
	w, err := Watch(paths[2])
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Await()
	clients[2].ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	clients[2].say("cmd=barrier_in")
	if e, err := w.Next(); e != (Event{Began: true}) || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestRecord(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (Record{Aborted, 9}).Write(f, 2); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for local, want := range []Record{{}, {}, {Aborted, 9}, {}} {
		if got := RecordOf(b, local); got != want {
			t.Errorf("%d: %v, want %v", local, got, want)
		}
	}
}

// Whatever comes over the wire is a message that reads the same when it is written again, or none.
func FuzzMessage(f *testing.F) {
	for _, line := range []string{"cmd=put kvsname=k key=a value=b=c", "cmd=abort exitcode=1 message=two words", `cmd=put value=a\ b`, "cmd=get  key=x ", "mcmd=spawn\ntotspawns=1\nendcmd", "cmd=\\"} {
		f.Add(line + "\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := newReader(strings.NewReader(text)).next()
		if err != nil {
			return
		}
		again, err := newReader(strings.NewReader(m.String())).next()
		if err != nil || again.String() != m.String() || m.Cmd == "" || len(m.Args) > maxArgs+1 {
			t.Errorf("%q is %q, and that is %q, %v", text, m, again, err)
		}
	})
}

// What another node left is taken as a whole, or not.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("a=b\nc=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		put, err := unpack([][]byte{b})
		if err == nil && string(pack(put)) != string(b) {
			t.Errorf("%q is %q", b, put)
		}
	})
}

func FuzzWorld(f *testing.F) {
	f.Add("(vector,(0,3,8),(3,1,4))")
	f.Fuzz(func(t *testing.T, text string) {
		if w, err := ParseWorld(text); err == nil && (w.String() != text || w.Size() < 1 || w.Size() > maxCount) {
			t.Errorf("%q is %s", text, w)
		}
	})
}
