package stage

import (
	"fmt"
	"slices"
	"strings"
)

// Cut drops every packet between some machines and all others, until Heal.
func (s *Stage) Cut(some ...*Machine) {
	s.t.Helper()
	var there, here []string
	for _, m := range s.machines {
		switch {
		case !m.Alive():
		case slices.Contains(some, m):
			there = append(there, m.Port())
		default:
			here = append(here, m.Port())
		}
	}
	a, b := strings.Join(there, ", "), strings.Join(here, ", ")
	s.Drop(fmt.Sprintf("iifname { %s } oifname { %s }", a, b), fmt.Sprintf("iifname { %s } oifname { %s }", b, a))
}

// Drop drops what the switch passes on and one of these matches of nft holds for, until Heal.
func (s *Stage) Drop(matches ...string) {
	s.t.Helper()
	script := "add table bridge cut\nadd chain bridge cut forward { type filter hook forward priority 0; }\n"
	for _, match := range matches {
		script += fmt.Sprintf("add rule bridge cut forward %s drop\n", match)
	}
	s.Switch.Network("nft", script)
}

// Heal lets all packets pass again.
func (s *Stage) Heal() {
	s.t.Helper()
	s.Switch.Network("nft", "delete table bridge cut\n")
}
