/* Load on one proxy, every answer checked, and the CPU time that processes used meanwhile. One thread, epoll.

   load MODE --to HOST:PORT[,HOST:PORT...] [options]     one JSON line on standard output
     unary    keep-alive connections, each asks anew when it is answered (or --rate requests a second over all of them)
     stream   --connections streams at a time, each begun anew on its connection when it ends
     burst    all connections ask at one time, each --every ms; what is measured is the time to the first event
     hold     streams that stay open; prints {"open": N} when each has had its first event, then holds them

   Measured is only the window of --seconds after --warmup. --cpu PID[:NAME],... adds what /proc/PID/stat says they used in it. */
#define _GNU_SOURCE
#include "wire.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include "options.h"

enum where { HEAD, COUNTED, CHUNK_LINE, CHUNK, CHUNK_END, TRAILERS, UNTIL_CLOSE };

struct conn {
  int fd, index, busy, opened, answered;
  char *in; size_t have;
  enum where where; int64_t left, length, events; int status, closing, last_newline, seen_event; char tail[80]; size_t tail_size;
  const char *out; size_t out_left;
  int64_t asked, due;
};

#define BUFFER 262144
#define OPENING 50 /* streams without a first event at a time while 2,000 are opened: what is measured is memory */

static int poller, open_count, idle_count;
static struct conn *conns; static struct conn **idle;
static int64_t window_from, window_to, requests, events_seen, payload_bytes, reconnects, late;
static int64_t errors[6];
enum { STATUS, LENGTH, ID, CUT, CONNECT, BODY };
static const char *error_names[] = {"status", "length", "id", "cut", "connect", "body"};
static char first_error[400];
static uint32_t *samples; static size_t sample_count, sample_room;
static int64_t last_answer_at;

static int in_window(int64_t now) { return now >= window_from && now < window_to; }

static void sample(int64_t ns) {
  if (sample_count == sample_room) {
    if (sample_room >= 16u << 20) return;
    sample_room = sample_room * 2 + 65536;
    if (!(samples = realloc(samples, sample_room * sizeof *samples))) fail("memory");
  }
  samples[sample_count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void error(struct conn *c, int kind) {
  if (!errors[kind]++ && !first_error[0]) {
    size_t n = 0;
    for (size_t i = 0; i < c->have && n < sizeof first_error - 8; i++) {
      char ch = c->in[i];
      first_error[n++] = ch == '"' || ch == '\\' || ch < ' ' || ch > '~' ? ' ' : ch;
    }
    first_error[n] = 0;
  }
}

static void ask(struct conn *c, int64_t now);

static void connect_one(struct conn *c) {
  struct sockaddr_in *to = &option.to[c->index % option.to_count];
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(c->fd, (struct sockaddr *)to, sizeof *to)) { errors[CONNECT]++; close(c->fd); c->fd = -1; return; }
  without_delay(c->fd);
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
  c->have = 0;
  c->where = HEAD;
}

static void reconnect(struct conn *c) {
  if (c->fd >= 0) close(c->fd);
  reconnects++;
  connect_one(c);
}

static void flush(struct conn *c) {
  while (c->out_left) {
    ssize_t n = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
    if (n < 0) return;  /* EAGAIN: the poller tells; anything else is seen by reading */
    c->out += n;
    c->out_left -= (size_t)n;
  }
}

static void ask(struct conn *c, int64_t due) {
  if (c->fd < 0) reconnect(c);
  if (c->fd < 0) { idle[idle_count++] = c; return; }
  struct request *r = option.window ? &requests_made[c->index] : next_request();
  if (option.window) option.counts[c->index] = 0;
  c->busy = 1;
  c->seen_event = 0;
  c->events = 0;
  c->out = r->data;
  c->out_left = r->size;
  c->due = due;
  c->asked = now_ns();
  flush(c);
}

/* The answer is whole: judge it, count it, ask again where the mode wants that. */
static void answered(struct conn *c, int64_t now) {
  c->busy = 0;
  c->answered = 1;
  last_answer_at = now;
  int bad = 0;
  if (c->status != 200) { error(c, STATUS); bad = 1; }
  else if (option.mode == UNARY && option.length && c->length != option.length) { error(c, LENGTH); bad = 1; }
  else if (option.mode == UNARY && !memmem(c->tail, c->tail_size, option.ending, strlen(option.ending))) { error(c, BODY); bad = 1; }
  else if (option.mode != UNARY && c->events < option.chunks) { error(c, LENGTH); bad = 1; }
  if (in_window(now) && !bad) {
    requests++;
    if (option.mode == UNARY) sample(now - (option.rate ? c->due : c->asked));
  }
  if (c->closing) reconnect(c);
  if (option.mode == STREAM || (option.mode == UNARY && !option.rate)) ask(c, now);
  else idle[idle_count++] = c;
}

static void first_event(struct conn *c, int64_t now) {
  c->seen_event = 1;
  if (!c->opened) { c->opened = 1; open_count++; }
  if (option.mode != UNARY && in_window(c->asked)) sample(now - c->asked);
}

/* Payload of an answer, chunk framing gone. Events of a stream end with an empty line. */
static void payload(struct conn *c, const char *data, size_t size, int64_t now) {
  c->length += (int64_t)size;
  if (option.mode == UNARY) {
    size_t keep = size < sizeof c->tail ? size : sizeof c->tail, old = sizeof c->tail - keep;
    if (old > c->tail_size) old = c->tail_size;
    memmove(c->tail, c->tail + c->tail_size - old, old);
    memcpy(c->tail + old, data + size - keep, keep);
    c->tail_size = old + keep;
    return;
  }
  if (!c->seen_event && size) first_event(c, now);
  int counts = in_window(now);
  if (counts) payload_bytes += (int64_t)size;
  const char *at = data, *end = data + size;
  while (at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line) { c->last_newline = 0; return; }
    if (line == at && c->last_newline) {
      c->events++;
      events_seen += counts;
      c->last_newline = 0;
      if (option.window) option.counts[c->index]++;
    }
    else c->last_newline = 1;
    at = line + 1;
  }
}

static void read_head(struct conn *c, size_t size) {
  c->status = size > 12 ? atoi(c->in + 9) : 0;
  c->length = 0;
  c->tail_size = 0;
  c->last_newline = 0;
  c->closing = header_has(c->in, size, "connection", "close") || c->in[7] == '0';
  c->left = number_header(c->in, size, "content-length", -1);
  size_t length;
  if (option.id_header && !header(c->in, size, option.id_header, &length)) error(c, ID);
  if (header_has(c->in, size, "transfer-encoding", "chunked")) c->where = CHUNK_LINE;
  else c->where = c->left >= 0 ? COUNTED : UNTIL_CLOSE;
}

/* Takes in[at..have); returns where it stopped. */
static size_t parse(struct conn *c, int64_t now) {
  size_t at = 0;
  while (c->busy) {
    const char *data = c->in + at;
    size_t size = c->have - at;
    if (c->where == HEAD) {
      size_t head = head_length(data, size);
      if (!head) break;
      if (at) { memmove(c->in, data, size); c->have = size; at = 0; }
      read_head(c, head);
      at = head;
    } else if (c->where == COUNTED || c->where == CHUNK || c->where == UNTIL_CLOSE) {
      size_t take = c->where == UNTIL_CLOSE || (int64_t)size < c->left ? size : (size_t)c->left;
      payload(c, data, take, now);
      at += take;
      if (c->where == UNTIL_CLOSE) break;
      c->left -= (int64_t)take;
      if (c->left) break;
      if (c->where == CHUNK) c->where = CHUNK_END;
      else { c->where = HEAD; answered(c, now); }
    } else if (c->where == CHUNK_END) {
      if (size < 2) break;
      at += 2;
      c->where = CHUNK_LINE;
    } else {
      const char *line = memchr(data, '\n', size);
      if (!line) break;
      size_t taken = (size_t)(line - data) + 1;
      if (c->where == CHUNK_LINE) {
        c->left = strtol(data, NULL, 16);
        c->where = c->left ? CHUNK : TRAILERS;
      } else if (taken <= 2) {
        c->where = HEAD;
        at += taken;
        answered(c, now);
        continue;
      }
      at += taken;
    }
  }
  return at;
}

static void gone(struct conn *c, int64_t now) {
  int whole = c->busy && c->where == UNTIL_CLOSE;
  close(c->fd);
  c->fd = -1;
  if (whole) { c->where = HEAD; c->closing = 1; answered(c, now); return; }
  if (!c->busy) { reconnect(c); return; }
  error(c, CUT);
  c->busy = 0;
  if (option.mode == STREAM || (option.mode == UNARY && !option.rate)) ask(c, now); else idle[idle_count++] = c;
}

/* A short read means that there is no more, unless the peer's end was told of by the same event. */
static void on_readable(struct conn *c, int at_end) {
  for (;;) {
    int fd = c->fd;
    size_t room = BUFFER - c->have;
    ssize_t n = recv(fd, c->in + c->have, room, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    int64_t now = now_ns();
    if (n <= 0) { gone(c, now); return; }
    c->have += (size_t)n;
    size_t done = parse(c, now);
    if (c->fd != fd) return;
    c->have -= done;
    if (c->have && done) memmove(c->in, c->in + done, c->have);
    if ((size_t)n < room && !at_end) return;
  }
}

/* --- CPU of processes --- */

static double cpu_seconds(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *at = strrchr(text, ')');
  unsigned long user = 0, system = 0;
  if (at) sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void read_cpu(double *into) {
  for (int i = 0; i < option.cpu_count; i++) into[i] = cpu_seconds(option.cpu[i]);
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  into[option.cpu_count] = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- the result --- */

static int compare(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void print_result(const double *before, const double *after, double seconds) {
  qsort(samples, sample_count, sizeof *samples, compare);
  static const struct { const char *name; double part; } at[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}};
  printf("{\"requests\":%lld,\"events\":%lld,\"bytes\":%lld,\"seconds\":%.6f,\"reconnects\":%lld,\"late\":%lld,\"open\":%d,\"errors\":{",
         (long long)requests, (long long)events_seen, (long long)payload_bytes, seconds, (long long)reconnects, (long long)late, open_count);
  for (int i = 0; i < 6; i++) printf("%s\"%s\":%lld", i ? "," : "", error_names[i], (long long)errors[i]);
  printf("},\"first_error\":\"%s\",\"samples\":%zu,\"latency_us\":{", first_error, sample_count);
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    size_t place = sample_count ? (size_t)((double)(sample_count - 1) * at[i].part + .5) : 0;
    printf("%s\"%s\":%.1f", i ? "," : "", at[i].name, sample_count ? samples[place] / 1e3 : 0.0);
  }
  printf("},\"cpu\":{");
  for (int i = 0; i < option.cpu_count; i++) printf("\"%d\":%.4f,", option.cpu[i], after[i] - before[i]);
  printf("\"load\":%.4f}}\n", after[option.cpu_count] - before[option.cpu_count]);
}

/* --- the loop --- */

static void poll_once(int64_t until) {
  struct epoll_event got[512];
  int64_t left = until - now_ns();
  if (left < 0) left = 0;
  struct timespec t = {left / SECOND, left % SECOND};
  int n = epoll_pwait2(poller, got, 512, &t, NULL);
  for (int i = 0; i < n; i++) {
    struct conn *c = got[i].data.ptr;
    if (c->fd >= 0 && c->out_left && got[i].events & EPOLLOUT) flush(c);
    if (c->fd >= 0 && got[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c, got[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
  }
}

static void poll_until(int64_t until) {
  do poll_once(until); while (now_ns() < until);
}

static void ask_idle(int64_t due) {
  struct conn *taken = idle[--idle_count];
  ask(taken, due);
}

static void run_closed(int64_t until) { poll_until(until); }

static void run_rate(int64_t until) {
  double every = 1e9 / option.rate, due = (double)now_ns();
  while (now_ns() < until) {
    for (; due <= (double)now_ns() && idle_count; due += every) ask_idle((int64_t)due);
    if (!idle_count) late += in_window(now_ns());
    poll_once((int64_t)due > now_ns() && idle_count ? (int64_t)due : now_ns() + MILLISECOND);
  }
}

static void run_bursts(int64_t until) {
  int64_t next = now_ns();
  while (now_ns() < until) {
    poll_until(next);
    next += option.every * MILLISECOND;
    if (idle_count < option.connections) { late += in_window(now_ns()); continue; }
    while (idle_count) ask_idle(now_ns());
  }
}

static void run_hold(int64_t until) {
  int64_t bound = now_ns() + 60 * SECOND;
  for (int asked = 0; open_count < option.connections && now_ns() < bound;) {
    for (; idle_count && asked - open_count < OPENING; asked++) ask_idle(now_ns());
    poll_once(now_ns() + 50 * MILLISECOND);
  }
  printf("{\"open\":%d}\n", open_count);
  fflush(stdout);
  poll_until(until > now_ns() ? until : now_ns() + (int64_t)(option.seconds * 1e9));
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  read_options(argc, argv);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  make_requests();
  poller = epoll_create1(EPOLL_CLOEXEC);
  conns = calloc((size_t)option.connections, sizeof *conns);
  idle = calloc((size_t)option.connections * 2, sizeof *idle);
  for (int i = 0; i < option.connections; i++) {
    conns[i].index = i;
    if (!(conns[i].in = malloc(BUFFER))) fail("memory");
    connect_one(&conns[i]);
  }
  void (*run)(int64_t) = option.mode == HOLD ? run_hold : option.mode == BURST ? run_bursts : option.rate ? run_rate : run_closed;
  for (int i = 0; i < option.connections; i++)
    if (run == run_closed) ask(&conns[i], now_ns()); else idle[idle_count++] = &conns[i];
  double before[MAX_PIDS + 1], after[MAX_PIDS + 1];
  if (run != run_hold) run(now_ns() + (int64_t)(option.warmup * 1e9));
  read_cpu(before);
  window_from = now_ns();
  window_to = window_from + (int64_t)(option.seconds * 1e9);
  run(run == run_hold ? 0 : window_to);
  int64_t ended = now_ns();
  read_cpu(after);
  print_result(before, after, (double)(ended - window_from) / 1e9);
  return 0;
}
