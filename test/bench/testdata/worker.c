// The worker of the benchmark: says when its main began, and then ends, or waits to be killed, or writes lines of 100 bytes to
// its standard output, 640 at a time.
//
//   worker FIFO end|wait|MEGABYTES      writes "node local-rank pid nanoseconds" into FIFO

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (argc < 3)
		return 2;
	const char *node = getenv("BENCH_NODE"), *local = getenv("LOCAL_RANK");
	char line[100];
	int n = snprintf(line, sizeof line, "%s %s %d %lld\n", node ? node : "0", local ? local : "0", getpid(),
			 now.tv_sec * 1000000000LL + now.tv_nsec);
	int fifo = open(argv[1], O_WRONLY | O_CLOEXEC);
	if (fifo < 0 || write(fifo, line, n) != n)
		return 2;
	if (!strcmp(argv[2], "wait")) {
		alarm(300); // should the benchmark die, its workers must not stay
		for (;;)
			pause();
	}
	static char lines[64000];
	memset(lines, 'x', sizeof lines);
	for (size_t i = 99; i < sizeof lines; i += 100)
		lines[i] = '\n';
	for (long left = atol(argv[2]) * 1000000; left > 0; left -= sizeof lines)
		if (write(1, lines, sizeof lines) != sizeof lines)
			return 3;
	return 0;
}
