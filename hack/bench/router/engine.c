/* A fleet of fake engines in one process: as little work an answer as can be, so that it is never what is measured.

   engine --engines N [--port P] [--counts FILE]     prints "listening PORT" when all N listen, on 127.9.0.1, 127.9.0.2, ... at one port

   A POST is answered by what its body says in fields that every proxy passes on:
     no "stream":true   one JSON answer of about 1 KiB with usage, head and body in one write
     "stream":true      the head at once, then "max_tokens" events, each one HTTP chunk and one write, then one with usage,
                        then [DONE]. "seed": 1000 * F + P: the first event after F ms, then one each P ms on a grid that all
                        streams of an engine share, as the steps of a batch are; P = 0: as fast as they are taken, 16
                        events a write, to each stream in turn; with 1,000,000 * (S + 1) in it: one event a write, and
                        at most "n" of them that the client, stream S of the counts in FILE, has not taken yet.
   A GET is answered with what routers ask engines at start. Bodies have a Content-Length or are chunked. */
#define _GNU_SOURCE
#include "wire.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MAX_EVENTS 512
#define MAX_FIELD_AT 768 /* the fields stand at most so many bytes from the body's end, else all of it is searched */

struct text { char *data; size_t size; };

struct conn {
  int fd, engine, at_heap, saturated;     /* at_heap: place in the heap of timers, -1 for none */
  char *in; size_t have, room;
  const char *out; size_t left;           /* what of the current text is still to be sent */
  int streaming; int64_t events, pace, due;
  volatile uint32_t *taken; uint32_t sent, window;  /* of a windowed stream */
  struct conn *next_ready;                /* list of saturated streams whose socket takes more */
  struct conn *next_dead;
};

static int poller;
static volatile uint32_t *counts;
static struct conn **heap; static int heaped, heap_room;
static struct conn *ready_first, *ready_last, *dead;
static struct text *unary, stream_head, event, many_events, last_event, done;   /* unary: one an engine */
#define MANY 16

static struct text text_of(char *data) { return (struct text){data, strlen(data)}; }

static struct text chunk_of(const char *payload) {
  char *made;
  if (asprintf(&made, "%zx\r\n%s\r\n", strlen(payload), payload) < 0) fail("memory");
  return text_of(made);
}

static void make_texts(int engines) {
  static const char *date = "date: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n";
  char said[700];
  for (size_t i = 0; i < sizeof said - 1; i++) said[i] = "a quick answer of words "[i % 24];
  said[sizeof said - 1] = 0;
  unary = calloc((size_t)engines, sizeof *unary);
  for (int i = 0; i < engines; i++) {
    char *body, *all;
    if (asprintf(&body, "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion\",\"created\":1767225600,"
                 "\"model\":\"model-a\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},"
                 "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":128,"
                 "\"total_tokens\":640},\"system_fingerprint\":\"engine-%04d\"}", said, i) < 0 ||
        asprintf(&all, "HTTP/1.1 200 OK\r\n%scontent-length: %zu\r\ncontent-type: application/json\r\n\r\n%s", date, strlen(body), body) < 0)
      fail("memory");
    unary[i] = text_of(all);
    free(body);
  }
  char *head;
  if (asprintf(&head, "HTTP/1.1 200 OK\r\n%scontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n", date) < 0)
    fail("memory");
  stream_head = text_of(head);
#define EVENT(delta, finish, more) "data: {\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\"," \
  "\"created\":1767225600,\"model\":\"model-a\",\"choices\":[{\"index\":0,\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":" finish "}]" more "}\n\n"
  event = chunk_of(EVENT("\"content\":\" token\"", "null", ""));
  last_event = chunk_of(EVENT("", "\"stop\"", ",\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":128,\"total_tokens\":640}"));
  many_events = (struct text){malloc(event.size * MANY), event.size * MANY};
  for (int i = 0; i < MANY; i++) memcpy(many_events.data + event.size * (size_t)i, event.data, event.size);
  done = text_of("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

/* --- timers: a binary heap by due --- */

static void place(int at, struct conn *c) { heap[at] = c; c->at_heap = at; }

static void sift(int at) {
  struct conn *c = heap[at];
  while (at > 0 && heap[(at - 1) / 2]->due > c->due) { place(at, heap[(at - 1) / 2]); at = (at - 1) / 2; }
  for (;;) {
    int below = 2 * at + 1;
    if (below >= heaped) break;
    if (below + 1 < heaped && heap[below + 1]->due < heap[below]->due) below++;
    if (heap[below]->due >= c->due) break;
    place(at, heap[below]);
    at = below;
  }
  place(at, c);
}

static void arm(struct conn *c, int64_t due) {
  c->due = due;
  if (c->at_heap < 0) {
    if (heaped == heap_room && !(heap = realloc(heap, sizeof *heap * (size_t)(heap_room = heap_room * 2 + 64)))) fail("memory");
    place(heaped++, c);
  }
  sift(c->at_heap);
}

static void disarm(struct conn *c) {
  int at = c->at_heap;
  if (at < 0) return;
  c->at_heap = -1;
  struct conn *moved = heap[--heaped];
  if (moved != c) { place(at, moved); sift(at); }
}

static void make_ready(struct conn *c) {
  c->next_ready = NULL;
  if (ready_last) ready_last->next_ready = c; else ready_first = c;
  ready_last = c;
}

/* --- sending --- */

static void end(struct conn *c) {
  disarm(c);
  close(c->fd);
  c->fd = -1;
  c->next_dead = dead;  /* freed when this round is over: an event or the list of the ready may still name it */
  dead = c;
}

static void bury(void) {
  while (dead) {
    struct conn *c = dead;
    dead = c->next_dead;
    free(c->in);
    free(c);
  }
}

/* 1: all of the current text is sent; 0: the socket takes no more for now. */
static int flush(struct conn *c) {
  while (c->left) {
    ssize_t n = send(c->fd, c->out, c->left, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN) return 0;
      if (errno == EINTR) continue;
      end(c);
      return 0;
    }
    c->out += n;
    c->left -= (size_t)n;
  }
  return 1;
}

static int say(struct conn *c, struct text t) {
  c->out = t.data;
  c->left = t.size;
  return flush(c);
}

static void take_request(struct conn *c);

/* Sends the stream's next piece; 1 if there was room for it. streaming: 1 events, 2 the one with usage, 3 [DONE], then 0. */
static int step(struct conn *c) {
  if (c->streaming == 1 && c->events == 0) c->streaming = 2;
  if (c->taken) c->sent++;
  if (c->streaming == 1 && c->saturated && !c->taken && c->events >= MANY) { c->events -= MANY; return say(c, many_events); }
  if (c->streaming == 1) { c->events--; return say(c, event); }
  if (c->streaming == 2) { c->streaming = 3; return say(c, last_event); }
  c->streaming = 0;
  return say(c, done);
}

static int windowed_and_full(const struct conn *c) { return c->taken && c->sent - *c->taken >= c->window; }

static void begin_stream(struct conn *c, int64_t first, int64_t pace, int64_t events) {
  c->streaming = 1;
  c->pace = pace;
  c->events = events;
  c->saturated = pace == 0 && first == 0;
  say(c, stream_head);
  if (c->fd < 0) return;
  if (!c->saturated) arm(c, now_ns() + first);
  else if (!c->left) make_ready(c);
}

static int64_t next_step(struct conn *c, int64_t now) {
  if (!c->pace) return now;
  int64_t phase = c->pace * c->engine / 7 % c->pace;
  return now - (now - phase) % c->pace + c->pace;
}

static void on_timer(struct conn *c, int64_t now) {
  disarm(c);
  if (!c->streaming) return;
  if (c->left) { arm(c, now + MILLISECOND); flush(c); return; }  /* a slow reader: this step is late */
  int usual = c->streaming == 1 && c->events > 0;
  step(c);
  while (c->fd >= 0 && !c->left && c->streaming && (c->streaming > 1 || c->events == 0)) step(c);  /* its end at once */
  if (c->fd < 0) return;
  if (c->streaming) arm(c, usual && !c->left ? next_step(c, now) : now + MILLISECOND);
  else if (!c->left) take_request(c);
}

/* 1 if any stream got something. */
static int saturate(void) {
  int stepped = 0;
  struct conn *c = ready_first;
  ready_first = ready_last = NULL;
  while (c) {
    struct conn *next = c->next_ready;
    c->next_ready = NULL;
    if (c->fd >= 0 && windowed_and_full(c)) make_ready(c);
    else if (c->fd >= 0 && c->left == 0) {
      stepped = 1;
      int room = step(c);
      if (c->fd >= 0 && c->streaming && room) make_ready(c);
      else if (c->fd >= 0 && !c->streaming && room) { c->saturated = 0; take_request(c); }
    }
    c = next;
  }
  return stepped;
}

static void on_writable(struct conn *c) {
  if (!c->left || !flush(c)) return;
  if (c->streaming && c->saturated) make_ready(c);
  else if (!c->streaming) { c->saturated = 0; take_request(c); }
}

/* --- requests --- */

static const char *field(const char *body, size_t size, const char *name) {
  size_t tail = size > MAX_FIELD_AT ? size - MAX_FIELD_AT : 0;
  const char *found = memmem(body + tail, size - tail, name, strlen(name));
  if (!found && tail) found = memmem(body, size, name, strlen(name));
  if (!found) return NULL;
  found += strlen(name);
  while (*found == ' ' || *found == ':') found++;
  return found;
}

static int64_t number(const char *body, size_t size, const char *name, int64_t otherwise) {
  const char *at = field(body, size, name);
  return at ? strtoll(at, NULL, 10) : otherwise;
}

/* Length of a chunked body with its end, 0 if not all is there. */
static size_t chunked_length(const char *data, size_t size) {
  size_t at = 0;
  for (;;) {
    const char *line = memmem(data + at, size - at, "\r\n", 2);
    if (!line) return 0;
    size_t chunk = strtoul(data + at, NULL, 16), start = (size_t)(line - data) + 2;
    if (start + chunk + 2 > size) return 0;
    at = start + chunk + 2;
    if (!chunk) return at;
  }
}

static void answer_get(struct conn *c, const char *head) {
  const char *body = strstr(head, "models") && !strstr(head, "model_info")
    ? "{\"object\":\"list\",\"data\":[{\"id\":\"model-a\",\"object\":\"model\"},{\"id\":\"model-b\",\"object\":\"model\"}]}"
    : "{\"served_model_name\":\"model-a\",\"model_id\":\"model-a\",\"is_generation\":true,\"tp_size\":1,\"dp_size\":1,\"version\":\"1\"}";
  static char all[600];
  snprintf(all, sizeof all, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\ncontent-type: application/json\r\n\r\n%s", strlen(body), body);
  say(c, text_of(all));
}

static void answer(struct conn *c, const char *head, const char *body, size_t size) {
  if (head[0] != 'P') { answer_get(c, head); return; }
  const char *stream = field(body, size, "\"stream\"");
  if (!stream || *stream != 't') { say(c, unary[c->engine]); return; }
  int64_t seed = number(body, size, "\"seed\"", 0);
  int64_t events = number(body, size, "\"max_completion_tokens\"", -1);  /* what some routers make of max_tokens */
  if (events < 0) events = number(body, size, "\"max_tokens\"", 16);
  int64_t stream_number = seed / 1000000 - 1;
  c->taken = counts && stream_number >= 0 && stream_number < MAX_WINDOWED ? &counts[stream_number] : NULL;
  c->sent = 0;
  c->window = (uint32_t)number(body, size, "\"n\"", 1);
  begin_stream(c, seed % 1000000 / 1000 * MILLISECOND, seed % 1000 * MILLISECOND, events);
}

/* Answers whole requests in the buffer, one at a time. */
static void take_request(struct conn *c) {
  while (c->fd >= 0 && !c->streaming && !c->left && c->have) {
    size_t head = head_length(c->in, c->have), body, whole;
    if (!head) return;
    c->in[c->have] = 0;
    if (header_has(c->in, head, "transfer-encoding", "chunked")) {
      body = chunked_length(c->in + head, c->have - head);
      if (!body) return;
    } else {
      body = (size_t)number_header(c->in, head, "content-length", 0);
      if (c->have < head + body) return;
    }
    whole = head + body;
    answer(c, c->in, c->in + head, body);
    c->have -= whole;
    if (c->have) memmove(c->in, c->in + whole, c->have);
  }
}

/* A short read means that there is no more, unless the peer's end was told of by the same event. */
static void on_readable(struct conn *c, int at_end) {
  for (;;) {
    if (c->room - c->have < 2) {
      c->room = c->room * 2 + 20000;
      if (!(c->in = realloc(c->in, c->room))) fail("memory");
    }
    ssize_t n = recv(c->fd, c->in + c->have, c->room - c->have - 1, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) { end(c); return; }
    if (n < 0) return;
    size_t asked = c->room - c->have - 1;
    c->have += (size_t)n;
    take_request(c);
    if (c->fd < 0 || ((size_t)n < asked && !at_end)) return;
  }
}

struct listener { int fd, engine; };

static void on_connect(struct listener *l) {
  for (;;) {
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    without_delay(fd);
    struct conn *c = calloc(1, sizeof *c);
    if (!c) fail("memory");
    c->fd = fd;
    c->engine = l->engine;
    c->at_heap = -1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u64 = (uint64_t)(uintptr_t)c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
  }
}

static void listen_all(int engines, int port) {
  for (int i = 0; i < engines; i++) {
    struct sockaddr_in at = engine_address(i, port);
    socklen_t size = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, 1024)) fail("listen");
    getsockname(fd, (struct sockaddr *)&at, &size);
    port = ntohs(at.sin_port);
    struct listener *l = malloc(sizeof *l);
    *l = (struct listener){fd, i};
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)l | 1};  /* the low bit: a listener */
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
  }
  printf("listening %d\n", port);
  fflush(stdout);
}

/* Streams that wait for their clients are looked at again after 50 us: nobody tells. */
static void wait_time(struct timespec *t, int stepped) {
  int64_t left = ready_first ? (stepped ? 0 : 50000) : heaped ? heap[0]->due - now_ns() : 60 * SECOND;
  if (left < 0) left = 0;
  *t = (struct timespec){left / SECOND, left % SECOND};
}

int main(int argc, char **argv) {
  int engines = 4, port = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--engines")) engines = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--counts")) counts = shared_counts(argv[i + 1]);
    else if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
    else { fprintf(stderr, "engine: %s is no option\n", argv[i]); return 2; }
  }
  signal(SIGPIPE, SIG_IGN);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  poller = epoll_create1(EPOLL_CLOEXEC);
  make_texts(engines);
  listen_all(engines, port);
  prctl(PR_SET_TIMERSLACK, 1);
  for (int stepped = 0;;) {
    struct epoll_event events[MAX_EVENTS];
    struct timespec wait;
    wait_time(&wait, stepped);
    int n = epoll_pwait2(poller, events, MAX_EVENTS, &wait, NULL);
    for (int i = 0; i < n; i++) {
      uintptr_t at = (uintptr_t)events[i].data.u64;
      if (at & 1) { on_connect((struct listener *)(at & ~(uintptr_t)1)); continue; }
      struct conn *c = (struct conn *)at;
      if (c->fd >= 0 && events[i].events & EPOLLOUT) on_writable(c);
      if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c, events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
    }
    int64_t now = now_ns();
    while (heaped && heap[0]->due <= now) on_timer(heap[0], now);
    stepped = saturate();
    bury();
  }
}
