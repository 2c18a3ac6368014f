package rendezvous

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// shown bounds the names and indices of a Status: it is read by people, and travels each second.
const shown = 32

// A Status is how far a meeting has come.
type Status struct {
	Here     []string      // names of nodes that are here, in the order of their coming; at most 32
	Count    int           // how many are here
	Expected int           // how many make the world, at most
	Fewest   int           // how many make one if need be
	Closes   time.Duration // in which time the fewest begin without the others; 0: they are not here, or nobody is waited for
	New      bool          // that is because the store is new: nodes of a world that it forgot may have workers
	Missing  []int         // indices that nobody here has, when all who are here gave theirs; at most 32
	Running  int           // the generation that must end before this node can join; 0: none
	Alive    time.Duration // how long the Running world has been alive, about; 0: nothing was heard of it yet
	Quiet    time.Duration // for how long nothing was heard of it, as where the store was away; 0: it was a moment ago
	World    []string      // names of its nodes; at most 32
	Size     int           // how many they are
	Twin     string        // the node of it that another agent is, in the place of this one; "": none is
	Another  bool          // it is another job's, which runs another command, and meets here under the same id
	Meets    bool          // that one's nodes meet again
	Beside   bool          // agents stay of the job, which ended well: it begins anew when all nodes have come again
	Before   string        // why an earlier meeting of this job was refused, if it was

	Unsaid    int           // a ticket whose node has not said who it is; 0: none
	UnsaidFor time.Duration // since when
	Others    []string      // ids of other jobs that are meeting in the same store; at most 8
	Unfit     []string      // nodes that said that no worker can run there, and why; at most 4
}

// String says it in a line: "3 of 4 nodes here, missing node 2".
func (s Status) String() string {
	if s.Running > 0 {
		world := s.world()
		text := fmt.Sprintf("%s has been running for %v on %s", world, s.Alive, names(s.World, s.Size))
		switch {
		case s.Meets:
			text = fmt.Sprintf("%s, on %s, has lost a node, and the others meet again", world, names(s.World, s.Size))
		case s.Alive == 0 && s.Quiet == 0:
			text = fmt.Sprintf("%s was begun on %s", world, names(s.World, s.Size))
		case s.Alive == 0:
			text = fmt.Sprintf("%s was begun on %s, and nothing was heard of it in the %v since this node looks", world, names(s.World, s.Size), s.Quiet)
		case s.Quiet > 0:
			text = fmt.Sprintf("%s was last heard of %v ago, when it had been running for %v on %s", world, s.Quiet, s.Alive, names(s.World, s.Size))
		}
		text += "; waiting for its end"
		if s.Another {
			text += ", for it runs another command and has no place for this node: give each job its own --rdzv-id, or another port with --rdzv-endpoint or --master-port"
			if s.Meets {
				text += "; a node that is to take the place of the lost one runs the same command"
			}
		}
		if s.Twin != "" {
			text += fmt.Sprintf(", for another agent has the place of %s in it", s.Twin)
		}
		if s.Count > 1 {
			text += fmt.Sprintf(" with %d nodes (%s)", s.Count, names(s.Here, s.Count))
		}
		return text
	}
	text := fmt.Sprintf("%d of %s nodes here", s.Count, s.wanted())
	if s.Count > 0 {
		text += fmt.Sprintf(" (%s)", names(s.Here, s.Count))
	}
	text += s.missing()
	if s.Closes > 0 {
		text += fmt.Sprintf("; they begin in %v", s.Closes)
	}
	if s.New {
		text += ": this store is new, and nodes of a world that it forgot may still have workers"
	}
	if s.Unsaid > 0 {
		text += fmt.Sprintf("; ticket %d was drawn %d s ago and has not said who it is", s.Unsaid, s.UnsaidFor/time.Second)
	}
	for _, why := range s.Unfit {
		text += "; " + why
	}
	if len(s.Others) > 0 {
		text += fmt.Sprintf("; also meeting here: %s (were all nodes given the same job id?)", quoted(s.Others))
	}
	if s.Beside {
		text += "; the job has ended well, and agents of it are parked: this node waits beside them, and the job begins anew when all nodes were made again"
	}
	if s.Before != "" {
		text += "; an earlier meeting was refused: " + s.Before
	}
	return text
}

// world is the one that must end first, as people call it.
func (s Status) world() string {
	if s.Another {
		return fmt.Sprintf("generation %d of another job that meets here", s.Running)
	}
	return fmt.Sprintf("generation %d of this job", s.Running)
}

// Timeless is the same without what changes by itself.
func (s Status) Timeless() Status {
	s.Alive, s.Closes, s.UnsaidFor, s.Quiet = 1, 0, 0, min(s.Quiet, 1)
	return s
}

// wanted is how many nodes are waited for, as people write it.
func (s Status) wanted() string {
	if s.Fewest == 0 || s.Fewest == s.Expected {
		return strconv.Itoa(s.Expected)
	}
	return fmt.Sprintf("%d:%d", s.Fewest, s.Expected)
}

func (s Status) missing() string {
	if len(s.Missing) == 0 {
		return ""
	}
	word := "node"
	if len(s.Missing) > 1 {
		word = "nodes"
	}
	numbers := make([]string, len(s.Missing))
	for i, m := range s.Missing {
		numbers[i] = strconv.Itoa(m)
	}
	return fmt.Sprintf(", missing %s %s", word, names(numbers, s.Expected-s.Count))
}

func quoted(ids []string) string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = "job " + strconv.Quote(id)
	}
	return strings.Join(list, ", ")
}

// names joins the first of total names, and says how many are left out.
func names(list []string, total int) string {
	text := strings.Join(list, ", ")
	if more := total - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
