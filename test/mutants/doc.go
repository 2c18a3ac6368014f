// Package mutants plants mistakes that people make in what fences, stops, meets and judges, and asks the simulation and the random schedules for them.
//
// go test ./test/mutants looks whether the list of them, mistakes.diff, still goes with the code. make mutants plays each.
package mutants
