package job

// A Machine tells hosts apart beyond the life of a pod: a node's own name may be a pod's, which moves from one to another.
type Machine struct {
	Name string `json:"name,omitempty"` // by which the platform's operators know it; "": nobody told
	ID   string `json:"id,omitempty"`   // of its installation, where two may have one name; "": the platform sees to that
	Boot string `json:"boot,omitempty"` // boot_id, which containers see as well, until the machine starts anew
}

// Is reports whether two descriptions are of one machine: of one name or, where one has none, of one boot.
func (m Machine) Is(other Machine) bool {
	if m.Name != "" && other.Name != "" {
		return m.Name == other.Name && m.ID == other.ID
	}
	return m.Boot != "" && m.Boot == other.Boot
}

// String names the machine for people.
func (m Machine) String() string {
	if m.Name != "" {
		return m.Name
	}
	return "the machine of boot " + m.Boot
}
