package main

import (
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/proc"
)

// An ownVariable is one of muster's that sets no flag.
type ownVariable struct{ name, text string }

// Who sets them.
var (
	// forPeople are those that a person or a platform sets.
	forPeople = []ownVariable{
		{bypass, "1: a link of a launcher's name is that launcher, and what muster would translate is run as it is"},
		{"MUSTER_HOOK", "off: no hook in Python, and so no heartbeats without the program's help"},
		{"MUSTER_LOG", "debug, info (if not given), warn or error: what muster says on its standard error"},
		{noSSH, "on, off, auto (if not given): a launcher's node 0 tells nodes that are sshd what to run"},
		{"MUSTER_TASK", "the name of this pod's task in a Volcano job, where no variable says it"},
		{terminationLog, "the file for the last words, in place of /dev/termination-log"},
		{launcher.TokenVariable, "a secret of the job's nodes, the same on all; workers do not get it, nor what init --observe starts"},
		{tokenFileVariable, "a file with that secret, also for sshd and ssh"},
	}
	// forWorkers are those that workers find, for their own use.
	forWorkers = []ownVariable{
		{"MUSTER_BEAT_SOCKET", "where a program that cannot write a page says its step: a Unix datagram socket"},
		{"MUSTER_PAGE", "the file in memory in which a worker says how far it is"},
		{proc.TagName, "JOB/RANK/ROUND/RANDOM: by this a worker's descendants are known"},
	}
	// amongThemselves are those by which muster's processes tell each other something. Nobody else should set them.
	amongThemselves = []ownVariable{
		{bashVariable, "what BASH_ENV was before a shell script was run"},
		{bypassed, "who became the real launcher: one that comes again goes round in circles"},
		{carriedVariable, "where the files lie of the node that told this one what to run"},
		{"MUSTER_ONLOOKER", "init's process, for the one that looks on"},
		{"MUSTER_PAGES", "where ranks that another launcher starts make their pages"},
		{"MUSTER_SPAWNED", "how many processes torch.multiprocessing starts for one worker, and where they make their pages"},
		{waitingVariable, "the shell that waits for muster"},
		{flagsVariable, "the flags of the muster run that runs a shell script"},
		{linksVariable, "where the links of launchers' names lie that a shell script calls"},
		{"MUSTER_SPAWNED", "how many processes a worker that looks on starts by torch.multiprocessing, and where they tell of themselves"},
		{inBackground, "the parent of sshd waits until it listens"},
		{understoodVariable, "what the first process understood of another launcher's words"},
	}
)

// ownVariables are all of them, by name.
func ownVariables() (names []string) {
	for _, some := range [][]ownVariable{forPeople, forWorkers, amongThemselves} {
		for _, v := range some {
			names = append(names, v.name)
		}
	}
	return names
}
