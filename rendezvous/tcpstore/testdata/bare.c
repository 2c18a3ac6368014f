// The least that a server can do: one epoll loop that answers whatever it reads with a constant of argv[1] bytes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void watch(int ep, int fd) {
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

int main(int argc, char **argv) {
	int reply = argc > 1 ? atoi(argv[1]) : 8, one = 1;
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int ln = socket(AF_INET, SOCK_STREAM, 0), ep = epoll_create1(0);
	if (bind(ln, (struct sockaddr *)&a, len) || listen(ln, 4096) || getsockname(ln, (struct sockaddr *)&a, &len))
		return 1;
	printf("127.0.0.1:%d\n", ntohs(a.sin_port));
	fflush(stdout);
	watch(ep, ln);
	watch(ep, 0);
	static char in[1 << 16], out[1 << 16], fresh[1 << 20];
	struct epoll_event es[256];
	for (;;) {
		int n = epoll_wait(ep, es, 256, -1);
		for (int i = 0; i < n; i++) {
			int fd = es[i].data.fd;
			if (fd == 0)
				return 0;
			if (fd == ln) {
				fd = accept4(ln, NULL, NULL, SOCK_NONBLOCK);
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
				fresh[fd] = 1;
				watch(ep, fd);
				continue;
			}
			ssize_t got = recv(fd, in, sizeof in, 0);
			if (got <= 0) {
				close(fd);
				continue;
			}
			if (fresh[fd]) { // VALIDATE's five bytes have no answer
				fresh[fd] = 0;
				if ((got -= 5) <= 0)
					continue;
			}
			send(fd, out, reply, MSG_NOSIGNAL);
		}
	}
}
