package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Told is what nvidia-smi says of a GPU, and no file does. What it does not say is "".
type Told struct {
	MIG           string // mig.mode.current: Enabled, Disabled
	ECC           string // ecc.mode.current: Enabled, Disabled
	Uncorrected   *int   // ecc.errors.uncorrected.volatile.total
	Fabric        string // fabric.state: Completed, In Progress, …
	FabricStatus  string // fabric.status: Success, or what is wrong
	FabricCluster string // fabric.clusterUuid, of the NVLink domain between machines
	Clique        string // fabric.cliqueId within it
	Health
}

// Health is what only AskHealth finds out.
type Health struct {
	RemapPending, RemapFailed string // remapped_rows.pending, .failure: Yes, No
	Throttled                 uint64 // clocks_throttle_reasons.active, bits of nvml.h
	Compute                   string // compute_mode: Default, Exclusive_Process, Prohibited
	Used                      int    // memory.used in MiB
	Persistence               string // persistence_mode: Enabled, Disabled
}

// An SMI runs nvidia-smi with arguments and returns what it wrote to standard output. It is for the caller to bound it: where a
// driver has died it never ends.
type SMI func(args ...string) (string, error)

// A question is one group of nvidia-smi's fields. Where one name is unknown, which makes a whole query fail, they are asked apart.
type question struct {
	query  string // how it is asked: "" for --query-gpu
	fields []string
	note   func(g *GPU, answers []string)
}

// What is asked of memory, before a job and during it.
var (
	eccQuestion = question{fields: []string{"ecc.mode.current", "ecc.errors.uncorrected.volatile.total"}, note: func(g *GPU, a []string) {
		g.Told.ECC = a[0]
		if n, err := strconv.Atoi(a[1]); err == nil && n >= 0 {
			g.Told.Uncorrected = &n
		}
	}}
	remapQuestion = question{query: "--query-remapped-rows=gpu_bus_id", fields: []string{"remapped_rows.pending", "remapped_rows.failure"}, note: func(g *GPU, a []string) {
		g.Told.RemapPending, g.Told.RemapFailed = a[0], a[1]
	}}
)

var questions = []question{
	{fields: []string{"uuid", "name"}, note: func(g *GPU, a []string) {
		if g.UUID == "" {
			g.UUID = a[0]
		}
		if g.Model == "" || g.Model == g.PCI.number() {
			g.Model = a[1]
		}
	}},
	{fields: []string{"mig.mode.current"}, note: func(g *GPU, a []string) { g.Told.MIG = a[0] }},
	eccQuestion,
	{fields: []string{"fabric.state", "fabric.status"}, note: func(g *GPU, a []string) { g.Told.Fabric, g.Told.FabricStatus = a[0], a[1] }},
	{fields: []string{"fabric.clusterUuid", "fabric.cliqueId"}, note: func(g *GPU, a []string) { g.Told.FabricCluster, g.Told.Clique = a[0], a[1] }},
}

// checkups are what one asks before a job, beside questions.
var checkups = []question{
	remapQuestion,
	{fields: []string{"clocks_throttle_reasons.active"}, note: func(g *GPU, a []string) {
		g.Told.Throttled, _ = strconv.ParseUint(a[0], 0, 64)
	}},
	{fields: []string{"compute_mode", "persistence_mode", "memory.used"}, note: func(g *GPU, a []string) {
		g.Told.Compute, g.Told.Persistence = a[0], a[1]
		g.Told.Used, _ = strconv.Atoi(a[2])
	}},
}

// AskHealth has nvidia-smi say what is of interest before a job alone, as Ask does.
func (m *Machine) AskHealth(smi SMI, stop func(error) bool) { m.put(checkups, smi, stop) }

// AskMemory has nvidia-smi say what became of the GPUs' memory alone. It asks on, whatever was not answered.
func (m *Machine) AskMemory(smi SMI) {
	m.put([]question{eccQuestion, remapQuestion}, smi, func(error) bool { return false })
}

// put asks questions, at once if that is answered, until stop reports true of an error. It reports whether to go on. Each call takes 20 ms
// with one GPU.
func (m *Machine) put(all []question, smi SMI, stop func(error) bool) bool {
	if one, rest := joined(all); len(all)-len(rest) > 1 {
		switch err := m.ask(one, smi); {
		case err == nil:
			all = rest
		case stop(err):
			m.unsaid(one, err)
			return false
		}
	}
	for _, q := range all {
		err := m.ask(q, smi)
		if err != nil {
			m.unsaid(q, err)
		}
		if err != nil && stop(err) {
			return false
		}
	}
	return true
}

// joined makes one of those questions that are asked by --query-gpu, and returns the others.
func joined(all []question) (one question, rest []question) {
	var parts []question
	for _, q := range all {
		if q.query != "" {
			rest = append(rest, q)
			continue
		}
		parts = append(parts, q)
		one.fields = append(one.fields, q.fields...)
	}
	one.note = func(g *GPU, answers []string) {
		for _, q := range parts {
			q.note(g, answers[:len(q.fields)])
			answers = answers[len(q.fields):]
		}
	}
	return one, rest
}

func (m *Machine) ask(q question, smi SMI) error {
	text, err := smi(cmp.Or(q.query, "--query-gpu=pci.bus_id")+","+strings.Join(q.fields, ","), "--format=csv,noheader,nounits")
	if err != nil {
		return err
	}
	return m.answer(q, text)
}

func (m *Machine) unsaid(q question, err error) {
	m.Unknown = append(m.Unknown, fmt.Sprintf("nvidia-smi, %s: %v", strings.Join(q.fields, ","), err))
}

// Ask has nvidia-smi say what no file does: how many NVLinks are between several GPUs, and the ids of MIG's instances where there are some, too. A question that it does not answer leaves a note in Unknown; without an answer to the
// first, or when stop reports true of an error, no more is asked.
func (m *Machine) Ask(smi SMI, stop func(error) bool) {
	if !m.put(questions[:1], smi, func(error) bool { return true }) || !m.put(questions[1:], smi, stop) {
		return
	}
	cut := slices.ContainsFunc(m.GPUs, func(g GPU) bool { return len(g.MIG) > 0 })
	for _, ask := range []struct {
		args []string
		of   bool
		into func(string) error
	}{
		{[]string{"topo", "-m"}, len(m.shown()) > 1, m.nvlinks},
		{[]string{"-L"}, cut, m.migUUIDs},
	} {
		if !ask.of {
			continue
		}
		text, err := smi(ask.args...)
		if err == nil {
			err = ask.into(text)
		}
		if err != nil {
			m.Unknown = append(m.Unknown, fmt.Sprintf("nvidia-smi %s: %v", strings.Join(ask.args, " "), err))
			if stop(err) {
				return
			}
		}
	}
}

// answer reads lines such as "00000000:1B:00.0, GPU-5a1…, NVIDIA H100 80GB HBM3". Each question needs a line for some GPU.
func (m *Machine) answer(q question, text string) error {
	some := false
	for line := range strings.Lines(clean([]byte(text))) {
		words := strings.Split(line, ",")
		a, err := ParseAddress(strings.TrimSpace(words[0]))
		if err != nil && len(words) == len(q.fields)+1 {
			if odd := fmt.Sprintf("nvidia-smi: %v", err); len(m.Unknown) < maxNotes && !slices.Contains(m.Unknown, odd) {
				m.Unknown = append(m.Unknown, odd)
			}
		}
		if err != nil || len(words) != len(q.fields)+1 {
			continue
		}
		if i := slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.PCI.Address == a }); i >= 0 {
			var answers []string
			for _, w := range words[1:] {
				answers = append(answers, said(w))
			}
			q.note(&m.GPUs[i], answers)
			some = true
		}
	}
	if !some {
		return unsaid(text)
	}
	return nil
}

// said is an answer, "" for the ways in which nvidia-smi says that there is none.
func said(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > 256 || text == "N/A" || strings.HasPrefix(text, "[") { // [N/A], [Not Supported], [Unknown Error], [GPU is lost]
		return ""
	}
	return text
}

func unsaid(text string) error {
	if strings.TrimSpace(text) == "" {
		return errEmpty
	}
	return fmt.Errorf("it said %s", quote(text))
}

// nvlinks reads the matrix of nvidia-smi topo -m for the cells NV1, NV2, … between GPUs. Its columns are the visible GPUs in order.
// The other cells the paths in sysfs tell, and better.
func (m *Machine) nvlinks(text string) error {
	seen := m.shown()
	rows, columns := 0, 0
	for line := range strings.Lines(escapes(text)) {
		cells := strings.Fields(line)
		row, ok := gpuNumber(cells)
		if len(cells) > 1 && ok && (columns == 0 || strings.HasPrefix(cells[1], "GPU")) { // the header begins as a row does
			columns = headed(cells)
			continue
		}
		if !ok || row >= len(seen) {
			continue
		}
		rows++
		for column, cell := range cells[1:min(len(cells), columns+1)] {
			if column < len(seen) && column != row {
				m.GPUs[seen[row]].linkedBy(cell, m.GPUs[seen[column]].Index)
			}
		}
	}
	if rows == 0 {
		return unsaid(text)
	}
	return nil
}

// headed is how many columns a header gives to GPUs; what follows are adapters.
func headed(cells []string) (columns int) {
	for columns < len(cells) {
		if _, ok := gpuNumber(cells[columns:]); !ok {
			break
		}
		columns++
	}
	return columns
}

// linkedBy notes what a cell says of the way to another GPU: in place of what was supposed.
func (g *GPU) linkedBy(cell string, to int) {
	g.Links = slices.DeleteFunc(g.Links, func(p Peer) bool { return p.Kind == "nvlink" && p.Index == to })
	count, ok := strings.CutPrefix(cell, "NV")
	if n, err := strconv.Atoi(count); ok && err == nil && n > 0 && n <= 1000 {
		g.Links = append(g.Links, Peer{Index: to, Kind: "nvlink", Links: n})
	}
}

// shown are the places in GPUs of those that nvidia-smi counts.
func (m *Machine) shown() (places []int) {
	for i, g := range m.GPUs {
		if g.Vendor == "nvidia" && g.Visible {
			places = append(places, i)
		}
	}
	return places
}

// gpuNumber is 3 of a row that begins with GPU3.
func gpuNumber(cells []string) (int, bool) {
	if len(cells) == 0 {
		return 0, false
	}
	rest, ok := strings.CutPrefix(cells[0], "GPU")
	n, err := strconv.Atoi(rest)
	return n, ok && err == nil && n >= 0
}

// escapes takes out the sequences by which nvidia-smi underlines its header: ESC [4m.
func escapes(text string) string {
	var b strings.Builder
	for text != "" {
		i := strings.IndexByte(text, 0x1b)
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		_, after, ok := strings.Cut(text[i:], "m")
		if !ok {
			return b.String()
		}
		text = after
	}
	b.WriteString(text)
	return clean([]byte(b.String()))
}

// migUUIDs reads nvidia-smi -L: "GPU 0: NVIDIA H100 (UUID: GPU-…)", and below it "  MIG 1g.10gb     Device  0: (UUID: MIG-…)". Its
// order is that of the instances.
func (m *Machine) migUUIDs(text string) error {
	byUUID := map[string]*GPU{}
	for i := range m.GPUs {
		byUUID[m.GPUs[i].UUID] = &m.GPUs[i]
	}
	var g *GPU
	next, some := 0, false
	for line := range strings.Lines(clean([]byte(text))) {
		_, id, ok := strings.Cut(line, "(UUID: ")
		id, _, closed := strings.Cut(id, ")")
		line = strings.TrimSpace(line)
		switch {
		case !ok || !closed || len(id) > 256:
		case strings.HasPrefix(line, "GPU "):
			g, next, some = byUUID[id], 0, true
		case strings.HasPrefix(line, "MIG ") && g != nil:
			for next < len(g.MIG) && !g.MIG[next].Visible {
				next++
			}
			if next < len(g.MIG) {
				g.MIG[next].UUID = id
				next++
			}
		}
	}
	if !some {
		return unsaid(text)
	}
	return nil
}
