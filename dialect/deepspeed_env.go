package dialect

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-run/muster/job"
)

// deepspeedEnv is what DeepSpeed adds to the workers' environment where there are many nodes: the directory in which it
// runs, and the variables of .deepspeed_env in the home directory and in that one.
func deepspeedEnv(h job.Host, r *Request) error {
	path := cmp.Or(h.Getenv("PWD"), ".")
	if old := h.Getenv("PYTHONPATH"); old != "" {
		path += ":" + old
	}
	env := job.Env{{Name: "PYTHONPATH", Value: path, Why: "DeepSpeed's way where there are many nodes: modules of the directory in which it runs"}}
	name := cmp.Or(h.Getenv("DS_ENV_FILE"), ".deepspeed_env")
	for _, file := range []string{filepath.Join(cmp.Or(h.Getenv("HOME"), "/root"), name), name} {
		text, _, err := readFile(h, file)
		if err == nil {
			env, err = exports(h, file, text, env)
		}
		if err != nil {
			return err
		}
	}
	r.Env = append(env, r.Env...)
	return nil
}

// exports adds to env the variables of a file for DeepSpeed, NAME=VALUE a line. There a shell reads the values between
// double quotes, so that $NAME stands for a variable; of what else a shell does nothing is done here.
func exports(h job.Host, file, text string, env job.Env) (job.Env, error) {
	known := func(name string) string {
		if value, ok := env.Lookup(name); ok {
			return value
		}
		return h.Getenv(name)
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || name == "" || strings.ContainsAny(name, " \t$\x00"):
			return nil, fmt.Errorf("%s, line %d: %.80q is not NAME=VALUE", file, number, line)
		case strings.ContainsAny(value, "`\x00") || strings.Contains(value, "$("):
			return nil, fmt.Errorf("%s, line %d: no shell reads %.80s: write the value itself", file, number, name)
		}
		env = append(env, job.Var{Name: name, Value: os.Expand(value, known), Why: file})
	}
	return env, nil
}
