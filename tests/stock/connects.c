// Measures inside a sandbox how long the network is away, without starting processes, which is slow under emulation.
//
//   connects ADDRESS PORT          for each line on standard input: connects anew until it succeeds, then prints `back`
//   connects ADDRESS PORT always   tries at least once a second and writes `try` or `reached` for each attempt
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Whether a new connection to that address succeeds within `patience` milliseconds.
static int connects(const struct sockaddr_in *to, int patience) {
  int error = 1;
  socklen_t length = sizeof error;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  if (connect(fd, (const struct sockaddr *)to, sizeof *to) == 0) {
    error = 0;
  } else {
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (poll(&ready, 1, patience) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  close(fd);
  return error == 0;
}

int main(int count, char **words) {
  struct sockaddr_in to = {.sin_family = AF_INET};
  char line[64];
  if (count < 3 || inet_pton(AF_INET, words[1], &to.sin_addr) != 1) {
    fputs("usage: connects ADDRESS PORT [always]\n", stderr);
    return 2;
  }
  to.sin_port = htons((unsigned short)atoi(words[2]));
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count > 3 && strcmp(words[3], "always") == 0) {
    for (;;) {
      puts(connects(&to, 500) ? "reached" : "try");
      usleep(500 * 1000);
    }
  }
  while (fgets(line, sizeof line, stdin)) {
    // A lost packet is sent again only after a second, so each attempt is short and a refusal is tried again.
    while (!connects(&to, 200)) usleep(20 * 1000);
    puts("back");
  }
  return 0;
}
