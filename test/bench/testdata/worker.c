// The worker of the benchmark: says when its main began, and then ends, or waits to be killed, or writes.
//
//   worker FIFO end|wait            one line "node local-rank pid nanoseconds" into FIFO
//   worker FIFO write BYTES         and so many bytes in lines of 100 to standard output, 64 KiB at a time

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char block[655 * 100];

static void write_lines(long long bytes) {
	memset(block, 'x', sizeof block);
	for (size_t i = 99; i < sizeof block; i += 100)
		block[i] = '\n';
	for (long long done = 0; done < bytes;) {
		ssize_t n = write(1, block, sizeof block);
		if (n <= 0)
			exit(3);
		done += n;
	}
}

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
	if (!strcmp(argv[2], "write") && argc == 4)
		write_lines(atoll(argv[3]));
	if (!strcmp(argv[2], "wait")) {
		alarm(300); // should the benchmark die, its workers must not stay
		for (;;)
			pause();
	}
	return 0;
}
