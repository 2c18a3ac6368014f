package witness

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// mostOfLoop is what a loop takes from one look to the next; who takes more does more than to wait.
const mostOfLoop = 20 * time.Millisecond

// loops is the processor time that threads of a worker took for nothing but to wait for the network, as far as that was seen. Gloo has one for each
// process group, which looks every 10 ms (gloo/transport/tcp/loop.cc): dozens of them take as much as a worker that does little. The main thread is none.
func (w *Witness) loops(pid int, r *record) time.Duration {
	now := w.proc().Threads(pid)
	for thread, used := range now {
		before, known := r.threads[thread]
		if d := used - before; known && d > 0 && d <= mostOfLoop && thread != pid && w.loop(pid, strconv.Itoa(thread)) {
			r.looped += d
		}
	}
	r.threads = now
	return r.looped
}

// polls are where in the kernel a thread sleeps that waits for events of several sockets (fs/eventpoll.c).
var polls = []string{"ep_poll", "do_epoll_wait", "do_epoll_pwait"}

// loop reports whether a thread waits for the network, by what it does, or, where the kernel does not tell, by its name.
func (w *Witness) loop(pid int, thread string) bool {
	return slices.Contains(polls, w.waits(pid, "task", thread)) || strings.TrimSpace(w.read(pid, "task", thread, "comm")) == "gloo_tcp_loop"
}
