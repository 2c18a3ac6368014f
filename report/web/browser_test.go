package web

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/browser"
)

// pictures is where pictures of the page go that a person looks at; "": nowhere.
var pictures = os.Getenv("PICTURES")

func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	data := p.Picture()
	if pictures == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// desk is a window on one.
var desk = browser.Look{Width: 1180, Height: 900}

// quiet checks that nothing was complained of: no error of the script, nothing that the page's own policy forbids.
func quiet(t *testing.T, p *browser.Page) {
	t.Helper()
	if wrong := p.Wrong(); len(wrong) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(wrong, "\n"))
	}
}

// The page changes as the job does, without being loaded again, and what a person is at stays: an open part, the focus.
func TestPageIsLive(t *testing.T) {
	s := &scene{v: training(2, 2)}
	url, _ := s.serve(t, "the-token-of-the-job")
	p := browser.Start(t).Open(url+"/?token=the-token-of-the-job", desk)
	p.Do(`window.same = true; document.querySelector('#workers').open = true; document.getElementById('r1').focus()`, nil)
	p.Waits(`document.getElementById('live').textContent.includes('live')`)
	picture(t, p, "training")
	s.becomes(killed)
	p.Waits(`document.querySelector('h1').textContent.includes('Rank 3 failed')`)
	p.Waits(`document.querySelector('#r3.failed') && document.title.startsWith('✕')`)
	p.Do(`document.querySelector('#wrong details').open = true`, nil)
	picture(t, p, "killed")
	s.becomes(again)
	p.Waits(`document.querySelectorAll('article a.running').length === 4`)
	p.Waits(`document.querySelector('.back')?.textContent.includes('started again 302 ms after it')`)
	p.Waits(`document.querySelectorAll('.lap').length === 2`)
	picture(t, p, "again")
	var got struct {
		Same, Open bool
		Focus, URL string
	}
	p.Do(`({same: window.same, open: document.querySelector('#workers').open, focus: document.activeElement.id, url: location.href})`, &got)
	if !got.Same || !got.Open || got.Focus != "r1" || strings.Contains(got.URL, "token") {
		t.Errorf("%+v", got)
	}
	quiet(t, p)
}

// For how long a world stands still goes on in the sentence that says so, while nothing changes.
func TestStandstillGoesOn(t *testing.T) {
	b, s := browser.Start(t), &scene{v: training(2, 2)}
	s.v.Stage, s.v.Stall, s.v.Hang = "suspect", "this may be a hang: rank 1 has not entered all_reduce #7 for 10 s; 3 others wait in it", &job.Hang{Quiet: 10 * time.Second}
	s.v.Stood = time.Now().Add(-10 * time.Second)
	url, _ := s.serve(t)
	p := b.Open(url, desk)
	const lasts = `(/ #7 for ((\d+ m )?\d+ s); 3 others wait in it$/.exec(document.querySelector('.why').textContent) || [])[1]`
	var first string
	p.Waits(lasts)
	p.Do(lasts, &first)
	p.Waits(lasts + ` && ` + lasts + ` !== '` + first + `'`)
	quiet(t, p)
}

// A browser that loses the agent says so; when it is there again, the page goes on. When the agent has ended, it says that.
func TestPageSaysThatItIsOld(t *testing.T) {
	s := &scene{v: training(2, 2), changed: make(chan struct{})}
	start := func(at Address) (*Server, Address) {
		server := New(Config{View: s.view, Changed: s.changes})
		ln, err := at.Listen()
		if err != nil {
			t.Fatal(err)
		}
		server.Serve(ln)
		port := portOf(ln)
		return server, Address{"127.0.0.1", port, port}
	}
	server, at := start(Address{Host: "127.0.0.1"})
	p := browser.Start(t).Open(fmt.Sprintf("http://127.0.0.1:%d/", at.From), desk)
	p.Waits(`document.getElementById('live').textContent.includes('live')`)
	server.http.Close() // as if it was killed
	p.Waits(`document.getElementById('lost').innerText.includes('No connection')`)
	picture(t, p, "lost")
	server, _ = start(at)
	s.becomes(killed)
	p.Waits(`document.getElementById('lost').hidden && document.querySelector('#r3.failed')`)
	server.Close()
	p.Waits(`/The agent has ended \(\d+:\d\d/.test(document.getElementById('lost').innerText)`)
}

// The leader's page has the machine of each node: which is asked for when somebody opens it, and stays open when the job changes.
func TestMachinesOfNodes(t *testing.T) {
	s := &scene{v: training(3, 2)}
	url, _ := s.serve(t)
	p := browser.Start(t).Open(url, desk)
	p.Waits(`document.getElementById('live').textContent.includes('live')`)
	p.Do(`document.getElementById('machine').open = true; document.getElementById('m1').open = true`, nil)
	natural := `[...document.querySelectorAll('#machine img')].map(i => i.complete ? i.naturalWidth : 0).join()`
	p.Do(`document.querySelector('#m1 img').scrollIntoView(); document.querySelector('#m1 img').decode()`, nil)
	var wide string
	if p.Do(natural, &wide); wide != "0,72,0" {
		t.Errorf("the drawings are %s pixels wide", wide)
	}
	s.becomes(func(v *View) { v.Nodes = append([]report.StatusNode(nil), v.Nodes...); v.Nodes[2].Name = "another" })
	p.Waits(`document.querySelector('#m2 summary').textContent === '2 another' && document.getElementById('m1').open`)
	p.Do(`document.getElementById('m2').open = true`, nil)
	p.Do(`new Promise(done => { const i = document.querySelector('#m2 img'); i.scrollIntoView(); const look = () => i.complete ? done() : i.addEventListener('load', done); look() })`, nil)
	if wrong := p.Wrong(); len(wrong) > 1 || len(wrong) == 1 && !strings.Contains(wrong[0], "503") { // of the node that tells nothing
		t.Errorf("the browser complains: %q", wrong)
	}
	picture(t, p, "machines")
	s.becomes(func(v *View) { one := 1; v.Node = &one }) // a member knows its own
	p.Waits(`document.querySelector('#machine summary').textContent === 'The machine of ann' && document.querySelectorAll('#machine img').length === 1`)
}

// Without a script the page is whole, and loads itself again.
func TestPageWithoutScript(t *testing.T) {
	s := &scene{v: training(2, 2)}
	killed(&s.v)
	url, _ := s.serve(t)
	p := browser.Start(t).Open(url, browser.Look{Width: 1180, Height: 900, NoScript: true})
	picture(t, p, "noscript")
	_, page := ask(t, "GET", url)
	for _, want := range []string{`<noscript><meta http-equiv="refresh" content="5"></noscript>`, "Rank 3 failed", `id="r3"`, "0 s</time>"} {
		if !strings.Contains(strings.ReplaceAll(page, " d ", "0 s</time>"), want) {
			t.Errorf("%q is not there:\n%s", want, page)
		}
	}
}

// Every rank is reached by keys alone, and what a key is on is read out.
func TestPageByKeys(t *testing.T) {
	s := &scene{v: training(3, 2)}
	url, _ := s.serve(t)
	p := browser.Start(t).Open(url, browser.Look{Width: 420, Height: 900}) // in one column
	p.Waits(`document.getElementById('live').textContent.includes('live')`)
	var at string
	where := func() string { p.Do(`document.activeElement.id || document.activeElement.className`, &at); return at }
	p.Press("Tab")
	if where() != "skip" {
		t.Errorf("the first stop is %q", at)
	}
	p.Press("Tab")
	for _, step := range []struct{ key, want string }{{"", "r0"}, {"ArrowRight", "r1"}, {"ArrowDown", "r3"}, {"ArrowLeft", "r2"}, {"ArrowUp", "r0"}, {"End", "r5"}, {"Home", "r0"}} {
		if step.key != "" {
			p.Press(step.key)
		}
		if where() != step.want {
			t.Errorf("%s leads to %q, not %s", step.key, at, step.want)
		}
	}
	p.Waits(`document.getElementById('told').textContent === 'rank 0: running, node 0, gpu-000'`)
	p.Press("Tab")
	if where(); strings.HasPrefix(at, "r") && at != "rounds" {
		t.Errorf("the ranks are more than one stop: %q", at)
	}
	var unnamed []string
	p.Do(`[...document.querySelectorAll('a, summary, [tabindex]')].filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)`, &unnamed)
	if len(unnamed) > 0 {
		t.Errorf("without a name: %q", unnamed)
	}
	quiet(t, p)
}

// A page fits the window: on a phone, by day and by night, and whatever long words there are.
func TestPageFits(t *testing.T) {
	s := &scene{v: training(2, 8)}
	killed(&s.v)
	again(&s.v)
	s.v.Nodes[1].Name = strings.Repeat("a-very-long-name-of-a-node-", 6)
	s.v.Stragglers, s.v.Health = nil, []string{strings.Repeat("unbroken", 40)}
	url, _ := s.serve(t)
	b := browser.Start(t)
	for name, look := range map[string]browser.Look{
		"light": desk, "dark": {Width: 1180, Height: 900, Dark: true}, "phone": {Width: 360, Height: 740, Scale: 2, Mobile: true}, "phone-dark": {Width: 360, Height: 740, Scale: 2, Mobile: true, Dark: true},
	} {
		p := b.Open(url, look)
		p.Waits(`document.getElementById('live').textContent.includes('live')`)
		picture(t, p, name)
		var wide []string
		p.Do(`document.scrollingElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '#' + e.id)`, &wide)
		if len(wide) > 0 {
			t.Errorf("%s: too wide are %q", name, wide)
		}
		// WCAG 2, 1.4.3: text has a contrast of 4.5 to what is behind it.
		var pale []string
		p.Do(contrast, &pale)
		if len(pale) > 0 {
			t.Errorf("%s: hard to read are %q", name, pale)
		}
		quiet(t, p)
	}
}

// contrast is the texts of a page whose colour is too near that behind them.
const contrast = `(() => {
	const parts = c => (c.match(/[\d.]+/g) || []).map(Number)
	const light = c => { const [r, g, b] = parts(c).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
	const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, p = parts(c); if (p.length < 4 || p[3] > 0) return c } return 'rgb(255, 255, 255)' }
	const bad = new Set()
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || getComputedStyle(e).backgroundImage !== 'none') continue
		const a = light(getComputedStyle(e).color), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(1) + ': ' + e.textContent.slice(0, 30))
	}
	return [...bad]
})()`

// Many ranks are there, each with its name, and one that changes is one part of the page that changes. What each change costs the browser is logged.
func TestLargeWorld(t *testing.T) {
	b := browser.Start(t)
	for _, nodes := range []int{250, 2048} {
		s, n := &scene{v: training(nodes, 8)}, 8*nodes
		s.v.Ranks[1777].State = report.RankStraggles
		url, _ := s.serve(t)
		_, page := ask(t, "GET", url)
		p := b.Open(url, desk)
		p.Waits(fmt.Sprintf(`document.getElementById('live').textContent.includes('live') && document.querySelectorAll('article a').length === %d`, n))
		const drawn = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))`
		p.Do(drawn, nil)
		said := func(what string, was, is map[string]float64) {
			t.Logf("%d ranks, %s: busy %.0f ms: script %.0f, style %.0f, layout %.0f", n, what, is["Task"]-was["Task"], is["Script"]-was["Script"], is["RecalcStyle"]-was["RecalcStyle"], is["Layout"]-was["Layout"])
		}
		said(fmt.Sprintf("loaded (%d KB)", len(page)>>10), nil, p.Work())
		p.Do(`window.changes = 0; new MutationObserver(all => { for (const m of all) changes += m.addedNodes.length }).observe(document.getElementById('grid'), {subtree: true, childList: true})`, nil)
		change := func(what, until string, f func(*View)) {
			t.Helper()
			before := p.Work()
			s.becomes(f)
			p.Waits(until)
			p.Do(drawn, nil)
			said(what, before, p.Work())
		}
		change("the step", `document.getElementById('facts').textContent.includes('1\u202f999')`, func(v *View) {
			for i := range v.Ranks {
				v.Ranks[i].Step = 1999
			}
		})
		var changes int
		if p.Do(`changes`, &changes); changes > 0 {
			t.Errorf("%d elements of the grid of %d ranks were replaced for a step", changes, n)
		}
		change("one rank", `document.querySelector('#r1234.failed')`, func(v *View) { v.Ranks[1234].State = report.RankFailed })
		if p.Do(`changes`, &changes); changes > 3 {
			t.Errorf("%d elements of the grid of %d ranks were replaced for one rank", changes, n)
		}
		change("all ranks", fmt.Sprintf(`document.querySelectorAll('article a.stopping').length === %d`, n), func(v *View) {
			for i := range v.Ranks {
				v.Ranks[i].State = report.RankStops
			}
		})
		picture(t, p, fmt.Sprintf("large-%d", n))
		quiet(t, p)
	}
}

// BenchmarkRender is what a look at so many ranks costs the agent.
func BenchmarkRender(b *testing.B) {
	for _, nodes := range []int{2, 250, 2000} {
		v := training(nodes, 8)
		b.Run(fmt.Sprint(8*nodes), func(b *testing.B) {
			b.ReportAllocs()
			was := fragments(v, options{})
			for b.Loop() {
				if d := differences(was, fragments(v, options{})); len(d) > 0 {
					b.Fatal(len(d))
				}
			}
		})
	}
}
