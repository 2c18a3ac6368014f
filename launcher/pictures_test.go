package launcher

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// gzipped is a text as drawings travel.
func gzipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprint(z, text)
	z.Close()
	return b.Bytes()
}

// A node is asked for its drawing once, whoever looks; what it answers is bounded, and nobody answers for another one.
func TestPictureOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pictures
		asked := 0
		look := func(of string, answers ...news) (string, error) {
			text, err := p.other(t.Context(), of, 3, func(n news) error {
				asked++
				go func() {
					for i, a := range answers {
						a.Number = n.Number
						p.take(3-len(answers)+i+1, a)
					}
				}()
				return nil
			})
			return string(text), err
		}
		if text, err := look("a", news{Picture: gzipped("of another")}, news{Picture: gzipped("<svg/>")}); text != "<svg/>" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := look("a"); text != "<svg/>" || err != nil || asked != 1 {
			t.Errorf("it was asked %d times: %q, %v", asked, text, err)
		}
		for want, a := range map[string]news{
			"its agent says: no room": {Why: "no room"},
			"bytes, more than 65536":  {Picture: make([]byte, maxPacked+1)},
			"no packed drawing":       {Picture: []byte("<svg/>")},
			"more than 2097152 bytes": {Picture: gzipped(strings.Repeat(" ", maxDrawn+1))},
		} {
			if _, err := look(want, a); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, not %s", err, want)
			}
		}
	})
}

// Of an agent that does not know the question, as one of an older version, it is said so; it is asked again, but not by everybody who looks.
func TestPictureOfAnOlderAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pictures
		asked := 0
		look := func() (time.Duration, error) {
			began := time.Now()
			_, err := p.other(t.Context(), "old", 3, func(news) error { asked++; return nil })
			return time.Since(began), err
		}
		for i, c := range []struct{ pause, waits time.Duration }{{0, pictureTime}, {time.Second, 0}, {askAgain, pictureTime}} {
			time.Sleep(c.pause)
			if took, err := look(); err == nil || !strings.Contains(err.Error(), "older version") || took != c.waits || asked != 1+i/2 {
				t.Errorf("%d: asked %d times, told after %v: %v", i, asked, took, err)
			}
		}
		p.take(3, news{Number: p.last, Picture: gzipped("<svg/>")}) // late
		if _, err := look(); err != nil {
			t.Error(err)
		}
	})
}

// Only so many are kept; what cannot be asked says why.
func TestPicturesAreBounded(t *testing.T) {
	var p pictures
	for i := range 3 * maxPictures {
		text, err := p.other(t.Context(), fmt.Sprint(i), 3, func(n news) error {
			go p.take(3, news{Number: n.Number, Picture: gzipped(fmt.Sprint(i))})
			return nil
		})
		if string(text) != fmt.Sprint(i) || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	}
	gone := errors.New("no line")
	if _, err := p.other(t.Context(), "gone", 3, func(news) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 3 * maxPictures { // nobody answers, and nobody waits
		if _, err := p.other(ctx, fmt.Sprint("silent ", i), 3, func(news) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(p.kept) > maxPictures || len(p.open) > maxPictures {
		t.Errorf("%d are kept, and %d questions are open", len(p.kept), len(p.open))
	}
}
