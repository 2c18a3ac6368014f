package job

// A Host is what a reader of platforms may see of the machine: nothing else, so that a test or `--env-file`
// can put any other in its place.
type Host struct {
	Getenv   func(name string) string                   // "" when unset
	ReadFile func(path string) (data []byte, err error) // absolute paths
	Hostname string
	Dir      string // in which commands are run, absolute; "": nobody knows

	Environ   []string                  // NAME=VALUE, for systems that make names of variables out of a job's; nil: none
	List      func(dir string) []string // names of the files in a directory; nil: none are known
	Addresses func() []string           // of its interfaces; nil: none are known
	GPUs      func() int                // how many the workers would see; nil: none
}
