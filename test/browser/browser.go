// Package browser drives a headless Chromium in tests, by its DevTools protocol over a pipe.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait: a machine may be slow, but what hangs must end.
const patience = 4 * time.Minute

// A Browser is a running Chromium, which ends with the test.
type Browser struct {
	t    testing.TB
	to   *os.File
	mu   sync.Mutex
	last int
	asks map[int]chan answer
	told map[string]func(method string, params json.RawMessage) // by session
	gone chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts one with a profile of its own.
func Start(t testing.TB) *Browser {
	t.Helper()
	b := &Browser{t: t, asks: map[int]chan answer{}, told: map[string]func(string, json.RawMessage){}, gone: make(chan struct{})}
	commands, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.to = to
	cmd := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
		"--disable-component-update", "--hide-scrollbars", "--font-render-hinting=none", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{commands, answers}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: test/prepare installs it", err)
	}
	commands.Close()
	answers.Close()
	go b.hear(from)
	t.Cleanup(func() {
		to.Close() // it ends then
		late := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer late.Stop()
		cmd.Wait()
		<-b.gone
	})
	return b
}

// hear takes what the browser says: messages that end with a zero byte.
func (b *Browser) hear(from *os.File) {
	defer close(b.gone)
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID        int
			SessionID string
			Method    string
			Params    json.RawMessage
			answer
		}
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		waits, told := b.asks[m.ID], b.told[m.SessionID]
		delete(b.asks, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && waits != nil:
			waits <- m.answer
		case told != nil:
			told(m.Method, m.Params)
		}
	}
}

// ask calls a method and waits for its result.
func (b *Browser) ask(session, method string, params, result any) error {
	b.mu.Lock()
	b.last++
	id, waits := b.last, make(chan answer, 1)
	b.asks[id] = waits
	data, err := json.Marshal(map[string]any{"id": id, "sessionId": session, "method": method, "params": params})
	if session == "" {
		data, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.to.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-waits:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-b.gone:
		return fmt.Errorf("%s: the browser is gone", method)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
}

// A Look is how a page is looked at.
type Look struct {
	Width, Height int
	Scale         float64 // 0: 1
	Dark          bool
	Mobile        bool
	NoScript      bool
}

// A Page is a tab.
type Page struct {
	b       *Browser
	session string
	mu      sync.Mutex
	wrong   []string // what its console complained of
	loads   int      // how often it was loaded
}

// Open opens a page and waits until it is loaded.
func (b *Browser) Open(url string, l Look) *Page {
	b.t.Helper()
	var made struct{ TargetID, BrowserContextID, SessionID string }
	p := &Page{b: b}
	b.must(b.ask("", "Target.createBrowserContext", map[string]any{"disposeOnDetach": true}, &made)) // with cookies of its own
	b.must(b.ask("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}, &made))
	b.must(b.ask("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made))
	p.session = made.SessionID
	loaded := make(chan struct{}, 1)
	b.mu.Lock()
	b.told[p.session] = func(method string, params json.RawMessage) { p.hear(method, params, loaded) }
	b.mu.Unlock()
	if l.Scale == 0 {
		l.Scale = 1
	}
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	for _, m := range []struct {
		method string
		params map[string]any
	}{
		{"Page.enable", nil}, {"Runtime.enable", nil}, {"Log.enable", nil}, {"Network.enable", nil}, {"Performance.enable", map[string]any{"timeDomain": "threadTicks"}},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": l.Width, "height": l.Height, "deviceScaleFactor": l.Scale, "mobile": l.Mobile}},
		{"Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}},
		{"Emulation.setScriptExecutionDisabled", map[string]any{"value": l.NoScript}},
		{"Page.navigate", map[string]any{"url": url}},
	} {
		if m.params == nil {
			m.params = map[string]any{}
		}
		b.must(b.ask(p.session, m.method, m.params, nil))
	}
	select {
	case <-loaded:
	case <-time.After(patience):
		b.t.Fatalf("%s is not loaded", url)
	}
	return p
}

func (b *Browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// hear notes what the page says of itself.
func (p *Page) hear(method string, params json.RawMessage, loaded chan<- struct{}) {
	switch method {
	case "Page.loadEventFired":
		p.mu.Lock()
		p.loads++
		p.mu.Unlock()
		select {
		case loaded <- struct{}{}:
		default:
		}
	case "Runtime.exceptionThrown", "Log.entryAdded":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong = append(p.wrong, string(params))
	}
}

// Loads is how often it was loaded.
func (p *Page) Loads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads
}

// Wrong is what the page's console complained of: errors, and what its policy forbade.
func (p *Page) Wrong() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.wrong...)
}

// Do evaluates an expression, waits for it if it is a promise, and puts what it comes to into result.
func (p *Page) Do(expression string, result any) {
	p.b.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.b.must(p.b.ask(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got))
	if e := got.ExceptionDetails; e != nil {
		p.b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if result != nil && len(got.Result.Value) > 0 {
		p.b.must(json.Unmarshal(got.Result.Value, result))
	}
}

// Waits waits until an expression is true, looking whenever the page changes.
func (p *Page) Waits(expression string) {
	p.b.t.Helper()
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case <-time.After(patience / 2):
			var text string
			_ = p.b.ask(p.session, "Runtime.evaluate", map[string]any{"expression": "window.giveUp && window.giveUp()"}, &text)
		}
	}()
	defer close(done)
	var text string
	p.Do(`new Promise(done => {
		const o = new MutationObserver(look)
		function look() { if (`+expression+`) { o.disconnect(); done('') } }
		window.giveUp = () => { o.disconnect(); done(document.title + '\n' + document.body.innerText) }
		o.observe(document, {subtree: true, childList: true, attributes: true, characterData: true})
		look()
	})`, &text)
	if text != "" {
		p.b.t.Fatalf("it never came to %s:\n%s", expression, text)
	}
}

// Work is for how long a processor has been busy with a page so far, in milliseconds, and what with: Script, Layout, RecalcStyle; Task is all of it.
func (p *Page) Work() map[string]float64 {
	p.b.t.Helper()
	var got struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	p.b.must(p.b.ask(p.session, "Performance.getMetrics", map[string]any{}, &got))
	work := map[string]float64{}
	for _, m := range got.Metrics {
		if name, is := strings.CutSuffix(m.Name, "Duration"); is {
			work[name] = 1000 * m.Value
		}
	}
	return work
}

// Press presses a key, by its name: "Tab", "ArrowRight".
func (p *Page) Press(key string) {
	p.b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.b.must(p.b.ask(p.session, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}, nil))
	}
}

// Picture is the page as a PNG: all of it, whatever fits into the window.
func (p *Page) Picture() []byte {
	p.b.t.Helper()
	var got struct{ Data string }
	p.b.must(p.b.ask(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "optimizeForSpeed": false}, &got))
	data, err := base64.StdEncoding.DecodeString(got.Data)
	p.b.must(err)
	return data
}
