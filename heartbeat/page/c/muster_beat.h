/* muster_beat.h: a program in C or C++ tells muster how far it is.
 *
 *     muster_beat_step(500);
 *     muster_beat_phase("checkpoint", 600);   // seconds that it takes at most; 0: not known
 *     muster_beat_phase("", 0);               // it is over
 *
 * Each returns 0, or an errno value: ENOENT outside a job of muster's, which is no error to most programs. A call takes some
 * microseconds. Threads and processes may call them at once. One file, to be copied; for Linux, GCC or Clang, gnu99 or C++.
 */
#ifndef MUSTER_BEAT_H
#define MUSTER_BEAT_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "muster_beat.h: the page is little-endian"
#endif

/* The part of the page that is the program's: 13 words from byte 64. Those of docs/heartbeat.md, "The page". */
struct muster_beat_part {
	uint64_t turn, steps, count, until, spare;
	unsigned char phase[64]; /* its length, and the text */
};

struct muster_beat_page {
	int fd, error;
	struct muster_beat_part *part;
};

static inline struct muster_beat_page muster_beat_open(void) {
	static const unsigned char head[16] = {'M', 'U', 'S', 'T', 'E', 'R', 'P', 'G', 1, 0, 0, 0, 0, 16, 0, 0};
	struct muster_beat_page p = {-1, ENOENT, NULL};
	struct stat info;
	const char *path = getenv("MUSTER_PAGE");
	void *at;
	if (path == NULL || *path == 0)
		return p;
	p.fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (p.fd < 0 || fstat(p.fd, &info) != 0) {
		p.error = errno;
		return p;
	}
	if (!S_ISREG(info.st_mode) || info.st_size < 4096) {
		p.error = EINVAL;
		return p;
	}
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	if (at == MAP_FAILED) {
		p.error = errno;
		return p;
	}
	p.error = memcmp(at, head, sizeof head) == 0 ? 0 : EINVAL;
	p.part = (struct muster_beat_part *)(void *)((char *)at + 64);
	return p;
}

static inline void muster_beat_close(struct muster_beat_page *p) {
	if (p->part != NULL)
		munmap((char *)p->part - 64, 4096);
	if (p->fd >= 0)
		close(p->fd); /* ends the lock, too */
}

/* A lock of the open file, of which each call has its own: it holds among threads as it does among processes. The header names
 * it for GNU programs only. */
static inline int muster_beat_lock(int fd) {
	struct flock l;
	int try_, failed;
	memset(&l, 0, sizeof l);
	l.l_type = F_WRLCK;
	l.l_whence = SEEK_SET;
	l.l_start = 64;
	l.l_len = 1;
	for (try_ = 0; (failed = fcntl(fd, 37 /* F_OFD_SETLK */, &l)) != 0 && try_ < 100; try_++) {
		struct timespec ms = {0, 1000000};
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			break;
		nanosleep(&ms, NULL);
	}
	return failed ? errno : 0;
}

/* Readers see all of a change or nothing: the first word is odd meanwhile. */
static inline void muster_beat_begin(struct muster_beat_part *p) {
	__atomic_store_n(&p->turn, p->turn | 1, __ATOMIC_RELAXED); /* of a writer that died, it is odd already */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void muster_beat_end(struct muster_beat_part *p) {
	p->count++;
	__atomic_store_n(&p->turn, p->turn + 1, __ATOMIC_RELEASE);
}

static inline int muster_beat_write(const uint64_t *step, const char *phase, double seconds) {
	struct muster_beat_page p = muster_beat_open();
	struct timespec now = {0, 0};
	if (p.error == 0)
		p.error = muster_beat_lock(p.fd);
	if (p.error == 0) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		muster_beat_begin(p.part);
		if (step != NULL)
			p.part->steps = *step;
		if (phase != NULL) {
			size_t n = strlen(phase);
			n = n < 63 ? n : 63;
			memset(p.part->phase, 0, 64);
			p.part->phase[0] = (unsigned char)n;
			memcpy(p.part->phase + 1, phase, n);
			p.part->until = 0;
			if (n > 0 && seconds > 0 && seconds < 1e9)
				p.part->until = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uint64_t)(seconds * 1e9);
		}
		muster_beat_end(p.part);
	}
	muster_beat_close(&p);
	return p.error;
}

/* Training has come to step n. */
static inline int muster_beat_step(uint64_t n) { return muster_beat_write(&n, NULL, 0); }

/* The program does something else than to train, for so many seconds at most; "" ends it. */
static inline int muster_beat_phase(const char *name, double seconds) { return muster_beat_write(NULL, name, seconds); }

#endif
