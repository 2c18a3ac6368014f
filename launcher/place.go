package launcher

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/gpus"
)

// planPlace says where this node stands in the network, and whether its number counts for more than that. A node alone stands anywhere.
func planPlace(c Config, found discovery.Finding, p *Plan) error {
	n := &p.Spec.Self
	n.Fixed = n.Index >= 0 && (c.NodeRank >= 0 || p.Process != nil || p.Spec.Servers > 0 || found.Rank >= 0 && !found.Anywhere())
	if p.Spec.Nodes+p.Spec.Spares == 1 {
		return nil
	}
	s, err := discovery.Stands(c.Host, discovery.Said{Value: c.Place, By: c.by("place")}, discovery.Said{Value: c.PlaceFile, By: c.by("place-file")})
	if err != nil {
		return fail(job.ExitUsage, "", "%w", err)
	}
	if p.machine.MNNVL() && s.Domain == "" && c.Place != discovery.NoPlace {
		s.Add(job.Place{Domain: c.clique()}, "nvidia-smi")
	}
	n.Place = s.Place
	p.Notes = append(p.Notes, s.Notes...)
	if text := s.String(); text != "" {
		if n.Fixed {
			text += ", which does not change ranks: this node's number was given"
		}
		p.Settings = append(p.Settings, Setting{"place", text, strings.Join(s.By, ", ")})
	}
	return nil
}

// clique is the part of NVLink's domain between machines to which this one's GPUs belong, in the form of the label nvidia.com/gpu.clique; "":
// nvidia-smi does not say it of all alike.
func (c Config) clique() string {
	if c.First == nil {
		return ""
	}
	asked := gpus.New(c.First.Start, c.First.KillTree, c.Environ, nil)
	text, err := asked.Ask(context.Background(), []string{"nvidia-smi", "--query-gpu=fabric.clusterUuid,fabric.cliqueId", "--format=csv,noheader"})
	if err != nil {
		return ""
	}
	return cliqueIn(text)
}

func cliqueIn(answer string) (clique string) {
	for line := range strings.Lines(answer) {
		cluster, id, _ := strings.Cut(strings.TrimSpace(line), ", ")
		this := fmt.Sprintf("%s.%s", cluster, id)
		none := id == "" || strings.ContainsAny(this, "[ ") || strings.Contains(this, "N/A") || strings.Trim(cluster, "0-") == ""
		if none || clique != "" && clique != this {
			return ""
		}
		clique = this
	}
	return clique
}
