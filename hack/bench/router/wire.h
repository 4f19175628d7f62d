/* What engine.c and load.c share: time, addresses, and header lines found in a head. No allocation, no state. */
#ifndef WIRE_H
#define WIRE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define MILLISECOND 1000000LL

static inline int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}

static inline void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not possible");
  exit(3);
}

/* Engine number i listens at 127.9.x.y: every engine has an address of its own, all have one port. */
static inline struct sockaddr_in engine_address(int i, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  a.sin_addr.s_addr = htonl(0x7f090000u | (uint32_t)((i / 250) << 8) | (uint32_t)(1 + i % 250));
  return a;
}

/* Events that the client of each stream has taken, shared by load and engines through a file. */
#define MAX_WINDOWED 4096

static inline volatile uint32_t *shared_counts(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  size_t size = MAX_WINDOWED * sizeof(uint32_t);
  if (fd < 0 || ftruncate(fd, (off_t)size)) fail(path);
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail(path);
  close(fd);
  return at;
}

static inline void without_delay(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Length of the head in data[0..size), CRLFCRLF included; 0: not all of it is there. */
static inline size_t head_length(const char *data, size_t size) {
  const char *end = memmem(data, size, "\r\n\r\n", 4);
  return end ? (size_t)(end - data) + 4 : 0;
}

/* The value of header `name` (lower case) in a whole head, or NULL; *length is set. */
static inline const char *header(const char *head, size_t size, const char *name, size_t *length) {
  size_t known = strlen(name);
  const char *line = memchr(head, '\n', size), *end = head + size;
  while (line && ++line < end) {
    const char *next = memchr(line, '\n', (size_t)(end - line));
    if (!next) return NULL;
    if ((size_t)(next - line) > known + 1 && line[known] == ':' && strncasecmp(line, name, known) == 0) {
      const char *value = line + known + 1, *last = next;
      while (value < last && (*value == ' ' || *value == '\t')) value++;
      while (last > value && (last[-1] == '\r' || last[-1] == ' ' || last[-1] == '\t')) last--;
      *length = (size_t)(last - value);
      return value;
    }
    line = next;
  }
  return NULL;
}

/* A header's whole number, or `otherwise`. */
static inline int64_t number_header(const char *head, size_t size, const char *name, int64_t otherwise) {
  size_t length;
  const char *value = header(head, size, name, &length);
  return value && length && length < 16 ? strtoll(value, NULL, 10) : otherwise;
}

static inline int header_has(const char *head, size_t size, const char *name, const char *word) {
  size_t length, wanted = strlen(word);
  const char *value = header(head, size, name, &length);
  for (size_t i = 0; value && i + wanted <= length; i++)
    if (strncasecmp(value + i, word, wanted) == 0) return 1;
  return 0;
}

#endif
