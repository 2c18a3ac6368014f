package output

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	foldWindow = 200 * time.Millisecond // how long after the first rank others may say the same
	foldMax    = 1024                   // lines kept in mind
	foldBytes  = 4 << 20                // and their length in all
)

// A folder shows equal lines of many ranks as one. The first rank's line is shown at once; ranks that say the same within
// foldWindow are shown together: "[ranks 1-7] epoch 3". What they say after it waits behind it, and may join the same of
// others: so the lines of each rank stay in their order, and yet are folded when every rank has lines of its own between.
type folder struct {
	to    *queue
	color bool

	mu     sync.Mutex
	said   []*saying            // in the order in which they are shown
	byText map[string][]*saying // the same
	size   int                  // of their texts
	hidden int                  // lines that were not shown yet
	batch  []byte               // lines on their way
	timer  *time.Timer          // shows what waits too long; nil: nothing does
	closed bool
}

// A saying is a line that somebody said lately.
type saying struct {
	place  int // in folder.said; -1: not there any more
	text   string
	until  time.Time
	hidden []*voice // who said it and is not shown with it yet
}

// A voice is one stream of one rank.
type voice struct {
	*folder
	rank   int
	last   *saying // what it said last
	hidden int     // lines of it that were not shown yet
}

func newFolder(to *queue, color bool) *folder {
	return &folder{to: to, color: color, byText: map[string][]*saying{}}
}

func (f *folder) voice(rank int) *voice {
	return &voice{folder: f, rank: rank, last: &saying{place: -1}}
}

// put takes whole lines of one rank.
func (v *voice) put(b []byte) []byte {
	f := v.folder
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.expire(now)
	for line := range bytes.Lines(b) {
		v.say(string(line), now)
	}
	f.deliver()
	return b[:0]
}

// say lets a line join the same of another rank, or shows it, or lets it wait behind another line of its rank.
func (v *voice) say(text string, now time.Time) {
	for _, s := range v.byText[text] {
		if s.place > v.last.place {
			v.hide(s)
			return
		}
	}
	s := &saying{text: text, until: now.Add(foldWindow)}
	v.insert(s, v.placeFor())
	if v.hidden > 0 {
		v.hide(s)
	} else {
		v.show([]int{v.rank}, text)
		v.last = s
	}
	for len(v.said) > foldMax || v.size > foldBytes {
		v.forget(1)
	}
}

// hide makes v one of those who said s, to be shown later.
func (v *voice) hide(s *saying) {
	s.hidden = append(s.hidden, v)
	v.hidden++
	v.folder.hidden++
	v.last = s
}

// placeFor returns where a new line of v belongs: behind its last and what single ranks said there, but before what
// others said since, for v may say that next.
func (v *voice) placeFor() int {
	if v.hidden == 0 {
		return len(v.said)
	}
	at := v.last.place + 1
	for at < len(v.said) && len(v.said[at].hidden) == 1 {
		at++
	}
	return at
}

func (f *folder) insert(s *saying, at int) {
	f.said = slices.Insert(f.said, at, s)
	for i, s := range f.said[at:] {
		s.place = at + i
	}
	f.byText[s.text] = append(f.byText[s.text], s)
	f.size += len(s.text)
}

// expire shows and forgets everything up to the last line whose time is over.
func (f *folder) expire(now time.Time) {
	over := 0
	for i, s := range f.said {
		if !s.until.After(now) {
			over = i + 1
		}
	}
	f.forget(over)
}

// forget drops the first n sayings, shown.
func (f *folder) forget(n int) {
	if n == 0 {
		return
	}
	for _, s := range f.said[:n] {
		f.reveal(s)
		s.place = -1
		f.size -= len(s.text)
		f.byText[s.text] = slices.DeleteFunc(f.byText[s.text], func(t *saying) bool { return t == s })
		if len(f.byText[s.text]) == 0 {
			delete(f.byText, s.text)
		}
	}
	f.said = slices.Delete(f.said, 0, n)
	for i, s := range f.said {
		s.place = i
	}
}

// reveal shows who said s and was not shown with it.
func (f *folder) reveal(s *saying) {
	if len(s.hidden) == 0 {
		return
	}
	var ranks []int
	for _, v := range s.hidden {
		ranks = append(ranks, v.rank)
		v.hidden--
		f.hidden--
	}
	s.hidden = nil
	f.show(ranks, s.text)
}

func (f *folder) show(ranks []int, text string) {
	slices.Sort(ranks)
	f.batch = append(append(f.batch, label(ranksText(ranks), ranks[0], f.color)...), text...)
}

// deliver hands over what is to be shown, and sees to it that the rest will be.
func (f *folder) deliver() {
	if len(f.batch) > 0 {
		f.batch = f.to.put(f.batch)[:0]
	}
	if f.hidden > 0 && f.timer == nil && !f.closed {
		first := slices.MinFunc(f.said, func(a, b *saying) int { return a.until.Compare(b.until) })
		f.timer = time.AfterFunc(time.Until(first.until), f.late)
	}
}

// late shows what has waited for its whole window.
func (f *folder) late() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = nil
	f.expire(time.Now())
	f.deliver()
}

// flush shows everything now.
func (f *folder) flush() {
	f.mu.Lock()
	f.forget(len(f.said))
	f.deliver()
	f.mu.Unlock()
	f.to.flush()
}

// close ends it; nothing may be said any more.
func (f *folder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.forget(len(f.said))
	f.deliver()
}

// ranksText is "rank 3", or "ranks 1-3,7" of sorted ranks.
func ranksText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var parts []string
	for i := 0; i < len(ranks); {
		n := i
		for n+1 < len(ranks) && ranks[n+1] == ranks[n]+1 {
			n++
		}
		part := fmt.Sprint(ranks[i])
		if n > i {
			part += fmt.Sprintf("-%d", ranks[n])
		}
		parts, i = append(parts, part), n+1
	}
	return "ranks " + strings.Join(parts, ",")
}
