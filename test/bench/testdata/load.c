// Many clients of a store in one thread and one epoll instance: the least that a load can cost, the same for every server.
//
//   load PORT CLIENTS     connects as PyTorch 2.5 and later do, says how long that took, and then does what the lines of its input say:
//   OP TIMES              OP so often, each client one at a time; wait and barrier by all clients at once
//
// It answers each with the nanoseconds it took, those of the median of the replies, and those of the 99th of a hundred.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SET = 1, GET = 3, ADD = 4, WAIT = 6, MULTI_GET = 10, PING = 13 }; // as PyTorch 2.2 and later number them
enum { VALUE = 64, KEYS = 16 };

struct client {
	int fd, step;
	size_t missing; // bytes of the reply
	int64_t asked;
	char head[8]; // the beginning of the reply
	size_t have;
};

static int ep, clients, port;
static struct client *all;
static int64_t *took; // of each reply
static long replies, toAsk, toHear;
static long turn; // keys of waits and barriers are fresh each time

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static char *number(char *p, uint64_t n) { return (char *)memcpy(p, &n, 8) + 8; }
static char *text(char *p, const char *s) {
	size_t n = strlen(s);
	return (char *)memcpy(number(p, n), s, n) + n;
}

static void say(struct client *c, const char *ask, size_t n, size_t reply) {
	c->missing = reply;
	c->have = 0;
	c->asked = now();
	if (send(c->fd, ask, n, MSG_NOSIGNAL) != (ssize_t)n)
		fail("send");
}

static char *pinged(char *p) {
	*p++ = PING;
	return (char *)memcpy(p, "\1\2\3\4", 4) + 4;
}

// An op says what a client asks at a step, and how many bytes the reply has; nothing at 0.
typedef size_t op(struct client *c, char **p);

static size_t get(struct client *c, char **p) {
	*(*p)++ = GET;
	*p = text(*p, "bench/0");
	return c->step == 0 ? 8 + VALUE : 0;
}

// SET has no reply: a PING behind it has.
static size_t set(struct client *c, char **p) {
	char key[64];
	snprintf(key, sizeof key, "bench/own/%ld", (long)(c - all));
	*(*p)++ = SET;
	*p = text(*p, key);
	*p = number(*p, VALUE);
	memset(*p, 'x', VALUE);
	*p = pinged(*p + VALUE);
	return c->step == 0 ? 4 : 0;
}

static size_t add(struct client *c, char **p) {
	char key[64];
	snprintf(key, sizeof key, "bench/count/%ld", (long)(c - all));
	*(*p)++ = ADD;
	*p = text(*p, key);
	*p = number(*p, 1);
	return c->step == 0 ? 8 : 0;
}

static size_t multi_get(struct client *c, char **p) {
	char key[64];
	*(*p)++ = MULTI_GET;
	*p = number(*p, KEYS);
	for (int i = 0; i < KEYS; i++) {
		snprintf(key, sizeof key, "bench/%d", i);
		*p = text(*p, key);
	}
	return c->step == 0 ? KEYS * (8 + VALUE) : 0;
}

static char *waits(char *p, const char *key) {
	*p++ = WAIT;
	return text(number(p, 1), key);
}

static char *sets(char *p, const char *key) {
	*p++ = SET;
	return text(text(p, key), "1");
}

// All wait for a key; the last of them sets it first, when it has had an answer to its ping, so that the others are likely to wait.
static size_t wait_(struct client *c, char **p) {
	char key[64];
	snprintf(key, sizeof key, "bench/wait/%ld", turn);
	int last = c == &all[clients - 1];
	if (last && c->step == 0) {
		*p = pinged(*p);
		return 4;
	}
	if (c->step > last)
		return 0;
	if (last)
		*p = sets(*p, key);
	*p = waits(*p, key);
	return 1;
}

// As PyTorch's _store_based_barrier and torchrun's: each adds one, who makes it full sets a key, and all wait for that.
static size_t barrier(struct client *c, char **p) {
	char key[64], done[64];
	snprintf(key, sizeof key, "bench/barrier/%ld", turn);
	snprintf(done, sizeof done, "bench/barrier/%ld/done", turn);
	if (c->step == 0) {
		*(*p)++ = ADD;
		*p = text(*p, key);
		*p = number(*p, 1);
		return 8;
	}
	if (c->step == 1) {
		int64_t n;
		memcpy(&n, c->head, 8);
		if (n == clients)
			*p = sets(*p, done);
		*p = waits(*p, done);
		return 1;
	}
	return 0;
}

static const struct {
	const char *name;
	op *op;
	int together;
} ops[] = {{"get", get, 0}, {"set", set, 0}, {"add", add, 0}, {"multi_get", multi_get, 0}, {"wait", wait_, 1}, {"barrier", barrier, 1}};

static int ask(struct client *c, op *o) {
	static char buf[4096];
	char *p = buf;
	size_t reply = o(c, &p);
	if (reply > 0)
		say(c, buf, p - buf, reply);
	return reply > 0;
}

// hear takes what came for c; true when its reply is whole.
static int hear(struct client *c) {
	static char in[1 << 16];
	ssize_t n = recv(c->fd, in, sizeof in, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0 || (size_t)n > c->missing)
		fail(n > 0 ? "more than the reply came" : "recv");
	if (c->have < sizeof c->head)
		memcpy(c->head + c->have, in, (size_t)n < sizeof c->head - c->have ? (size_t)n : sizeof c->head - c->have);
	c->have += n;
	c->missing -= n;
	return c->missing == 0;
}

// What a client says first; the first one sets what is read later.
static size_t first(struct client *c, char **p) {
	memcpy(*p, "\0\xce\xf7\x85\x3c", 5);
	*p += 5;
	for (int i = 0; c == all && i < KEYS; i++) {
		char key[64];
		snprintf(key, sizeof key, "bench/%d", i);
		*(*p)++ = SET;
		*p = text(*p, key);
		*p = number(*p, VALUE);
		memset(*p, 'x', VALUE);
		*p += VALUE;
	}
	*p = pinged(*p);
	return c->step == 0 ? 4 : 0;
}

// opened asks the first thing as soon as the connection is there.
static void opened(struct client *c) {
	int err = 0;
	socklen_t len = sizeof err;
	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	errno = err;
	if (err)
		fail("connect");
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
	epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
	c->step = 0;
	ask(c, first);
}

static void play(op *o) {
	struct epoll_event es[512];
	while (toHear > 0) {
		int n = epoll_wait(ep, es, 512, 60000);
		if (n == 0) {
			fprintf(stderr, "no reply for a minute, %ld to come\n", toHear);
			exit(1);
		}
		for (int i = 0; i < n; i++) {
			struct client *c = es[i].data.ptr;
			if (c->step < 0) {
				opened(c);
				continue;
			}
			if (!hear(c))
				continue;
			c->step++;
			if (ask(c, o))
				continue;
			took[replies++] = now() - c->asked;
			toHear--;
			if (toAsk > 0) {
				toAsk--;
				c->step = 0;
				ask(c, o);
			}
		}
	}
}

static int order(const void *a, const void *b) {
	int64_t x = *(int64_t *)a, y = *(int64_t *)b;
	return (x > y) - (x < y);
}

// repeat has times ops done: one client after the other, or all clients together at each.
static void repeat(op *o, int together, long times) {
	took = realloc(took, (together ? times * clients : times) * sizeof *took);
	replies = 0;
	int64_t began = now();
	for (long round = 0; round < (together ? times : 1); round++) {
		turn++;
		toHear = together ? clients : times;
		toAsk = together ? 0 : times > clients ? times - clients : 0;
		for (long i = 0; i < clients && i < toHear; i++) {
			all[i].step = 0;
			ask(&all[i], o);
		}
		play(o);
	}
	int64_t wall = now() - began;
	qsort(took, replies, sizeof *took, order);
	printf("%ld %ld %ld\n", (long)wall, (long)took[replies / 2], (long)took[replies * 99 / 100]);
	fflush(stdout);
}

// connects opens all connections at once, from some addresses of this machine, for each has only so many ports.
static void connects(void) {
	int one = 1;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	took = realloc(took, clients * sizeof *took);
	int64_t began = now();
	for (int i = 0; i < clients; i++) {
		struct client *c = &all[i];
		struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + i / 8192)};
		c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (c->fd < 0)
			fail("socket");
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
		if (bind(c->fd, (struct sockaddr *)&from, sizeof from))
			fail("bind");
		if (connect(c->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)
			fail("connect");
		c->step = -1;
		struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
		epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
	}
	replies = 0, toAsk = 0, toHear = clients;
	play(first);
	printf("%ld 0 0\n", (long)(now() - began));
	fflush(stdout);
}

int main(int argc, char **argv) {
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	if (argc != 3)
		return 2;
	port = atoi(argv[1]), clients = atoi(argv[2]), ep = epoll_create1(0);
	all = calloc(clients, sizeof *all);
	connects();
	char name[32];
	long times;
	while (scanf("%31s %ld", name, &times) == 2) {
		size_t i = 0;
		while (i < sizeof ops / sizeof *ops && strcmp(ops[i].name, name))
			i++;
		if (i == sizeof ops / sizeof *ops || times < 1)
			return 2;
		repeat(ops[i].op, ops[i].together, times);
	}
}
