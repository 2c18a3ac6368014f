package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// errorFile is what torchrun leaves in its own TORCHELASTIC_ERROR_FILE when a job failed, for a scheduler to read
// (torch/distributed/elastic/multiprocessing/errors/error_handler.py): the first failure's file, with its exit code.
type errorFile struct {
	Message struct {
		Message   string `json:"message"`
		ErrorCode int    `json:"errorCode"`
		ExtraInfo struct {
			Callstack string `json:"py_callstack"`
			Timestamp string `json:"timestamp"` // Unix seconds
		} `json:"extraInfo"`
	} `json:"message"`
}

// WriteError leaves a failed job's first cause in a file as torchrun does. Every node writes the same, for it is that of the job.
func (e Ending) WriteError(path string) error {
	var f errorFile
	at := e.Ended
	f.Message.Message, f.Message.ErrorCode = e.Verdict.Sentence, e.Verdict.Code
	if first := e.Verdict.First; first != nil {
		f.Message.Message = cmp.Or(first.Exception, e.Verdict.Sentence)
		f.Message.ExtraInfo.Callstack = strings.Join(first.Tail, "\n")
		if !first.At.IsZero() {
			at = first.At
		}
	}
	f.Message.ExtraInfo.Timestamp = strconv.FormatInt(at.Unix(), 10)
	data, _ := json.Marshal(f) // plain values: cannot fail
	if err := write(path, append(data, '\n')); err != nil {
		return fmt.Errorf("write the error file: %w", err)
	}
	return nil
}
