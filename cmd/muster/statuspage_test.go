package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/browser"
	"github.com/muster-run/muster/test/freeport"
)

// page is where p's status page is, with the token, as its agent left it in the run's directory.
func (p *program) page() string {
	p.t.Helper()
	p.says("the status page is at http://")
	found, _ := filepath.Glob(filepath.Join(p.tmp, "muster-*", "http"))
	if len(found) != 1 {
		p.t.Fatalf("files that say where the page is: %q", found)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// A worker of a real training dies while somebody looks at the page: who it was, the next round, and how soon it came are there, and the page was not loaded
// again.
func TestPageOfATraining(t *testing.T) {
	t.Parallel()
	vars := []string{"PYTHON_EXEC=" + python(t, "debian"), "GLOO_SOCKET_IFNAME=lo", "MUSTER_HTTP=127.0.0.1:0"}
	all := startNodes(t, 2, vars, "--rdzv-id", "mnist", "--max-restarts", "3", abs(t, "../../examples/pytorch-ddp/train.py"), "--expect-world", "4", "--epochs", "100000")
	b := browser.Start(t)
	look := browser.Look{Width: 1180, Height: 900, Scale: 1}
	p := b.Open(all[0].page(), look)
	picture := func(name string, p *browser.Page) {
		if dir := os.Getenv("PICTURES"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".png"), p.Picture(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Waits(`document.querySelector('h1').textContent === 'All 4 ranks train'`)
	picture("status-page", p)
	var victim report.StatusWorker
	for _, w := range all[1].status().Workers {
		if w.Rank == 3 {
			victim = w
		}
	}
	died := fmt.Sprintf("rank 3 on %s (node 1, local rank 1, pid %d) was killed by SIGKILL", all[1].status().Host, victim.PID)
	// The page notes when each of these is there for the first time.
	p.Do(`
		window.seen = []
		window.steps = {
			died: () => document.querySelector('#r3.failed') && document.querySelector('h1').textContent.includes('Rank 3 failed') && document.body.innerText.includes('`+died+`'),
			blamed: () => document.querySelector('.back')?.textContent.includes('`+died+`'),
			again: () => /round 1 (runs|trains): all workers were started again [\d.]+ m?s after it/.test(document.querySelector('.back')?.textContent),
			trains: () => /round 1 trains: .* the first step was done after [\d.]+ m?s/.test(document.querySelector('.back')?.textContent),
		}
		const note = () => { for (const name in steps) if (!seen.some(s => s.name === name) && steps[name]()) seen.push({name, at: Date.now()}) }
		new MutationObserver(note).observe(document, {subtree: true, childList: true, attributes: true, characterData: true})
		note()
	`, nil)
	has := func(name string) string { return `seen.some(s => s.name === '` + name + `')` }
	var early int
	if p.Do(`seen.length`, &early); early > 0 {
		t.Fatal("the page tells of a death before there was one")
	}
	killed := time.Now()
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Waits(has("died") + ` || ` + has("trains"))
	picture("status-page-failed", p)
	p.Waits(has("trains"))
	var seen []struct {
		Name string
		At   int64
	}
	p.Do(`seen`, &seen)
	var order, figures []string
	for _, s := range seen {
		order = append(order, s.Name)
		figures = append(figures, fmt.Sprintf("%s after %d ms", s.Name, s.At-killed.UnixMilli()))
	}
	// On a machine that is so busy that its looks at the job are far apart, a page need not see the round that ends.
	if all := []string{"died", "blamed", "again", "trains"}; !slices.Equal(order, all) && !slices.Equal(order, all[1:]) {
		t.Errorf("the page came to %v", order)
	}
	t.Logf("in the page, from the worker's death on: %s", strings.Join(figures, ", "))
	if n := p.Loads(); n != 1 {
		t.Errorf("the page was loaded %d times", n)
	}
	if wrong := p.Wrong(); len(wrong) > 0 {
		t.Errorf("the browser complains: %q", wrong)
	}
	picture("status-page-again", p)
	look.Dark = true
	picture("status-page-dark", b.Open(all[0].page(), look))
	picture("status-page-phone", b.Open(all[0].page(), browser.Look{Width: 390, Height: 844, Scale: 1.5, Mobile: true}))

	// A member shows its own, and says who knows all.
	member := b.Open(all[1].page(), look)
	member.Waits(`document.querySelectorAll('article a').length === 2 && document.querySelector('footer').innerText.includes('node 0')`)

	all[0].cmd.Process.Signal(syscall.SIGTERM)
	p.Waits(`document.querySelector('h1').textContent === 'The job was stopped'`)
	for _, n := range all {
		n.ends(143)
	}
	p.Waits(`!document.getElementById('lost').hidden`)
}

// Several agents of a host share a range of ports; what they chose is told. The page is where it was when another agent has taken over, and so is the token.
func TestPageStaysWhereItIs(t *testing.T) {
	t.Parallel()
	port := freeport.Take(t)
	at := fmt.Sprintf("MUSTER_HTTP=127.0.0.1:%d-%d", port, min(port+20, 65535))
	all := startNodes(t, 2, []string{at}, "--", "sh", "-c", training)
	up(all, 0)
	pages := []string{all[0].page(), all[1].page()}
	if pages[0] == pages[1] {
		t.Errorf("both are at %s", pages[0])
	}
	get := func(url string) (int, string) {
		t.Helper()
		w, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.StatusCode, string(body)
	}
	base, _, _ := strings.Cut(pages[0], "?")
	if s := all[0].status(); s.HTTP != base || len(s.Ranks) != 4 || s.Ranks[3].State != report.RankRuns || s.Ranks[3].Node != 1 {
		t.Errorf("the status says %q, the file %q; ranks %+v", s.HTTP, pages[0], s.Ranks)
	}
	all[0].asks("status").ends(0, "page: "+base)
	all[0].killAgent()
	all[0].says(tookOver)
	all[0].asks("health", "ready").ends(0)
	for path, code := range map[string]int{"": 200, "healthz": 200, "readyz": 200, "machine.svg": 200, "machine.svg?node=1": 200, "machine.svg?node=2": 503, "status.json": 200, "?token=wrong": 401, "nothing": 404} {
		if got, body := get(base + path); got != code {
			t.Errorf("%s: %d:\n%s", path, got, body)
		}
	}
	for _, own := range []string{"machine.svg", "machine.svg?node=0", "machine.svg?node=1"} { // on one machine they are alike
		if _, drawing := get(base + own); !strings.HasPrefix(drawing, "<svg") || !strings.Contains(drawing, "NUMA node") {
			t.Errorf("%s:\n%s", own, drawing)
		}
	}
	member, _, _ := strings.Cut(pages[1], "?")
	if code, said := get(member + "machine.svg?node=0"); code != 503 || !strings.Contains(said, "node 0 can ask for it") {
		t.Errorf("a member's page of another node: %d, %s", code, said)
	}
	if again := all[0].page(); again != pages[0] {
		t.Errorf("it was %s, and is %s", pages[0], again)
	}
	all[0].reaches(report.Running)
	var s report.Status
	if _, body := get(base + "status.json"); json.Unmarshal([]byte(body), &s) != nil || s.Schema != report.StatusSchema || len(s.Ranks) != 4 {
		t.Errorf("%s", body)
	}
	all[0].asks("status", "--html").ends(0, "<!doctype html>", `id="r3"`)
	all[0].cmd.Process.Signal(syscall.SIGTERM)
	for _, p := range all {
		p.ends(143)
	}
}

// A port that somebody has stops no job, and an address that is none is refused.
func TestPageWithoutAPort(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--http", "192.0.2.1:80", "--", "true")
	p.ends(0, "no status page at 192.0.2.1:80: ")
	muster(t, t.TempDir(), nil, "run", "--http", "8080", "--", "true").ends(2, `--http: "8080" is no address`)
}

// A training that torchrun runs has a page, too: who fails is there while torchrun starts its workers again, and the end when it ends.
func TestPageOfAnObservedTraining(t *testing.T) {
	t.Parallel()
	vars := []string{"GLOO_SOCKET_IFNAME=lo", "PYTHONUNBUFFERED=1"}
	n := observed(t, vars, "--http 127.0.0.1:0", python(t, "debian"), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-r", "9:1", "-t", "9:1", "--max_restarts", "1",
		abs(t, "../../examples/pytorch-ddp/train.py"), "--epochs", "100000")
	at := n.page()
	p := browser.Start(t).Open(at, browser.Look{Width: 1180, Height: 900})
	p.Waits(`document.querySelector('h1').textContent === 'All 2 ranks train' && document.querySelectorAll('article a.running').length === 2`)
	pid := n.observer(func(s report.Status) bool { return len(s.Workers) == 2 }).Workers[1].PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	died := fmt.Sprintf("local rank 1, pid %d) was killed by SIGKILL", pid)
	p.Waits(`document.querySelector('h1').textContent === 'Rank 1 failed' && document.querySelector('#r1.failed') && document.querySelector('.why').textContent.includes('` + died + `')`)
	p.Waits(`document.querySelector('h1').textContent === 'All 2 ranks train' && document.querySelector('#rounds').textContent.includes('` + died + `')`)
	n.asks("status").ends(0, "round 0 ended: rank 1 on ", died)
	n.asks("status", "--html").ends(0, "<!doctype html>", "told by the observer", "data:image/svg+xml;base64,")
	n.cmd.Process.Signal(syscall.SIGTERM)
	p.Waits(`document.querySelector('h1').textContent.startsWith('The job ') && document.getElementById('lost').innerText.includes('has ended')`)
	n.ends(1, "SIGTERM")
	if wrong := p.Wrong(); len(wrong) > 0 {
		t.Errorf("the browser complains: %q", wrong)
	}
}
