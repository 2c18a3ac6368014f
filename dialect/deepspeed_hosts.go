package dialect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// Bounds of what a hostfile, or a file of variables, may say.
const (
	mostSlots = 4096    // of one node
	mostRanks = 1 << 20 // of all of them
	mostBytes = 4 << 20
)

// A slotted is a node, and the slots for workers on it: the numbers of its GPUs.
type slotted struct {
	name  string
	slots []int
}

// firstSlots numbers the first n slots of a node.
func firstSlots(n int) []int {
	slots := make([]int, n)
	for i := range slots {
		slots[i] = i
	}
	return slots
}

// readFile is a file that may be missing.
func readFile(h job.Host, path string) (text string, ok bool, err error) {
	b, err := h.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, err
	case len(b) > mostBytes:
		return "", false, fmt.Errorf("%s has %d bytes, more than %d", path, len(b), mostBytes)
	}
	return string(b), true, nil
}

// parseHostfile reads a hostfile as DeepSpeed does: NAME slots=N, a line a node, and what follows is of no interest.
func parseHostfile(path, text string) (hosts []slotted, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("hostfile %s has %d bytes, more than %d", path, len(text), maxFile)
	}
	number, ranks, before := 0, 0, map[string]int{}
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		host, err := parseHost(line)
		switch ranks += len(host.slots); {
		case err != nil:
		case before[host.name] > 0:
			err = fmt.Errorf("%.80s is in line %d, too", host.name, before[host.name])
		case ranks > mostRanks:
			err = fmt.Errorf("that makes more than %d slots", mostRanks)
		}
		if err != nil {
			return nil, fmt.Errorf("hostfile %s, line %d: %w", path, number, err)
		}
		hosts, before[host.name] = append(hosts, host), number
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("hostfile %s has no hosts: a line a node, such as worker-0 slots=8", path)
	}
	return hosts, nil
}

func parseHost(line string) (slotted, error) {
	words := strings.Fields(line)
	if len(words) < 2 || !strings.HasPrefix(words[1], "slots=") {
		return slotted{}, fmt.Errorf("%.80q is not NAME slots=N", line)
	}
	digits := strings.TrimPrefix(words[1], "slots=")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > mostSlots {
		return slotted{}, fmt.Errorf("%.80q: %.80s are no slots; 0 to %d can be", line, words[1], mostSlots)
	}
	return slotted{words[0], firstSlots(n)}, nil
}

// worldInfo reads what DeepSpeed tells launch.py of all nodes: JSON such as {"worker-0": [0, 1], "worker-1": [0, 1]}, in base64.
func worldInfo(text string) (hosts []slotted, err error) {
	raw, err := base64.URLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%.80q is no object of JSON", raw)
	}
	for d.More() { // in its order, which a map would lose
		var host slotted
		name, err := d.Token()
		if err == nil {
			err = d.Decode(&host.slots)
		}
		if err != nil {
			return nil, fmt.Errorf("%.80q: %w", raw, err)
		}
		host.name, _ = name.(string)
		if slices.ContainsFunc(hosts, func(h slotted) bool { return h.name == host.name }) {
			return nil, fmt.Errorf("%.80q has %q twice", raw, host.name)
		}
		if slices.ContainsFunc(host.slots, func(slot int) bool { return slot < 0 }) {
			return nil, fmt.Errorf("%.80q: a slot's number is below 0", raw)
		}
		hosts = append(hosts, host)
	}
	if _, err := d.Token(); err != nil { // what closes it
		return nil, fmt.Errorf("%.80q: %w", raw, err)
	}
	switch _, err := d.Token(); {
	case err != io.EOF:
		return nil, fmt.Errorf("%.80q: more follows the object", raw)
	case len(hosts) == 0:
		return nil, fmt.Errorf("%.80q has no nodes", raw)
	}
	return hosts, nil
}

// nodeSpecs reads what --include and --exclude take: NODE[:SLOT[,SLOT...]][@NODE...]. A node without slots has none
// in the answer, and means all of them.
func nodeSpecs(text string, known []slotted) (map[string][]int, error) {
	specs := map[string][]int{}
	for spec := range strings.SplitSeq(text, "@") {
		i := slices.IndexFunc(known, func(h slotted) bool { return h.name == spec })
		name, list := spec, ""
		if colon := strings.LastIndexByte(spec, ':'); i < 0 && colon >= 0 { // the last: a node may be an address of IPv6
			name, list = spec[:colon], spec[colon+1:]
			i = slices.IndexFunc(known, func(h slotted) bool { return h.name == name })
			if list == "" {
				return nil, fmt.Errorf("no slots follow %.80s", spec)
			}
		}
		if i < 0 {
			return nil, fmt.Errorf("there is no node %.80q; there is %s", name, names(known))
		}
		slots, err := slotList(known[i], list)
		if err != nil {
			return nil, err
		}
		specs[name] = append(specs[name], slots...)
	}
	return specs, nil
}

// slotList reads slots of one node. One whose own are not known has any.
func slotList(h slotted, list string) (slots []int, err error) {
	if list == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(list, ",") {
		slot, err := strconv.Atoi(strings.TrimSpace(word))
		switch {
		case err != nil || slot < 0 || slot >= mostSlots:
			return nil, fmt.Errorf("%.80q is no slot of %.80s: slots are numbers from 0", word, h.name)
		case h.slots != nil && !slices.Contains(h.slots, slot):
			return nil, fmt.Errorf("%.80s has no slot %d; it has %d, from 0", h.name, slot, len(h.slots))
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

// filter leaves of hosts what an include says, or all but what an exclude says.
func filter(hosts []slotted, s said) (left []slotted, err error) {
	specs, err := nodeSpecs(s.value, hosts)
	if err != nil {
		return nil, fmt.Errorf("%s %.80s: %w", s.as, s.value, err)
	}
	for _, h := range hosts {
		named, ok := specs[h.name]
		if ok && len(named) == 0 {
			named = h.slots
		}
		h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(slot int) bool {
			return slices.Contains(named, slot) != (s.name == "include")
		})
		left = append(left, h)
	}
	return left, nil
}

// some leaves out nodes without slots.
func some(hosts []slotted) []slotted {
	return slices.DeleteFunc(slices.Clone(hosts), func(h slotted) bool { return len(h.slots) == 0 })
}

// uneven reports whether nodes have different numbers of slots.
func uneven(hosts []slotted) bool {
	return slices.ContainsFunc(hosts, func(h slotted) bool { return len(h.slots) != len(hosts[0].slots) })
}

// names lists the first few hosts, for messages.
func names(hosts []slotted) string {
	var list []string
	for _, h := range hosts[:min(len(hosts), 4)] {
		list = append(list, fmt.Sprintf("%.80s", h.name))
	}
	if len(hosts) > 4 {
		list = append(list, fmt.Sprintf("and %d more", len(hosts)-4))
	}
	return strings.Join(list, ", ")
}

// here finds this node among the hosts by one of its names and addresses, else by one that goes on with a domain in one of
// the two places: -1 if it is none of them.
func here(h job.Host, hosts []slotted) int {
	mine := aliases(h)
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b },
		func(a, b string) bool { return strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".") },
	} {
		for _, name := range mine {
			if i := slices.IndexFunc(hosts, func(host slotted) bool { return same(name, host.name) }); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// aliases are what this node is called: its name, names and addresses that /etc/hosts has for it, and its own addresses.
func aliases(h job.Host) []string {
	found := []string{h.Hostname}
	etc, _, _ := readFile(h, "/etc/hosts") // what cannot be read names nobody
	for line := range strings.Lines(etc) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); slices.Contains(words, h.Hostname) {
			found = append(found, words...)
		}
	}
	trie, _, _ := readFile(h, "/proc/net/fib_trie")
	return append(append(found, localAddresses(trie)...), "localhost")
}

// localAddresses are the machine's own in the kernel's table of routes: a leaf, and below it that it is local.
func localAddresses(trie string) (found []string) {
	leaf := ""
	for line := range strings.Lines(trie) {
		line = strings.TrimSpace(line)
		if addr, ok := strings.CutPrefix(line, "|-- "); ok {
			leaf = addr
		} else if line == "/32 host LOCAL" && !slices.Contains(found, leaf) {
			found = append(found, leaf)
		}
	}
	return found
}
