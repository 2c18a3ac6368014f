package launcher

import "encoding/json"

// UnmarshalJSON reads a policy also as the release before wrote it, which had one more word for what follows when a worker fails.
func (p *policy) UnmarshalJSON(b []byte) error {
	type plain policy
	var older struct {
		Clean string `json:"clean"`
	}
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &older); err != nil {
		return err
	}
	if older.Clean == "none" && p.OnExit == "" {
		p.OnExit = onExitLeave
	}
	return nil
}
