package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// A panel is one picture of curves, both axes by powers of ten.
type panel struct {
	title, x, y string
	curves      []line
}

// A line is one of them.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Of a panel, in pixels.
const (
	panelWide, panelHigh = 360.0, 270.0
	left, right          = 52.0, 12.0
	top, bottom          = 30.0, 40.0
)

// colours can be told apart by those who do not see red or green (Okabe and Ito), and on white as on black.
var colours = []string{"#0072b2", "#d55e00", "#cc79a7", "#999999"}

// draw writes panels, two in a row, to a file of a directory; nowhere if that is "".
func draw(dir, name string, panels []panel) error {
	if dir == "" {
		return nil
	}
	rows := (len(panels) + 1) / 2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", 2*panelWide, float64(rows)*panelHigh)
	b.WriteString("<style>text{fill:#222}.grid{stroke:#ddd}svg{background:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}svg{background:#111}}</style>\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%g %g)">`+"\n", float64(i%2)*panelWide, float64(i/2)*panelHigh)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644)
}

func (p panel) draw(b *strings.Builder) {
	x := axis(p.curves, func(q point) float64 { return q.x }, left, panelWide-right)
	y := axis(p.curves, func(q point) float64 { return q.y }, panelHigh-bottom, top)
	fmt.Fprintf(b, `<text x="%g" y="16" font-size="13" font-weight="bold">%s</text>`+"\n", left, html.EscapeString(p.title))
	for _, v := range x.marks() {
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %gV%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x.at(v), top, panelHigh-bottom, x.at(v), panelHigh-bottom+14, short(v))
	}
	for _, v := range y.marks() {
		fmt.Fprintf(b, `<path class="grid" d="M%g %.1fH%g"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y.at(v), panelWide-right, left-4, y.at(v)+4, short(v))
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text>`+"\n", panelWide-right, panelHigh-bottom+30, html.EscapeString(p.x))
	fmt.Fprintf(b, `<text x="%g" y="28" font-size="10">%s</text>`+"\n", left, html.EscapeString(p.y))
	for i, c := range p.curves {
		colour := colours[i%len(colours)]
		var path []string
		for _, q := range c.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(q.x), y.at(q.y)))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", x.at(q.x), y.at(q.y), colour)
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8"/>`+"\n", strings.Join(path, " "), colour)
		fmt.Fprintf(b, `<text x="%g" y="%g" style="fill:%s">%s</text>`+"\n", left+float64(i)*80, panelHigh-bottom+30, colour, html.EscapeString(c.name))
	}
}

// A scale is an axis by powers of ten, from one of them to another.
type scale struct {
	low, high int
	from, to  float64 // pixels
}

func axis(curves []line, of func(point) float64, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, q := range c.points {
			low, high = min(low, math.Log10(of(q))), max(high, math.Log10(of(q)))
		}
	}
	s := scale{int(math.Floor(low)), int(math.Ceil(high)), from, to}
	if s.high == s.low {
		s.high++
	}
	return s
}

func (s scale) at(v float64) float64 {
	return s.from + (math.Log10(v)-float64(s.low))/float64(s.high-s.low)*(s.to-s.from)
}

func (s scale) marks() (all []float64) {
	for e := s.low; e <= s.high; e++ {
		all = append(all, math.Pow10(e))
	}
	return all
}

// short is a power of ten as people write it.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.6g", v)
}
