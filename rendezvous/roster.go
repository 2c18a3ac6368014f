package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// An outcome travels as JSON, except for the members of a world, which follow as a table: every node reads all of
// them, and a table of a thousand nodes is read twenty times faster than their JSON.
//
// A line is a node: first rank, index, slots, name, incarnation, version, block, rack, domain, switch, addresses.
// Fields are separated by tabs, addresses by blanks. A later version may add fields at the end of a line.

const fields = 11

var (
	mark   = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, " ", `\s`)
	unmark = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\s`, " ")
)

func encodeOutcome(end *outcome) ([]byte, error) {
	if end.World == nil {
		return json.Marshal(end)
	}
	head := *end.World
	head.Members = nil
	b, err := json.Marshal(outcome{World: &head})
	for _, m := range end.World.Members {
		b = append(b, '\n')
		b = appendMember(b, m)
	}
	return b, err
}

func appendMember(b []byte, m job.Member) []byte {
	for _, n := range []int{m.First, m.Index, m.Slots} {
		b = append(strconv.AppendInt(b, int64(n), 10), '\t')
	}
	p := m.Place
	for _, text := range []string{m.Name, m.Incarnation, m.Version, p.Block, p.Rack, p.Domain, p.Switch} {
		b = append(append(b, mark.Replace(text)...), '\t')
	}
	for i, a := range m.Addrs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, mark.Replace(string(a))...)
	}
	return b
}

func decodeOutcome(b []byte) (*outcome, error) {
	head, table, _ := bytes.Cut(b, []byte{'\n'})
	end, err := decode[outcome](head, len(head))
	if err != nil || end.World == nil {
		return &end, err
	}
	lines := strings.Split(string(table), "\n")
	end.World.Members = make([]job.Member, len(lines))
	for i, line := range lines {
		if err := readMember(line, &end.World.Members[i]); err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
	}
	return &end, nil
}

func readMember(line string, m *job.Member) error {
	var word [fields]string
	for i := range word {
		var more bool
		if word[i], line, more = strings.Cut(line, "\t"); !more && i < fields-1 {
			return fmt.Errorf("%d fields, want %d", i+1, fields)
		}
	}
	for i, n := range []*int{&m.First, &m.Index, &m.Slots} {
		var err error
		if *n, err = strconv.Atoi(word[i]); err != nil {
			return err
		}
	}
	if m.First < 0 || m.Slots < 0 {
		return errors.New("a negative rank")
	}
	p := &m.Place
	for i, text := range []*string{&m.Name, &m.Incarnation, &m.Version, &p.Block, &p.Rack, &p.Domain, &p.Switch} {
		*text = unmarked(word[3+i])
	}
	if word[10] != "" {
		m.Addrs = addresses(word[10])
	}
	return nil
}

func addresses(text string) []job.Addr {
	list := make([]job.Addr, 0, 1+strings.Count(text, " "))
	for a := range strings.SplitSeq(text, " ") {
		list = append(list, job.Addr(unmarked(a)))
	}
	return list
}

func unmarked(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	return unmark.Replace(text)
}
