package launcher

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/report/web"
)

// This file is the status page of this agent: what it shows, and where it is served. It is always there at a unix socket in the run's private
// directory, and at an address where --http says so. A job runs as well without.

const (
	pageSocket = "page.sock" // in that directory
	pageFile   = "http"      // there, too: where the page is, with the token
	keptToken  = "page"      // the token, for another agent
	heldPage   = "page"      // the listener
)

// openPage begins to serve.
func (d *desk) openPage(dir string) {
	token := d.pageToken()
	w := web.Config{
		View: d.view, Changed: d.changes, Tokens: d.plan.pageTokens(token),
		Live:    d.alive,
		Ready:   func() error { _, err := d.ready(); return err },
		Machine: d.drawing,
	}
	if d.c.Metrics != nil {
		w.Metrics = d.once(d.c.Metrics(d.status, d.counts))
	}
	page, at := servePage(d.c, dir, token, w, d.pageListener)
	if d.page = page; at != "" && d.c.First.Life() == 0 {
		d.c.Log.Info("the status page is at " + at)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.http = at
}

// servePage serves a page at the socket of a run, and, where --http says so, at what listen opens; and returns where people find that.
func servePage(c Config, dir, token string, w web.Config, listen func() (net.Listener, error)) (page *web.Server, at string) {
	w.Host, w.Log = c.Host.Hostname, c.Log
	page = web.New(w)
	if ln, err := pageAt(filepath.Join(dir, pageSocket)); err == nil {
		page.Serve(ln)
	} else {
		c.Log.Debug(fmt.Sprintf("no status page at the run's socket: %v", err))
	}
	if c.HTTP == "" {
		return page, ""
	}
	ln, err := listen()
	if err != nil {
		c.Log.Warn(fmt.Sprintf("no status page at %s: %v", c.HTTP, err))
		return page, ""
	}
	at = "http://" + pageHost(c, ln) + "/"
	page.Serve(ln)
	if err := os.WriteFile(filepath.Join(dir, pageFile), []byte(at+"?token="+token+"\n"), 0o600); err != nil {
		c.Log.Debug(err.Error())
	}
	return page, at
}

// pageTokens are those that open all of a page.
func (p Plan) pageTokens(own string) []string {
	if p.Token == "" {
		return []string{own}
	}
	return []string{own, p.Token}
}

// knownTime is how long a scrape waits for what an agent before this one knew.
const knownTime = 5 * time.Second

// once answers by h as soon as this agent knows what the one before it knew: who heard of less would take that for a job that began anew.
func (d *desk) once(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		for late := time.After(knownTime); d.c.goesOn(); {
			changed := d.changes()
			if now := d.now(); now.state != nil || now.past != nil {
				break
			}
			select {
			case <-changed:
			case <-q.Context().Done():
				return
			case <-late:
				http.Error(w, "this agent takes over, and does not know yet what the one before it had counted", http.StatusServiceUnavailable)
				return
			}
		}
		h.ServeHTTP(w, q)
	})
}

// pageAt listens at a path that is this user's alone. What an agent left there that is gone is removed.
func pageAt(path string) (net.Listener, error) {
	_ = os.Remove(path) // or to listen fails
	ln, err := control.Named(path, func(at *net.UnixAddr) (*net.UnixListener, error) { return net.ListenUnix("unix", at) })
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it goes with its directory
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// pageListener is what an agent before this one listened at, or a new one. It is kept open for the next.
func (d *desk) pageListener() (ln net.Listener, err error) {
	if old := d.c.First.Legacy(); old != nil && old.Files[heldPage] != nil {
		defer delete(old.Files, heldPage)
		defer old.Files[heldPage].Close()
		ln, err = net.FileListener(old.Files[heldPage])
	} else {
		ln, err = d.c.listenPage()
	}
	if err == nil {
		d.hold(ln)
	}
	return ln, err
}

// listenPage opens what --http says.
func (c Config) listenPage() (net.Listener, error) {
	at, err := web.ParseAddress(c.HTTP)
	if err != nil {
		return nil, err
	}
	return at.Listen()
}

// hold keeps the listener open beyond this agent's death: who looks at the page then hears from the next one.
func (d *desk) hold(ln net.Listener) {
	if raw, ok := ln.(syscall.Conn); ok {
		if err := d.c.First.Hold(heldPage, raw); err != nil {
			d.c.Log.Debug(err.Error())
		}
	}
}

// pageHost is where people find a listener: at this host, where it listens at all of its addresses.
func pageHost(c Config, ln net.Listener) string {
	at := ln.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = c.Host.Hostname
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// pageToken opens all of the page.
func (d *desk) pageToken() string {
	if token := d.plan.pageToken(); token != "" {
		return token
	}
	if old := d.c.First.Legacy(); old != nil && len(old.Blobs[keptToken]) > 0 {
		return string(old.Blobs[keptToken])
	}
	token := newPageToken()
	_ = d.c.First.Keep(keptToken, []byte(token)) // else it is another one after this agent
	return token
}

// pageToken is that of a job with a token: it follows from it, and is the same on all its nodes; but whoever reads it from an address cannot pass for one
// of them. Else "".
func (p Plan) pageToken() string {
	if p.Token == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(p.Token))
	fmt.Fprintf(m, "muster: the status page of %s", p.Spec.ID)
	return hex.EncodeToString(m.Sum(nil)[:16])
}

func newPageToken() string { return newID() + newID() }

// closePage says the last word there.
func (d *desk) closePage() {
	d.page.Close()
	if d.http != "" {
		_ = d.c.First.Drop(heldPage)
	}
}

// changes is closed when something happens.
func (d *desk) changes() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}

// view is what the page shows now.
func (d *desk) view() web.View {
	now := d.now()
	v := web.View{Status: d.statusOf(now)}
	s := now.state
	if s == nil {
		if now.past != nil {
			v.Past = now.past.Past
		}
		return v
	}
	v.Verdict, v.Past, v.Failures = s.Verdict, s.Past, s.failures()
	if s.Stall != nil && s.Stall.Finding.Stage >= heartbeat.Suspect {
		v.Hang, v.Stage, v.Stood = &s.Stall.Finding.Hang, s.Stall.Finding.Stage.String(), now.loop.Add(s.Stood)
	}
	return v
}

// pageText is the page as a file.
func (d *desk) pageText(ctx context.Context) (any, error) {
	drawing, err := d.drawing(ctx, -1)
	if err != nil {
		d.c.Log.Debug(err.Error()) // the page is one without, too
	}
	return web.Page(d.view(), drawing), nil
}
