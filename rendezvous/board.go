package rendezvous

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Beside all jobs of a store hangs a board that names those which are meeting: nodes that were given different ids wait
// for each other in vain, and can tell each other so. The leader of each meeting keeps one line of it, and reads the
// last few. Nothing is decided by it.
const (
	boardLines = "muster//lines" // how many were taken; no job has an empty id, so these keys are no job's
	boardLine  = "muster//line/" // + number: beat and id of a meeting
)

const (
	boardShown = 8   // lines that are read, and jobs that are told
	maxShownID = 100 // bytes of an id that people see
)

// A neighbour is another meeting's line.
type neighbour struct {
	watch
	id    string
	lives bool
}

// hear judges a line by its latest text: a meeting that goes on changes it with every beat.
func (n *neighbour) hear(text string) {
	moved := n.last != "" && text != n.last
	quiet := n.silent(text)
	n.lives = (n.lives || moved) && !quiet
	_, n.id, _ = strings.Cut(plain(text, 20+len(" ")+maxShownID), " ")
}

// board writes our line, and reads those of others.
func (l *leader) board(ctx context.Context) error {
	top := shelf{l.store, ""}
	if l.line == 0 {
		taken, err := top.add(ctx, boardLines, 1)
		if err != nil {
			return err
		}
		l.line = int(taken)
	}
	text := fmt.Sprintf("%d %.*s", l.beats, maxShownID, l.spec.ID)
	if err := top.put(ctx, numbered(boardLine, l.line), []byte(text)); err != nil {
		return err
	}
	taken, err := top.add(ctx, boardLines, 0)
	if err != nil {
		return err
	}
	first := max(1, int(taken)-boardShown+1)
	maps.DeleteFunc(l.neighbours, func(i int, _ *neighbour) bool { return i < first })
	for i := first; i <= int(taken); i++ {
		if err := l.visit(ctx, top, i); err != nil {
			return err
		}
	}
	return nil
}

// visit reads a line of the board.
func (l *leader) visit(ctx context.Context, top shelf, i int) error {
	if i == l.line {
		return nil
	}
	b, _, err := top.peek(ctx, numbered(boardLine, i))
	if err != nil {
		return err
	}
	if l.neighbours[i] == nil {
		l.neighbours[i] = &neighbour{}
	}
	l.neighbours[i].hear(string(b))
	return nil
}

// others names the other jobs that are meeting in this store now.
func (l *leader) others() []string {
	own := fmt.Sprintf("%.*s", maxShownID, l.spec.ID)
	var ids []string
	for _, n := range l.neighbours {
		if n.lives && n.id != own && !slices.Contains(ids, n.id) {
			ids = append(ids, n.id)
		}
	}
	slices.Sort(ids)
	return ids
}
