package discovery

import (
	"errors"
	"fmt"
	"strings"

	"github.com/muster-run/muster/job"
)

// Nodelist takes Slurm's list of nodes apart (slurm's src/common/hostlist.c): "gpu[01-03,07]", "rack[0-1]-n[1-2],login". Numbers keep
// their width; of several brackets the last one counts fastest. The error begins where the text ends, as Endpoint's.
func Nodelist(text string) (nodes []string, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("is empty")
	}
	seen := map[string]bool{}
	for _, word := range outside(text) {
		expanded, err := expand(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		for _, node := range expanded {
			name, err := Host(node)
			if err != nil {
				return nil, fmt.Errorf("has %q, which %w", clip(node), err)
			}
			if seen[name] {
				return nil, fmt.Errorf("has %s twice", clip(name))
			}
			seen[name] = true
			nodes = append(nodes, name)
		}
		if len(nodes) > job.MaxNodes {
			return nil, errTooMany
		}
	}
	return nodes, nil
}

var errTooMany = fmt.Errorf("has more than %d nodes", job.MaxNodes)

// outside splits at commas that stand in no brackets.
func outside(text string) (words []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			words, from = append(words, text[from:i]), i+1
		}
	}
	return append(words, text[from:])
}

// expand is every name that a word with brackets stands for.
func expand(word string) ([]string, error) {
	before, rest, bracket := strings.Cut(word, "[")
	if !bracket {
		return []string{word}, nil
	}
	inside, after, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errors.New("has a bracket that is not closed")
	}
	tails, err := expand(after)
	if err != nil {
		return nil, err
	}
	var all []string
	for part := range strings.SplitSeq(inside, ",") {
		numbers, err := span(part)
		if err != nil {
			return nil, err
		}
		if (len(all)+1)+len(numbers)*len(tails) > job.MaxNodes+1 {
			return nil, errTooMany
		}
		for _, n := range numbers {
			for _, tail := range tails {
				all = append(all, before+n+tail)
			}
		}
	}
	return all, nil
}

// span is the numbers of "7" or "01-03", as wide as they are written.
func span(text string) (numbers []string, err error) {
	low, high, ranged := strings.Cut(strings.TrimSpace(text), "-")
	if !ranged {
		high = low
	}
	from, err1 := whole(low)
	to, err2 := whole(high)
	switch {
	case err1 != nil || err2 != nil || from > to || len(low) > 20:
		return nil, fmt.Errorf("has %q in brackets, which is no number and no range", clip(text))
	case to-from >= job.MaxNodes:
		return nil, errTooMany
	}
	for n := from; n <= to; n++ {
		numbers = append(numbers, fmt.Sprintf("%0*d", len(low), n))
	}
	return numbers, nil
}

// TasksPerNode takes "2(x3),1" apart and returns the most tasks that a node has; 0 for "".
func TasksPerNode(text string) (most int, err error) {
	if text == "" {
		return 0, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		count, times, repeated := strings.Cut(strings.TrimSpace(word), "(x")
		n, err := whole(count)
		if err == nil && repeated {
			_, err = whole(strings.TrimSuffix(times, ")"))
		}
		if err != nil || repeated && !strings.HasSuffix(times, ")") {
			return 0, errors.New("is no list of numbers of tasks")
		}
		most = max(most, n)
	}
	return most, nil
}
