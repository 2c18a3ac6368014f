package discovery

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Standing is a node's place in the network, and who says so.
type Standing struct {
	job.Place
	By    []string // where its parts were read
	Notes []string // what of it could not be used, for people
}

// A Said is what a user said, and by which flag or variable.
type Said struct{ Value, By string }

// NoPlace is what a user says for a node to have no place.
const NoPlace = "none"

// maxPlaces bounds a file of places, and maxPart a part's name.
const (
	maxPlaces = 4 << 20
	maxPart   = 128
)

// Stands reads where this node stands in the network: what said says, else what a file has for it, and of what these leave open whatever the
// platform left here. It asks nobody. The error begins with what is wrong, for said and file are a user's.
func Stands(h job.Host, said, file Said) (s Standing, err error) {
	switch {
	case said.Value == NoPlace:
		return Standing{}, nil
	case said.Value != "":
		if s.Place, err = ParsePlace(said.Value); err != nil {
			return s, fmt.Errorf("%s %w", said.By, err)
		}
		s.By = []string{said.By}
	case file.Value != "":
		if err := s.listed(h, file.Value); err != nil {
			return s, fmt.Errorf("%s %s: %w", file.By, file.Value, err)
		}
	}
	for _, source := range []func(job.Host, *Standing){slurmPlace, podPlace, cloudPlace} {
		source(h, &s)
	}
	return s, nil
}

// Add takes of a place what is not known yet, and notes who says so if that is something.
func (s *Standing) Add(p job.Place, by string) {
	path, more := s.Path(), false
	for i, part := range p.Path() {
		if path[i] == "" && part != "" && checkPart(part) == nil {
			path[i], more = part, true
		}
	}
	if more {
		s.Place, s.By = job.PlaceOf(path), append(s.By, by)
	}
}

// ParsePlace reads "rack=r7,switch=leaf3", or names alone, widest first: "switch", "rack/switch", "block/rack/switch", "zone/block/rack/switch".
func ParsePlace(text string) (job.Place, error) {
	path := make([]string, len(job.PlaceParts))
	if !strings.Contains(text, "=") {
		words := strings.Split(text, "/")
		bare := []int{0, 1, 2, 4}
		if len(words) > len(bare) {
			return job.Place{}, fmt.Errorf("%.80q has %d parts: ZONE/BLOCK/RACK/SWITCH are the most", text, len(words))
		}
		for i, word := range words {
			path[bare[len(bare)-len(words)+i]] = strings.TrimSpace(word)
		}
		return checked(path)
	}
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		i := slices.Index(job.PlaceParts, name)
		if i < 0 {
			return job.Place{}, fmt.Errorf("%.80q: %.40q is no part of a place: %s are", text, name, strings.Join(job.PlaceParts, ", "))
		}
		if path[i] != "" && path[i] != value {
			return job.Place{}, fmt.Errorf("%.80q has two of %s: %.40q and %.40q", text, name, path[i], value)
		}
		path[i] = value
	}
	return checked(path)
}

func checked(path []string) (job.Place, error) {
	for _, part := range path {
		if err := checkPart(part); err != nil {
			return job.Place{}, err
		}
	}
	if p := job.PlaceOf(path); p != (job.Place{}) {
		return p, nil
	}
	return job.Place{}, fmt.Errorf("names no part of a place: give one, such as rack=r7, or %s", NoPlace)
}

// checkPart refuses what is no name: it is shown to people, and travels to all nodes.
func checkPart(text string) error {
	if len(text) > maxPart {
		return fmt.Errorf("%.40q… has %d bytes, more than the %d of a name", text, len(text), maxPart)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%.40q has a character that no name has", text)
	}
	if strings.Contains(text, "$(") {
		return fmt.Errorf("%.80q is a variable that Kubernetes left as it is: define it before this one", text)
	}
	return nil
}

// listed reads a file that has this node's place as its only line, or lines of nodes, as Slurm writes them, and a place. Lines that contradict each
// other are refused: the order of ranks would rest on which of them comes first.
func (s *Standing) listed(h job.Host, file string) error {
	text, err := h.ReadFile(file)
	if err != nil {
		return unnamed(err)
	}
	if len(text) > maxPlaces {
		return fmt.Errorf("has %d bytes, more than %d", len(text), maxPlaces)
	}
	own := []string{strings.ToLower(h.Hostname), first(strings.ToLower(h.Hostname)), strings.ToLower(Machine(h).Name)}
	number, found := 0, 0 // lines, and the one with this node's place
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 || len(words) > 1 && !lists(words[0], own) {
			continue
		}
		if len(words) > 2 {
			return fmt.Errorf("line %d has %d words: a place, or a list of nodes and a place", number, len(words))
		}
		place, err := ParsePlace(words[len(words)-1])
		switch {
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		case found > 0 && place != s.Place:
			return fmt.Errorf("line %d has %s for %s, and line %d %s; give each node one place", number, place, h.Hostname, found, s.Place)
		case found == 0:
			s.Place, s.By, found = place, append(s.By, file), number
		}
	}
	if found > 0 {
		return nil
	}
	s.Notes = append(s.Notes, fmt.Sprintf("%s has no place for %s", file, h.Hostname))
	return nil
}

// unnamed is an error without the file's name.
func unnamed(err error) error {
	if path := new(fs.PathError); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// lists reports whether a list of nodes has one of these names. What is no list has none.
func lists(list string, own []string) bool {
	nodes, err := Nodelist(list)
	return err == nil && slices.ContainsFunc(nodes, func(n string) bool { return slices.Contains(own, n) || slices.Contains(own, first(n)) })
}

// slurmPlace is what Slurm's topology plugin says: SLURM_TOPOLOGY_ADDR, in words of which SLURM_TOPOLOGY_ADDR_PATTERN says what each is
// (topology/tree: switch.switch.node, from the top down; topology/block: block.node).
func slurmPlace(h job.Host, s *Standing) {
	address, pattern := h.Getenv("SLURM_TOPOLOGY_ADDR"), h.Getenv("SLURM_TOPOLOGY_ADDR_PATTERN")
	words, kinds := strings.Split(address, "."), strings.Split(pattern, ".")
	if address == "" || pattern == "" {
		return
	}
	if len(words) != len(kinds) {
		s.Notes = append(s.Notes, fmt.Sprintf("SLURM_TOPOLOGY_ADDR=%s has %d words, SLURM_TOPOLOGY_ADDR_PATTERN=%s %d: where this node stands is not known", clip(address), len(words), clip(pattern), len(kinds)))
		return
	}
	var p job.Place
	var switches []string
	for i, kind := range kinds {
		switch kind {
		case "block":
			p.Block = strings.Trim(p.Block+"."+words[i], ".")
		case "switch":
			switches = append(switches, words[i])
		}
	}
	levels := []*string{&p.Zone, &p.Block, &p.Rack, &p.Switch}
	if p.Block != "" {
		levels = levels[2:]
	}
	if wider := len(switches) - len(levels); wider > 0 { // as one
		switches = append([]string{strings.Join(switches[:wider+1], ".")}, switches[wider+1:]...)
	}
	for i, name := range switches {
		*levels[len(levels)-len(switches)+i] = name
	}
	s.Add(p, "SLURM_TOPOLOGY_ADDR="+clip(address))
}

// podFiles are where a downward-API volume has a pod's labels and annotations, as Kubernetes' manual puts them.
var podFiles = []string{"/etc/podinfo/labels", "/etc/podinfo/annotations"}

// podKeys are labels that say where a node stands, by the part that they are. Pods have those of the zone from Kubernetes 1.33 on; others are
// labels of nodes, which somebody copied to the pod (a webhook, an operator of the site).
var podKeys = [][]string{
	{"topology.kubernetes.io/zone"},
	{"cloud.google.com/gce-topology-block", "topology.k8s.aws/network-node-layer-1", "oci.oraclecloud.com/host.network_block_id", "fabric.topograph.run/tier-2", "network.topology.nvidia.com/core"},
	{"cloud.google.com/gce-topology-subblock", "topology.k8s.aws/network-node-layer-2", "oci.oraclecloud.com/host.rack_id", "fabric.topograph.run/tier-1", "network.topology.nvidia.com/spine"},
	{"nvidia.com/gpu.clique", "accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator", "ds.coreweave.com/nvlink.domain", "topology.k8s.aws/ultraserver-id"},
	{"topology.k8s.aws/network-node-layer-3", "fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf"},
}

// podPlace is what labels of this pod say.
func podPlace(h job.Host, s *Standing) {
	for _, file := range podFiles {
		text, err := h.ReadFile(file)
		if err != nil || len(text) > maxPlaces {
			continue
		}
		labels := podLabels(text)
		path := make([]string, len(podKeys))
		for i, keys := range podKeys {
			for _, key := range keys {
				if path[i] == "" {
					path[i] = labels[key]
				}
			}
		}
		s.Add(job.PlaceOf(path), file)
	}
}

// podLabels reads lines of NAME="VALUE", escaped as Go does (kubernetes' pkg/fieldpath, FormatMap).
func podLabels(text []byte) map[string]string {
	labels := map[string]string{}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		name, quoted, _ := strings.Cut(in.Text(), "=")
		if value, err := strconv.Unquote(quoted); err == nil {
			labels[name] = value
		}
	}
	return labels
}

// cloudFile is what cloud-init leaves of a virtual machine's metadata, for everybody to read (its "instance-data").
const cloudFile = "/run/cloud-init/instance-data.json"

// cloudPlace is the zone of a virtual machine.
func cloudPlace(h job.Host, s *Standing) {
	text, err := h.ReadFile(cloudFile)
	if err != nil || len(text) > maxPlaces {
		return
	}
	var data struct {
		V1 struct {
			Zone string `json:"availability_zone"`
		} `json:"v1"`
	}
	if json.Unmarshal(text, &data) == nil {
		s.Add(job.Place{Zone: data.V1.Zone}, cloudFile)
	}
}

// anywhere are platforms that number pods without regard to where they stand, and to which it is the same which pod has which ranks. The
// others' numbers were chosen: by a person, in a file of hosts, or by a scheduler that knows the network.
var anywhere = []string{indexed.name, jobSet.name, statefulSet.name, lws.name, trainJobTorch.name, trainJobJAX.name, jaxJob.name, xgboostJob.name, pytorchJob.name, volcano.name}

// Anywhere reports whether ranks may follow places where Rank says otherwise.
func (f Finding) Anywhere() bool { return slices.Contains(anywhere, f.Rule) && !f.PerProcess }
