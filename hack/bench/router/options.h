/* Options of load.c and the requests that it sends: as the openai package for Python writes them. */
#ifndef OPTIONS_H
#define OPTIONS_H

#define MAX_PIDS 64
#define MAX_TARGETS 64

enum mode { UNARY, STREAM, BURST, HOLD };
enum key { NO_KEY, HEADER_KEY, FIELD_KEY };

struct request { char *data; size_t size; };

static struct {
  enum mode mode;
  struct sockaddr_in to[MAX_TARGETS]; int to_count;
  int connections, cpu_count, cpu[MAX_PIDS], sessions;
  int64_t body, length, chunks, pace, first, every, window;
  volatile uint32_t *counts;
  double seconds, warmup, rate;
  enum key key;
  const char *id_header, *ending;
} option = {.connections = 64, .sessions = 64, .body = 2048, .chunks = 100, .every = 100, .seconds = 2, .warmup = 0.5,
            .key = HEADER_KEY, .ending = "}"};

static struct request *requests_made; static int request_count, request_next;

static struct request *next_request(void) {
  struct request *r = &requests_made[request_next];
  if (++request_next == request_count) request_next = 0;
  return r;
}

/* Words that differ by session from the first one on, so that a prefix tree has prompts to tell apart. */
static void words(char *into, size_t size, unsigned session) {
  static const char *known[] = {"river ", "gate ", "weir ", "mill ", "stone ", "reed ", "lock ", "spring "};
  unsigned state = session * 2654435761u + 1;
  size_t at = 0;
  while (at < size) {
    state = state * 1664525u + 1013904223u;
    const char *word = known[state >> 29];
    size_t length = strlen(word);
    if (length > size - at) length = size - at;
    memcpy(into + at, word, length);
    at += length;
  }
}

/* window: events that may be under way on the stream numbered `session`, by "n", which means nothing to a fake engine. */
static void make_request(struct request *r, unsigned session, const char *model) {
  static const char *before = "{\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},{\"role\":\"user\",\"content\":\"";
  char after[512], user[64] = "", head[2048], key[64] = "", n[32] = "";
  int64_t seed = option.first * 1000 + option.pace + (option.window ? (int64_t)(session + 1) * 1000000 : 0);
  if (option.window) snprintf(n, sizeof n, ",\"n\":%lld", (long long)option.window);
  if (option.key == FIELD_KEY) snprintf(user, sizeof user, ",\"user\":\"session-%08u\"", session);
  if (option.key == HEADER_KEY) snprintf(key, sizeof key, "x-session-id: session-%08u\r\n", session);
  if (option.mode == UNARY)
    snprintf(after, sizeof after, "\"}],\"model\":\"%s\",\"max_tokens\":128,\"temperature\":0.7%s,\"stream\":false}", model, user);
  else
    snprintf(after, sizeof after, "\"}],\"model\":\"%s\",\"max_tokens\":%lld,\"seed\":%lld%s,\"temperature\":0.7%s,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}", model, (long long)option.chunks, (long long)seed, n, user);
  size_t fixed = strlen(before) + strlen(after), filler = option.body > (int64_t)fixed ? (size_t)option.body - fixed : 16;
  char at[64];
  snprintf(at, sizeof at, "127.0.0.1:%d", ntohs(option.to[0].sin_port));
  snprintf(head, sizeof head,
           "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
           "Accept: application/json\r\nContent-Type: application/json\r\nUser-Agent: OpenAI/Python 2.9.0\r\nX-Stainless-Lang: python\r\n"
           "X-Stainless-Package-Version: 2.9.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
           "X-Stainless-Runtime-Version: 3.11.7\r\nAuthorization: Bearer sk-none\r\nX-Stainless-Async: false\r\n"
           "x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nx-model: %s\r\n%sContent-Length: %zu\r\n\r\n",
           at, model, key, fixed + filler);
  char *all = malloc(strlen(head) + fixed + filler + 1);
  if (!all) fail("memory");
  char *end = stpcpy(stpcpy(all, head), before);
  words(end, filler, session);
  strcpy(end + filler, after);
  *r = (struct request){all, strlen(head) + fixed + filler};
}

static void make_requests(void) {
  request_count = option.window ? option.connections : option.sessions * 2;
  if (!(requests_made = calloc((size_t)request_count, sizeof *requests_made))) fail("memory");
  for (int i = 0; i < request_count; i++) make_request(&requests_made[i], (unsigned)i, i % 2 ? "model-b" : "model-a");
}

static void read_target(char *text) {
  char *colon = strrchr(text, ':');
  if (!colon || option.to_count == MAX_TARGETS) { fprintf(stderr, "load: --to %s: not HOST:PORT\n", text); exit(2); }
  *colon = 0;
  struct sockaddr_in *a = &option.to[option.to_count++];
  *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
  if (inet_pton(AF_INET, text, &a->sin_addr) != 1 || ntohl(a->sin_addr.s_addr) >> 24 != 127) {
    fprintf(stderr, "load: --to %s: load goes to 127.0.0.0/8 and nowhere else\n", text);
    exit(2);
  }
}

static void read_options(int argc, char **argv) {
  static const char *modes[] = {"unary", "stream", "burst", "hold"}, *keys[] = {"none", "header", "field"};
  int known = 0;
  for (int m = 0; m < 4 && argc > 1; m++)
    if (!strcmp(argv[1], modes[m])) { option.mode = (enum mode)m; known = 1; }
  for (int i = 2; i + 1 < argc; i += 2) {
    char *value = argv[i + 1];
    if (!strcmp(argv[i], "--to")) { for (char *t = strtok(value, ","); t; t = strtok(NULL, ",")) read_target(t); }
    else if (!strcmp(argv[i], "--cpu")) { for (char *t = strtok(value, ","); t && option.cpu_count < MAX_PIDS; t = strtok(NULL, ",")) option.cpu[option.cpu_count++] = atoi(t); }
    else if (!strcmp(argv[i], "--connections")) option.connections = atoi(value);
    else if (!strcmp(argv[i], "--sessions")) option.sessions = atoi(value);
    else if (!strcmp(argv[i], "--seconds")) option.seconds = atof(value);
    else if (!strcmp(argv[i], "--warmup")) option.warmup = atof(value);
    else if (!strcmp(argv[i], "--rate")) option.rate = atof(value);
    else if (!strcmp(argv[i], "--body")) option.body = atoll(value);
    else if (!strcmp(argv[i], "--length")) option.length = atoll(value);
    else if (!strcmp(argv[i], "--chunks")) option.chunks = atoll(value);
    else if (!strcmp(argv[i], "--pace")) option.pace = atoll(value);
    else if (!strcmp(argv[i], "--first")) option.first = atoll(value);
    else if (!strcmp(argv[i], "--window")) option.window = atoll(value);
    else if (!strcmp(argv[i], "--counts")) option.counts = shared_counts(value);
    else if (!strcmp(argv[i], "--every")) option.every = atoll(value);
    else if (!strcmp(argv[i], "--id-header")) option.id_header = value;
    else if (!strcmp(argv[i], "--ending")) option.ending = value;
    else if (!strcmp(argv[i], "--key")) { for (int k = 0; k < 3; k++) if (!strcmp(value, keys[k])) option.key = (enum key)k; }
    else known = 0;
  }
  if (!known || !option.to_count || option.connections < 1 || option.sessions < 1 || option.seconds > 600 ||
      (option.window && (!option.counts || option.connections > MAX_WINDOWED))) {
    fprintf(stderr, "load: wrong options; load.c says which there are\n");
    exit(2);
  }
}

#endif
