package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A picture is well-formed, has each curve with its name, and points where they belong.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	p := panel{title: "a < b", x: "clients", y: "replies/s", curves: []line{
		{"muster", []point{{1, 10}, {100, 1000}}}, {"libuv & co", []point{{1, 20}, {10, 400}}},
	}}
	if err := draw(dir, "x.svg", []panel{p, p, p}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "x.svg"))
	if err != nil {
		t.Fatal(err)
	}
	d, lines := xml.NewDecoder(strings.NewReader(string(text))), 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 6 || !strings.Contains(string(text), "libuv &amp; co") {
		t.Errorf("%d curves of 6:\n%s", lines, text)
	}
	// from the first mark to the last, upwards
	if !strings.Contains(string(text), `points="52.0,230.0 348.0,30.0"`) {
		t.Errorf("the first curve lies elsewhere:\n%s", text)
	}
}
