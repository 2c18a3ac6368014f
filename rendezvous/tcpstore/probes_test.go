package tcpstore

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A probe is a row of requests that was sent to the server of each version, and replayed here to ours.
type probe struct {
	name string
	ask  []request
	then []request // sent after the reply to ask
	// ours is our reply where servers of PyTorch differ among themselves: one of theirs, or a better one.
	ours string
}

func req(v verb, key, value string) request {
	return request{verb: v, key: []byte(key), value: []byte(value)}
}

func addTo(text string, n int64) []request {
	return []request{req(set, "/n", text), {verb: add, key: []byte("/n"), n: n}}
}

func swap(key, expected, desired string) request {
	return request{verb: compareSet, key: []byte(key), value: []byte(expected), other: []byte(desired)}
}

func many(v verb, keys ...string) request {
	r := request{verb: v}
	for _, k := range keys {
		r.keys = append(r.keys, []byte(k))
	}
	return r
}

var (
	getN   = []request{req(get, "/n", "")}
	getC   = []request{req(get, "/c", "")}
	probes = []probe{
		{name: "GET missing", ask: getN, ours: "0000000000000000"}, // classic servers close
		{name: "SET empty key", ask: []request{req(set, "", "v")}, then: []request{req(get, "", "")}},
		{name: "ADD missing +0", ask: []request{{verb: add, key: []byte("/n")}}, then: getN},
		{name: "ADD on non-numeric", ask: addTo("xyz", 1)},
		{name: "ADD on '12abc'", ask: addTo("12abc", 1), then: getN},
		{name: "ADD on ' 7'", ask: addTo(" 7", 1), then: getN},
		{name: "ADD on '+7'", ask: addTo("+7", 1), then: getN},
		{name: "ADD on '0x10'", ask: addTo("0x10", 1), then: getN},
		{name: "ADD on empty value", ask: addTo("", 1)},
		{name: "ADD on 99999999999999999999", ask: addTo("99999999999999999999", 1)},
		{name: "ADD overflow MAX+1", ask: addTo("9223372036854775807", 1), then: getN},
		{name: "CSET missing, expected empty", ask: []request{swap("/c", "", "x")}, then: getC},
		{name: "CSET missing, expected nonempty; then CHECK", ask: []request{swap("/c", "e", "x")}, then: []request{many(check, "/c")}},
		{name: "CSET existing empty value, expected empty", ask: []request{req(set, "/c", ""), swap("/c", "", "x")}, then: getC},
		{name: "CSET existing, expected empty, no match", ask: []request{req(set, "/c", "old"), swap("/c", "", "x")}, then: getC},
		{name: "CHECK 0 keys", ask: []request{many(check)}},
		{name: "WAIT 0 keys", ask: []request{many(wait)}},
		{name: "DEL missing / twice", ask: []request{req(set, "/n", ""), req(deleteKey, "/n", ""), req(deleteKey, "/n", "")}},
		{name: "pipelined SET,GET,ADD,NUM", ask: []request{req(set, "/n", "1"), getN[0], {verb: add, key: []byte("/n"), n: 4}, getN[0]}},
		{name: "VALIDATE second time", ask: []request{{verb: validate, nonce: magic}}},
		{name: "PING", ask: []request{{verb: ping, nonce: 0x04030201}}},
		{name: "BARRIER ws=1", ask: []request{{verb: barrier, key: []byte("/n"), n: 1}}, then: getN, ours: "00 then 010000000000000031"},
		{name: "BARRIER ws=0", ask: []request{{verb: barrier, key: []byte("/n")}}, ours: "00"},
		{name: "APPEND missing then GET", ask: []request{req(appendKey, "/n", "ab"), req(appendKey, "/n", "cd"), getN[0]}},
		{name: "CANCEL with nothing pending", ask: []request{{verb: cancelWait}}},
		{name: "WAIT pending, CANCEL", ask: []request{many(wait, "/never"), {verb: cancelWait}}},
		{name: "MGET one missing", ask: []request{req(set, "/a", "v1"), many(multiGet, "/a", "/m")},
			ours: "020000000000000076310000000000000000"}, // classic servers close after the value
		{name: "MGET missing first", ask: []request{req(set, "/a", "v1"), many(multiGet, "/m", "/a")},
			ours: "000000000000000002000000000000007631"},
	}
)

var (
	probeLine = regexp.MustCompile(`^(.+?)  +(.*)$`)
	counted   = regexp.MustCompile(`,? *then (NUM )?[0-9a-f]{2}00000000000000$`)
)

// TestProbes asks our server what the servers of five builds of PyTorch were asked, and expects the same replies.
func TestProbes(t *testing.T) {
	files, _ := filepath.Glob("testdata/probes/*.txt")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		theirs := map[string]string{}
		for line := range strings.Lines(string(b)) {
			if m := probeLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				theirs[m[1]] = strings.Join(strings.Fields(m[2]), " ")
			}
		}
		seen := 0
		for _, p := range probes {
			if want, ok := theirs[p.name]; ok {
				seen++
				t.Run(filepath.Base(file)+"/"+p.name, func(t *testing.T) {
					t.Parallel()
					p.run(t, want, strings.Contains(file, "1.13"))
				})
			}
		}
		if seen < 18 {
			t.Errorf("%s: only %d probes known", file, seen)
		}
	}
}

func (p probe) run(t *testing.T, want string, legacy bool) {
	numbers, server, ours := numbersV, &Server{}, p.ours
	if legacy {
		numbers, server = numbersA, &Server{Legacy: LegacyA}
		ours = "" // an old client gets what an old server says
	}
	c, err := net.Dial("tcp", serve(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(4 * time.Minute))
	if !legacy {
		_, _ = c.Write(hello)
	}
	want = strings.TrimSuffix(strings.ReplaceAll(want, "ConnectionResetError", "EOF"), " then send BrokenPipeError")
	if p.then == nil || strings.HasSuffix(want, "EOF") {
		want = counted.ReplaceAllString(want, "") // the probe went on to count its server's keys
	}
	if ours != "" {
		want = ours
	}
	first, second, _ := strings.Cut(want, " then ")
	converse(t, c, numbers, p.ask, first)
	if second != "" {
		converse(t, c, numbers, p.then, second)
	}
}

// converse sends requests and expects what was captured: hex, or "-" for nothing, and "|EOF" where the server closes.
func converse(t *testing.T, c net.Conn, numbers numbering, ask []request, want string) {
	t.Helper()
	var out []byte
	for _, r := range ask {
		out = r.encode(out, numbers)
	}
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	reply, closes := strings.CutSuffix(want, "|EOF")
	b, err := hex.DecodeString(strings.TrimPrefix(reply, "-"))
	if err != nil {
		t.Fatalf("capture %q: %v", want, err)
	}
	err = expect(c, b)
	switch {
	case err != nil:
	case closes:
		err = expectEOF(c)
	case len(numbers) == len(numbersV):
		err = inStep(c, "v")
	default:
		err = inStep(c, "l")
	}
	if err != nil {
		t.Errorf("want %q: %v", want, err)
	}
}
