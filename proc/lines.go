package proc

// Lines says what becomes of a process's standard output and error when the first process carries them, line by line.
type Lines struct {
	Console int // the console that shows them, by its number

	Rank, LocalRank int     // whose they are
	Bare            bool    // no rank before the lines
	Raw             bool    // bare bytes pass as they are
	Shown           [2]bool // standard output, standard error: on the console

	Progress string // a regular expression: lines that match it tell that the process advances; "": none does

	Filed [2]bool // the same: in files
	Dir   string  // of the files
	Quota int64   // bytes that the files of one of them may hold; 0: no limit
}
