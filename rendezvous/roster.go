package rendezvous

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// An outcome travels as JSON, except for the members of a world, which follow as a table: a table of a thousand nodes is read
// twenty times faster than their JSON.
//
// A line is a node: first rank, index, slots, name, incarnation, version, block, rack, domain, switch, addresses, and then, if there are any,
// ports, rails, and what came later. Fields are separated by tabs, addresses by blanks, ports by commas; a rail is three words, with blanks
// between all and = before the first; what came later is + and words: fixed or nothing, the zone, and
// two for each fact. A later version may add fields at the end of a line.
//
// Only the first members have lines that everybody reads, or n nodes would read n lines each. From protocol 2 on the others are
// packed in the first line, in two more fields behind the addresses: their incarnations, by which each finds its rank, and all else of them,
// which is read by those who must know it.

const fields = 11

var (
	mark   = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, " ", `\s`)
	unmark = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\s`, " ")
)

// packing is the first protocol whose nodes read packed members.
const packing = 2

func encodeOutcome(end *outcome) ([]byte, error) {
	if end.World == nil {
		return json.Marshal(end)
	}
	head := *end
	head.World = &world{World: end.World.World}
	head.World.Members = nil
	b, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	members, rest := end.World.Members, end.World.rest
	if end.Protocol >= packing && len(members) > shown {
		members, rest = pack(members)
	}
	for i, m := range members {
		b = appendMember(append(b, '\n'), m)
		if i == 0 {
			b = rest.append(b)
		}
		b = appendOptional(b, m)
	}
	return b, nil
}

// appendOptional adds the last fields.
func appendOptional(b []byte, m job.Member) []byte {
	between := byte('\t')
	for _, port := range m.Ports {
		b = strconv.AppendInt(append(b, between), int64(port), 10)
		between = ','
	}
	more := m.Fixed || m.Place.Zone != "" || len(m.Facts) > 0
	if len(m.Ports) == 0 && (len(m.Rails) > 0 || more) {
		b = append(b, '\t')
	}
	if len(m.Rails) > 0 || more {
		b, between = append(b, '\t'), '='
	}
	for _, r := range m.Rails {
		for _, word := range []string{r.Name, r.At, r.Why} {
			b = append(append(b, between), mark.Replace(word)...)
			between = ' '
		}
	}
	if more {
		b = append(b, "\t+"...)
		if m.Fixed {
			b = append(b, fixed...)
		}
		b = append(append(b, ' '), mark.Replace(m.Place.Zone)...)
		for _, f := range m.Facts {
			b = append(append(b, ' '), mark.Replace(f.Name)...)
			b = append(append(b, ' '), mark.Replace(f.Value)...)
		}
	}
	return b
}

const fixed = "fixed"

// appendMember adds what every line has.
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
	table, end.World.rest = unhook(table)
	end.World.Members, err = readMembers(string(table))
	return &end, err
}

func readMembers(table string) ([]job.Member, error) {
	r := newRoster(table)
	for i := range r.members {
		if err := r.read(&r.members[i]); err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
	}
	return r.members, nil
}

// A roster reads the table of members. What it makes are parts of the text and of two slices: n nodes read n lines each.
type roster struct {
	rest    string // of the table
	marked  bool   // there are marks in it
	members []job.Member
	addrs   []job.Addr // room for those of all members
}

func newRoster(table string) *roster {
	lines := 1 + strings.Count(table, "\n")
	return &roster{
		rest: table, marked: strings.Contains(table, `\`),
		members: make([]job.Member, lines), addrs: make([]job.Addr, 0, lines+strings.Count(table, " ")),
	}
}

// read reads the next line.
func (r *roster) read(m *job.Member) error {
	var line string
	line, r.rest, _ = strings.Cut(r.rest, "\n")
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
		*text = r.unmarked(word[3+i])
	}
	m.Addrs = r.addresses(word[10])
	ports, line, _ := strings.Cut(line, "\t")
	rails, line, _ := strings.Cut(line, "\t")
	more, _, _ := strings.Cut(line, "\t")
	return cmp.Or(readPorts(ports, m), r.readRails(rails, m), r.readMore(more, m))
}

// readMore reads the field behind that of the rails, if it is there.
func (r *roster) readMore(text string, m *job.Member) error {
	text, some := strings.CutPrefix(text, "+")
	if !some {
		return nil
	}
	if n := strings.Count(text, " ") / 2; n > maxFacts {
		return fmt.Errorf("%d facts, more than %d", n, maxFacts)
	}
	words := strings.Split(text, " ")
	m.Fixed = words[0] == fixed
	if len(words) > 1 {
		m.Place.Zone = r.unmarked(words[1])
	}
	for i := 2; i+1 < len(words); i += 2 {
		m.Facts = append(m.Facts, job.Fact{Name: r.unmarked(words[i]), Value: r.unmarked(words[i+1])})
	}
	return nil
}

// readRails reads the field behind that of the ports, if it is there.
func (r *roster) readRails(text string, m *job.Member) error {
	text, some := strings.CutPrefix(text, "=")
	if !some { // none, or what a later version has there
		return nil
	}
	if n := strings.Count(text, " ") + 1; n%3 != 0 || n/3 > maxRails {
		return fmt.Errorf("%d words are not those of %d rails at the most", n, maxRails)
	}
	words := strings.Split(text, " ")
	for i := 0; i < len(words); i += 3 {
		m.Rails = append(m.Rails, job.Rail{Name: r.unmarked(words[i]), At: r.unmarked(words[i+1]), Why: r.unmarked(words[i+2])})
	}
	return nil
}

// readPorts reads the field behind those that every line has, if it is there.
func readPorts(text string, m *job.Member) error {
	if text == "" || text[0] == ' ' { // none, or packed members
		return nil
	}
	if n := strings.Count(text, ","); n >= maxPorts {
		return fmt.Errorf("%d ports, more than %d", n+1, maxPorts)
	}
	for _, word := range strings.Split(text, ",") {
		port, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		m.Ports = append(m.Ports, port)
	}
	return nil
}

// addresses reads the last field; none is nil.
func (r *roster) addresses(text string) []job.Addr {
	if text == "" {
		return nil
	}
	first := len(r.addrs)
	for more := true; more; {
		var a string
		a, text, more = strings.Cut(text, " ")
		r.addrs = append(r.addrs, job.Addr(r.unmarked(a)))
	}
	return slices.Clip(r.addrs[first:])
}

func (r *roster) unmarked(text string) string {
	if !r.marked {
		return text
	}
	return unmark.Replace(text)
}
