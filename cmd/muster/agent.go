package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/report"
)

// An agent is the running one that a command is about.
type agent struct {
	socket, job string
	own         bool // it must be this user's
	acts        bool // something is done to its job, not only looked at
}

func (a *agent) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "job", Destination: &a.job, Usage: "`ID` of the job, where agents of several jobs run here"},
		&cli.StringFlag{Name: "socket", Destination: &a.socket, Usage: "`PATH` of the agent's control socket; else it is found"},
	}
}

// absent is the exit status when there is no agent to ask, or it refuses.
const absent = 1

// ask finds the agent, asks it for something and waits for at most so long.
func (a *agent) ask(within time.Duration, r control.Request, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	c.Own = a.own
	if err := c.Ask(ctx, r, result); err != nil {
		return &launcher.Error{Code: absent, Err: err}
	}
	return nil
}

// status finds the agent, and waits for at most so long for what it says of its job.
func (a *agent) status(within time.Duration) (s report.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := a.find(ctx)
	if err != nil {
		return s, err
	}
	c.Own = a.own
	if s, err = a.look(ctx, c); err != nil {
		err = &launcher.Error{Code: absent, Err: err}
	}
	return s, err
}

// followsIn is how long an agent that takes another's place may be waited for until it answers.
const followsIn = 2 * time.Second

// look is what an agent says of its job; where it has just died, the one that takes its place.
func (a *agent) look(ctx context.Context, c control.Client) (s report.Status, err error) {
	late := time.After(followsIn)
	for {
		if err = c.Ask(ctx, control.Request{Do: "status"}, &s); !a.left(err) || !c.GoesOn() {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, err
		case <-late:
			return s, err
		case <-time.After(insistPause):
		}
	}
}

// insist is ask, again and again while one agent takes another's place: what is asked changes nothing.
func (a *agent) insist(within time.Duration, r control.Request, result any) error {
	for late := time.Now().Add(within); ; time.Sleep(insistPause) {
		err := a.ask(time.Until(late), r, result)
		if !a.left(err) || time.Now().Add(insistPause).After(late) {
			return err
		}
	}
}

// left reports whether an agent that was there did not answer because it is not there any more, or not yet again.
func (a *agent) left(err error) bool {
	return errors.Is(err, control.ErrGone) || errors.Is(err, fs.ErrNotExist)
}

// order asks the agent to do something to its job, and says in the answer which that is.
func (a *agent) order(within time.Duration, r control.Request, answer any) error {
	a.acts = true
	if err := a.stick(); err != nil {
		return err
	}
	s, err := a.status(within)
	if err != nil {
		return err
	}
	var text string
	err = a.ask(within, r, &text)
	*answer.(*string) = of(s) + text
	return err
}

// of begins an answer with the job that it is about, if that has a name by now.
func of(s report.Status) string {
	if s.Job == "" {
		return ""
	}
	return "job " + s.Job + ": "
}

// stick finds the agent, once and for all: of its run, whichever process that is.
func (a *agent) stick() error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	c, err := a.find(ctx)
	if err == nil {
		a.socket = c.Path
	}
	return err
}

// await asks for something that is to come to pass, and returns when the agent has heard that.
func (a *agent) await(r control.Request) (tell func(ctx context.Context, result any) error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	c, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	if tell, err = c.Await(ctx, r); err != nil {
		return nil, &launcher.Error{Code: absent, Err: err}
	}
	return tell, nil
}

const insistPause = 20 * time.Millisecond

// find returns the agent that was named, or the only one that runs here: for what acts on a job, the only one in the directories where ours would be.
func (a *agent) find(ctx context.Context) (control.Client, error) {
	if a.socket != "" {
		return control.Client{Path: a.socket}, nil
	}
	dirs := slices.DeleteFunc([]string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()}, func(dir string) bool { return dir == "" })
	found := control.Find(dirs...)
	sure := len(found) > 0 || !a.acts || a.job != "" // that one which is alone is meant
	if len(found) == 0 {
		found = control.FindAnywhere()
	}
	if len(found) == 1 && a.job == "" && sure {
		return found[0], nil
	}
	var all []string
	var exact []control.Client
	found = slices.DeleteFunc(found, func(c control.Client) bool {
		s, err := a.look(ctx, c)
		switch {
		case a.job != "" && (err != nil || !launcher.Calls(a.job, s.Job)):
			return true
		case err != nil:
			all = append(all, fmt.Sprintf("one that does not answer (--socket %s)", c.Path))
			return false
		}
		if s.Job == a.job {
			exact = append(exact, c)
		}
		all = append(all, fmt.Sprintf("job %s, pid %d (--socket %s)", report.Plain(s.Job), s.PID, c.Path))
		return false
	})
	if len(exact) == 1 { // the others are attempts at it, or in a namespace
		return exact[0], nil
	}
	switch {
	case len(found) == 0:
		return control.Client{}, a.none(dirs)
	case len(found) == 1 && sure:
		return found[0], nil
	}
	err := fmt.Errorf("%d agents run here: %s", len(found), strings.Join(all, "; "))
	if len(found) == 1 {
		err = fmt.Errorf("no muster run has its directory in %s; the one that runs here may be another job: %s", strings.Join(dirs, ", "), all[0])
	}
	return control.Client{}, &launcher.Error{Code: absent, Err: err, Hint: "say which one with --socket, or with --job"}
}

func (a *agent) none(dirs []string) error {
	what := "no muster run"
	if a.job != "" {
		what += fmt.Sprintf(" for job %q", a.job)
	}
	return &launcher.Error{Code: absent, Err: nobody(fmt.Sprintf("%s of user %d here: looked for %s*/%s in %s, and in /proc/net/unix",
		what, os.Getuid(), control.Dirs, control.Socket, strings.Join(dirs, ", "))),
		Hint: "call it in the job's container, as its user, or name the socket with --socket"}
}

// nobody is that no agent is found: as with control.ErrGone, one may be there in a moment.
type nobody string

func (n nobody) Error() string        { return string(n) }
func (n nobody) Is(target error) bool { return target == control.ErrGone }
