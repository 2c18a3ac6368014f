package topology

// These read single files for the rooms that judge a machine, in the bounds and the manner of Probe: what is absent or cannot be
// read is "".

// Line is a file with one value.
func (r Root) Line(name string) string { return r.tree().line(name) }

// Text is a file of many lines.
func (r Root) Text(name string) string { return r.tree().text(name) }

// Names lists a directory, as people count.
func (r Root) Names(dir string) []string { return r.tree().names(dir) }

// Exists reports whether there is such a file.
func (r Root) Exists(name string) bool { return r.tree().exists(name) }

// Link is where a symbolic link leads, from the root; "" if it is none.
func (r Root) Link(name string) string { return r.tree().link(name) }

// Openable is "" if a process of this container can open a device node, else why not.
func (r Root) Openable(name string) string { return r.tree().device(name) }
