package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/remote"
)

// pdsh stands for the program of that name, as DeepSpeed calls it.
func pdsh(args []string) error {
	o, err := getopt("hLNSVbdqR:f:l:t:u:w:x:", args)
	switch {
	case err != nil:
		return err
	case o.has('V'):
		fmt.Println("muster " + version() + " in pdsh's place")
		return nil
	case o.last('R') != "" && o.last('R') != "ssh":
		return fmt.Errorf("-R %s is not here: nodes are reached where muster is sshd", o.last('R'))
	case len(o.rest) == 0:
		return errors.New("no command")
	}
	hosts, err := hostList(o.all('w'), o.all('x'))
	if err != nil {
		return err
	}
	width := 32
	if err := (number{&width, 1, 1 << 16}).Set(cmp.Or(o.last('f'), "32")); err != nil {
		return fmt.Errorf("-f: %w", err)
	}
	extra, err := getopt("46AKTXYaqtxyo:p:i:l:F:e:c:", strings.Fields(os.Getenv("PDSH_SSH_ARGS")+" "+os.Getenv("PDSH_SSH_ARGS_APPEND")))
	if err != nil {
		return fmt.Errorf("PDSH_SSH_ARGS, PDSH_SSH_ARGS_APPEND: %w", err)
	}
	keys, err := secrets(false, extra.all('i')...)
	if err != nil {
		return err
	}
	ctx, stop := untilTold()
	defer stop()
	codes := eachHost(hosts, width, func(rank int, host string) int {
		return onHost(ctx, extra, keys, host, percent(strings.Join(o.rest, " "), host, rank), o.has('N'))
	})
	if ctx.Err() != nil {
		return exit(job.ExitINT)
	}
	if o.has('S') {
		return status(slices.Max(codes))
	}
	return nil
}

// eachHost does the same for all hosts, so many at once, and returns what came of it.
func eachHost(hosts []string, width int, do func(rank int, host string) int) []int {
	codes := make([]int, len(hosts))
	var all sync.WaitGroup
	free := make(chan struct{}, width)
	for i, host := range hosts {
		free <- struct{}{}
		all.Go(func() { codes[i] = do(i, host); <-free })
	}
	all.Wait()
	return codes
}

// onHost runs a line on one of several hosts.
func onHost(ctx context.Context, o options, keys []remote.Key, host, line string, bare bool) int {
	label := host + ": "
	if bare {
		label = ""
	}
	out, errput := &labelled{w: os.Stdout, label: label}, &labelled{w: os.Stderr, label: label}
	defer errput.flush()
	defer out.flush()
	t, err := destination(o, host)
	code := 255
	if err == nil {
		code, err = reach(ctx, "pdsh", t, keys, remote.Command{Line: []byte(line)}, remote.Streams{Out: out, Err: errput})
	}
	switch {
	case err != nil && ctx.Err() == nil:
		fmt.Fprintf(os.Stderr, "muster: pdsh: %s: %v\n", host, err)
		return 255
	case err != nil:
		return 255
	case code != 0:
		fmt.Fprintf(os.Stderr, "muster: pdsh: %s: exited with exit code %d\n", host, code)
	}
	return code
}

// percent replaces what pdsh knows in a command: %h the host, %n its number from 0, %u the user, %% a percent sign.
func percent(line, host string, rank int) string {
	me := "root"
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	return strings.NewReplacer("%h", host, "%n", fmt.Sprint(rank), "%u", me, "%%", "%").Replace(line)
}

// A labelled writes whole lines, each with a label.
type labelled struct {
	w     io.Writer
	label string
	begun []byte // a line that has not ended
}

const longestLine = 1 << 20

func (l *labelled) Write(p []byte) (int, error) {
	l.begun = append(l.begun, p...)
	for {
		i := bytes.IndexByte(l.begun, '\n')
		if i < 0 && len(l.begun) < longestLine {
			return len(p), nil
		}
		if i < 0 {
			i = len(l.begun) - 1
		}
		if _, err := l.w.Write(slices.Concat([]byte(l.label), l.begun[:i+1])); err != nil {
			return 0, err
		}
		l.begun = l.begun[i+1:]
	}
}

// flush writes the last line, if nothing ended it.
func (l *labelled) flush() {
	if len(l.begun) > 0 {
		_, _ = l.w.Write(slices.Concat([]byte(l.label), l.begun, []byte("\n")))
	}
}

const mostHosts = 1 << 16

// hostList reads lists of hosts: a,b[1-3,07] and so on, less those of others.
func hostList(with, without []string) ([]string, error) {
	hosts, err := expand(with)
	if err != nil {
		return nil, fmt.Errorf("-w: %w", err)
	}
	less, err := expand(without)
	if err != nil {
		return nil, fmt.Errorf("-x: %w", err)
	}
	hosts = slices.DeleteFunc(hosts, func(h string) bool { return slices.Contains(less, h) })
	if len(hosts) == 0 {
		return nil, errors.New("no hosts: -w a,b[1-3]")
	}
	return hosts, nil
}

func expand(lists []string) (hosts []string, err error) {
	for _, list := range lists {
		for _, word := range outside(list) {
			some, err := ranged(word)
			if err != nil {
				return nil, err
			}
			if hosts = append(hosts, some...); len(hosts) > mostHosts {
				return nil, fmt.Errorf("more than %d hosts", mostHosts)
			}
		}
	}
	return hosts, nil
}

// outside splits a list at commas that are in no brackets.
func outside(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		return r == ',' && depth <= 0
	})
}

// ranged is a host, or with brackets in its name several: w[1-3,07]x.
func ranged(word string) (hosts []string, err error) {
	head, rest, some := strings.Cut(word, "[")
	list, tail, closed := strings.Cut(rest, "]")
	switch {
	case !some:
		return []string{word}, nil
	case !closed || strings.Contains(tail, "["):
		return nil, fmt.Errorf("%q: write one range, such as w[1-3,7]", word)
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, span := strings.Cut(part, "-")
		if !span {
			high = low
		}
		first, last := 0, 0
		if (number{&first, 0, 1 << 30}).Set(low) != nil || (number{&last, 0, 1 << 30}).Set(high) != nil || last < first || last-first > mostHosts {
			return nil, fmt.Errorf("%q: %q is no range", word, part)
		}
		for i := first; i <= last; i++ {
			hosts = append(hosts, fmt.Sprintf("%s%0*d%s", head, len(low), i, tail))
		}
	}
	return hosts, nil
}
