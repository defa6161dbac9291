#include "fuzz/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "input/input.h"
#include "tern_tools.h"

__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t room);

void fuzz_require(bool ok) {
    if (!ok) abort();
}

// ---- Files -------------------------------------------------------------------------------------

enum { PATHS = 8, PATH_BYTES = 512, NAMES = 64 };
static char folder[PATH_BYTES / 2], written[NAMES][PATH_BYTES / 2];
static int n_written;
static pid_t owner;

static void remove_folder(void) {
    if (getpid() != owner) return;
    for (int i = 0; i < n_written; i++) unlink(fuzz_path(written[i]));
    rmdir(folder);
}

static void make_folder(void) {
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tern-fuzz-XXXXXX", root && *root ? root : "/tmp");
    fuzz_require(mkdtemp(folder) != NULL);
    owner = getpid();
    atexit(remove_folder);
}

const char *fuzz_path(const char *name) {
    static char paths[PATHS][PATH_BYTES];
    static int turn;
    if (!*folder) make_folder();
    int known = 0;
    while (known < n_written && strcmp(written[known], name) != 0) known++;
    if (known == n_written && n_written < NAMES)
        snprintf(written[n_written++], sizeof written[0], "%s", name);
    char *path = paths[turn = (turn + 1) % PATHS];
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

const char *fuzz_write(const char *name, const uint8_t *bytes, size_t n) {
    const char *path = fuzz_path(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    fuzz_require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    return path;
}

// ---- Inputs of several parts -------------------------------------------------------------------

enum { PART_HEAD = 5 };

static uint64_t get(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static void put(uint8_t *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

bool fuzz_next_part(const uint8_t *input, size_t n, size_t *at, fuzz_part *part) {
    if (n < PART_HEAD || *at > n - PART_HEAD) return false;
    size_t left = n - *at - PART_HEAD, length = (size_t)get(input + *at + 1, 4);
    *part = (fuzz_part){input[*at], input + *at + PART_HEAD, length < left ? length : left};
    *at += PART_HEAD + part->n;
    return true;
}

size_t fuzz_mutate_parts(uint8_t *input, size_t n, size_t room, unsigned seed) {
    fuzz_part part, chosen = {0};
    size_t n_parts = 0;
    for (size_t at = 0; fuzz_next_part(input, n, &at, &part);) n_parts++;
    for (size_t at = 0, left = n_parts ? seed / 16 % n_parts + 1 : 0; left > 0; left--)
        if (fuzz_next_part(input, n, &at, &part)) chosen = part;
    if (n_parts == 0 || seed % 16 == 0) return LLVMFuzzerMutate(input, n, room);
    size_t front = (size_t)(chosen.bytes - input), rest = n - front - chosen.n;
    size_t part_room = room - front - rest;
    uint8_t *copy = malloc(part_room + 1);
    if (!copy) return n;
    memcpy(copy, chosen.bytes, chosen.n);
    bool gguf = chosen.n >= 4 && memcmp(copy, "GGUF", 4) == 0;
    size_t n_new = gguf ? fuzz_mutate_gguf(copy, chosen.n, part_room, seed)
                        : LLVMFuzzerMutate(copy, chosen.n, part_room);
    if (n_new > part_room) n_new = part_room; // libFuzzer makes one byte of none, room or not
    memmove(input + front + n_new, input + front + chosen.n, rest);
    memcpy(input + front, copy, n_new);
    put(input + front - 4, n_new, 4);
    free(copy);
    return front + n_new + rest;
}

void fuzz_write_parts(const uint8_t *input, size_t n, const char *const *names, size_t n_names) {
    fuzz_part part;
    for (size_t i = 0; i < n_names; i++) unlink(fuzz_path(names[i]));
    for (size_t at = 0; fuzz_next_part(input, n, &at, &part);)
        fuzz_write(names[part.kind % n_names], part.bytes, part.n);
}

// ---- GGUF --------------------------------------------------------------------------------------

// Walks over the header and records where strings begin; trusts nothing.
enum { STRINGS = 4096, ALIGNMENT = 32 };
typedef struct walk {
    const uint8_t *bytes;
    size_t n, at;
    bool ok;
    size_t strings[STRINGS], n_strings;
} walk;

static uint64_t take(walk *w, int n) {
    if (!w->ok || w->n - w->at < (size_t)n) {
        w->ok = false;
        return 0;
    }
    w->at += (size_t)n;
    return get(w->bytes + w->at - n, n);
}

static void skip(walk *w, uint64_t n) {
    w->ok = w->ok && n <= w->n - w->at;
    if (w->ok) w->at += (size_t)n;
}

static void walk_string(walk *w) {
    size_t at = w->at;
    skip(w, take(w, 8));
    if (w->ok && w->n_strings < STRINGS) w->strings[w->n_strings++] = at;
}

static void walk_value(walk *w, uint64_t type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        walk_string(w);
    } else if (type == 9) {
        uint64_t element = take(w, 4), n = take(w, 8);
        if (element == 9 || element >= sizeof bytes || n > w->n) w->ok = false;
        if (w->ok && element != 8) skip(w, n * bytes[element]);
        for (uint64_t i = 0; w->ok && element == 8 && i < n; i++) walk_string(w);
    } else if (type < sizeof bytes) {
        skip(w, bytes[type]);
    } else {
        w->ok = false;
    }
}

// Whether the walk reached the end of the header; w->at is that end.
static bool walk_header(walk *w) {
    skip(w, 8);
    uint64_t n_tensors = take(w, 8), n_metas = take(w, 8);
    for (uint64_t i = 0; w->ok && i < n_metas; i++) {
        walk_string(w);
        walk_value(w, take(w, 4));
    }
    for (uint64_t i = 0; w->ok && i < n_tensors; i++) {
        walk_string(w);
        uint64_t n_dims = take(w, 4);
        skip(w, n_dims > 4 ? UINT64_MAX : n_dims * 8 + 12);
    }
    return w->ok;
}

static size_t aligned(size_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// Replaces the string at `at` by its mutation; the data moves to where it then must begin.
static size_t mutate_string(uint8_t *bytes, size_t n, size_t room, size_t at, size_t header) {
    size_t length = (size_t)get(bytes + at, 8), data = aligned(header);
    size_t spare = room > n + 2 * ALIGNMENT ? room - n - 2 * ALIGNMENT : 0;
    size_t text_room = length + (spare < 256 ? spare : 256);
    uint8_t *out = calloc(1, room), *text = malloc(text_room + 1);
    size_t n_out = n;
    if (out && text && text_room > 0) {
        memcpy(text, bytes + at + 8, length);
        size_t n_text = LLVMFuzzerMutate(text, length, text_room);
        size_t tail = at + 8 + length, n_head = header - length + n_text;
        size_t n_data = data < n ? n - data : 0, begin = n_data ? aligned(n_head) : n_head;
        memcpy(out, bytes, at);
        put(out + at, n_text, 8);
        memcpy(out + at + 8, text, n_text);
        memcpy(out + at + 8 + n_text, bytes + tail, header - tail);
        if (n_data) memcpy(out + begin, bytes + data, n_data);
        n_out = begin + n_data;
        memcpy(bytes, out, n_out);
    }
    free(out);
    free(text);
    return n_out;
}

size_t fuzz_mutate_gguf(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    static walk w;
    w = (walk){.bytes = bytes, .n = n, .ok = true};
    if (seed % 2 == 0 || !walk_header(&w) || w.n_strings == 0)
        return LLVMFuzzerMutate(bytes, n, room);
    return mutate_string(bytes, n, room, w.strings[seed / 2 % w.n_strings], w.at);
}

// ---- Using what was accepted -------------------------------------------------------------------

bool fuzz_is_json(const char *text, size_t n) {
    tern_json_doc doc;
    tern_error err;
    bool ok = tern_json_parse(&doc, text, n, &err) == TERN_OK;
    bool out_of_memory = !ok && err.status == TERN_ERR_MEMORY;
    tern_json_free(&doc);
    return ok || out_of_memory;
}

static bool check_json(void *user, const char *text, size_t n) {
    (void)user;
    fuzz_require(fuzz_is_json(text, n));
    return true;
}

static bool look_at(void *user, const char *text, size_t n) {
    volatile char *last = user;
    if (n) *last = text[n - 1];
    return true;
}

static void use_text(tern_model *m, tern_session *s) {
    static const char text[] = "The the  word\t\xC3\xA9 123<s></s>\xE2\x96\x81\xFF a";
    static const tern_message chat[] = {{.role = "system", .content = "Be"},
                                        {.role = "user", .content = "Hi"},
                                        {.role = "assistant", .content = "."}};
    tern_error err;
    tern_ids ids = {(int32_t[64]){0}, 64, 0};
    volatile char last = 0;
    tern_sampling greedy = {0}, usual = tern_sampling_default();
    usual.seed = 1;
    tern_generate_params params = {
        .max_tokens = 2, .sampling = &greedy, .on_text = look_at, .user = (void *)&last};
    tern_chat_format(m, chat, 3, look_at, (void *)&last, &err);
    tern_tokenize(m, text, sizeof text - 1, 3, &ids, &err);
    if (ids.n > ids.capacity) ids.n = ids.capacity;
    tern_detokenize(m, &ids, true, look_at, (void *)&last, &err);
    if (!s) return;
    tern_generate(s, "a b", &params, NULL, &err);
    params.sampling = &usual;
    tern_generate_ids(s, (const int32_t[]){0}, 1, &params, NULL, &err);
}

void fuzz_use_model(const char *path) {
    tern_model *m = NULL;
    tern_session *s = NULL;
    tern_error err = {0};
    volatile char last = 0;
    tern_inspect_desc inspect = {.format = TERN_FORMAT_JSON, .tensors = true, .histogram = true};
    tern_model_desc desc = {.n_threads = 1, .n_batch = 4, .ternary = TERN_TERNARY_2BIT};
    tern_session_desc sd = {.n_context = 16};
    tern_inspect(path, &inspect, check_json, NULL, &err);
    inspect.format = TERN_FORMAT_TEXT;
    tern_inspect(path, &inspect, look_at, (void *)&last, &err);
    tern_status status = tern_model_open(&m, path, &desc, &err);
    fuzz_require(status == TERN_OK ? m != NULL : m == NULL && err.message[0]);
    if (status == TERN_OK) {
        tern_graph_report(m, NULL, TERN_FORMAT_JSON, check_json, NULL, &err);
        if (tern_session_open(&s, m, &sd, &err) != TERN_OK) s = NULL;
        use_text(m, s);
    } else {
        desc.vocab_only = true;
        if (tern_model_open(&m, path, &desc, &err) == TERN_OK) use_text(m, NULL);
    }
    tern_session_close(s);
    tern_model_close(m);
}

void fuzz_use_tokenizer(tern_tokenizer *t, const char *text, size_t n) {
    tern_tokenizer_export e;
    tern_error err = {0};
    for (unsigned flags = 0; flags < 4; flags += 3) {
        tern_ids ids = {0};
        tern_strbuf out = {0};
        tern_decoder d = {.with_special = flags != 0};
        if (tern_tokenizer_encode(t, text, n, flags, &ids, &err) == TERN_OK)
            for (size_t i = 0; i < ids.n; i++) {
                fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < tern_tokenizer_n_vocab(t));
                tern_tokenizer_decode(t, &d, ids.ids[i], &out);
            }
        tern_tokenizer_decode_end(&d, &out);
        tern_strbuf_free(&out);
        tern_free(ids.ids);
    }
    (void)tern_tokenizer_export_gguf(t, &e, &err);
}
