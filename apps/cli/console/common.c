// What several commands do: open models and sessions, read and write text, print statistics.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/plain.h"
#include "base/utf8.h"

// ---- Memory and time ----------------------------------------------------------------------------

void *must_alloc(void *block, size_t n, size_t size) {
    size_t bytes;
    void *grown = NULL;
    if (!__builtin_mul_overflow(n ? n : 1, size, &bytes)) grown = realloc(block, bytes);
    if (!grown) exit(fail("out of memory"));
    return grown;
}

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- Text ---------------------------------------------------------------------------------------

void text_append(text *t, const char *bytes, size_t n) {
    if (t->n + n + 1 > t->capacity) {
        t->capacity = (t->n + n + 1) * 2;
        t->ptr = must_alloc(t->ptr, t->capacity, 1);
    }
    if (n) memcpy(t->ptr + t->n, bytes, n);
    t->n += n;
    t->ptr[t->n] = 0;
}

void text_puts(text *t, const char *s) { text_append(t, s, strlen(s)); }

bool text_collect(void *user, const char *bytes, size_t n) {
    text_append(user, bytes, n);
    return true;
}

bool text_read(text *t, const char *path) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    char chunk[16384];
    text_append(t, "", 0);
    // Reads up to the first end of input: a terminal could be read further, and would have to be
    // ended twice.
    while (f && !feof(f) && !ferror(f)) {
        size_t n = fread(chunk, 1, sizeof chunk, f);
        text_append(t, chunk, n);
    }
    bool ok = f && !ferror(f);
    size_t n_mark = tern_utf8_mark(t->ptr, t->n);
    if (n_mark) memmove(t->ptr, t->ptr + n_mark, (t->n -= n_mark) + 1);
    if (!ok) fail("%s: %s", is_stdin ? "standard input" : path, strerror(errno));
    if (f && !is_stdin) fclose(f);
    if (ok) return true;
    free(t->ptr);
    *t = (text){0};
    return false;
}

bool text_given(text *t, const char *words, const char *path) {
    if (!words || !strcmp(words, "-")) return text_read(t, path ? path : "-");
    text_puts(t, words);
    return true;
}

// Why standard output first failed: later errors say less.
static int out_errno;

bool write_out(void *user, const char *bytes, size_t n) {
    (void)user;
    errno = 0;
    if (fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0) return true;
    if (!out_errno) out_errno = errno;
    return false;
}

bool write_shown(void *user, const char *bytes, size_t n) {
    static tern_plain plain = {.is_text = true}; // there is one standard output
    tern_strbuf shown = {0};
    if (!isatty(STDOUT_FILENO)) return write_out(user, bytes, n);
    tern_plain_put(&plain, bytes, n, &shown);
    bool ok = !shown.failed && write_out(user, tern_strbuf_text(&shown), shown.len);
    tern_strbuf_free(&shown);
    return ok;
}

static void put_foreign(FILE *f, const char *s, bool is_text) {
    tern_plain plain = {.is_text = is_text};
    tern_strbuf shown = {0};
    tern_plain_put(&plain, s, strlen(s), &shown);
    fputs(shown.failed ? "?" : tern_strbuf_text(&shown), f);
    tern_strbuf_free(&shown);
}

void put_plain(FILE *f, const char *s) { put_foreign(f, s, false); }

void put_running(FILE *f, const char *s) { put_foreign(f, s, true); }

int close_out(int status) {
    write_out(NULL, "", 0);
    if (!ferror(stdout) && !out_errno) return status;
    fail("standard output: %s", out_errno ? strerror(out_errno) : "it could not be written");
    return status == EXIT_USAGE ? status : EXIT_FAILED;
}

bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

// Bytes of the character that begins here; 0: none begins here.
static size_t character_at(const unsigned char *s, size_t n) {
    const size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (length > n || s[0] > 0xf4) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    const bool is_long = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const bool is_none = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return is_long || is_none ? 0 : length;
}

// Bytes that are not text, such as a token's part of a character, become U+FFFD each.
void text_json(text *t, const char *s, size_t n) {
    char code[8];
    text_puts(t, "\"");
    for (size_t i = 0, length; i < n; i += length) {
        unsigned char c = (unsigned char)s[i];
        length = character_at((const unsigned char *)s + i, n - i);
        if (!length) {
            text_puts(t, "\xEF\xBF\xBD");
            length = 1;
            continue;
        }
        if (c == '"' || c == '\\') text_puts(t, "\\");
        if (c == '\n' || c == '\t') {
            text_puts(t, c == '\n' ? "\\n" : "\\t");
        } else if (c < 32 || c == 127) {
            snprintf(code, sizeof code, "\\u%04x", c);
            text_puts(t, code);
        } else {
            text_append(t, s + i, length);
        }
    }
    text_puts(t, "\"");
}

void put_json(FILE *f, const char *s, size_t n) {
    text t = {0};
    text_json(&t, s, n);
    fwrite(t.ptr, 1, t.n, f);
    free(t.ptr);
}

void put_number(FILE *f, const char *name, const char *format, double value) {
    fprintf(f, ",\"%s\":", name);
    if (isfinite(value))
        fprintf(f, format, value);
    else
        fputs("null", f);
}

// ---- Models and sessions ------------------------------------------------------------------------

// What comes after the last '=' is a scale if it is a number; else it is part of the name.
tern_lora *read_loras(const string_list *list) {
    tern_lora *loras = must_alloc(NULL, list->n, sizeof *loras);
    for (size_t i = 0; i < list->n; i++) {
        char *path = must_alloc(NULL, strlen(list->items[i]) + 1, 1), *end;
        strcpy(path, list->items[i]);
        loras[i] = (tern_lora){.path = path};
        char *equals = strrchr(path, '=');
        if (!equals || !equals[1]) continue;
        float scale = strtof(equals + 1, &end);
        if (*end || !isfinite(scale)) continue;
        *equals = 0;
        loras[i].scale = scale;
        loras[i].off = scale == 0;
    }
    return loras;
}

void free_loras(tern_lora *loras, size_t n) {
    for (size_t i = 0; i < n; i++) free((char *)loras[i].path);
    free(loras);
}

const char *device_of(const model_args *args) {
    const char *usual = getenv("TERN_DEVICE");
    if (args->device) return args->device;
    if (usual && *usual) return usual;
    return args->finds_gpu ? "auto" : NULL;
}

// Prints in one line where the model runs and why, if the device is "auto": on a terminal, or if
// the option was given.
static void say_device(const model_args *args, const char *device) {
    const char *asked = device_of(args);
    bool is_said = args->device != NULL;
    if (!asked || strcmp(asked, "auto") != 0 || args->verbose) return;
    if (!is_said && !isatty(STDERR_FILENO)) return;
    bool on_gpu = strncmp(device, "cpu", 3) != 0;
    fprintf(stderr, "device: %s%s\n", device,
            on_gpu && !is_said ? " (found by itself; --device cpu does without)" : "");
}

bool read_model_desc(const model_args *args, tern_model_desc *out) {
    text template = {0};
    if (args->template_file && !text_read(&template, args->template_file)) return false;
    *out = (tern_model_desc){
        .loras = read_loras(&args->loras),
        .n_loras = args->loras.n,
        .device = device_of(args),
        .webgpu = cli_webgpu(),
        .n_threads = args->n_threads,
        .n_batch = args->n_batch,
        .ternary = (tern_ternary_layout)args->ternary,
        .precise = args->precise,
        .matmul_precision = (tern_matmul_precision)args->matmul_precision,
        .head = (tern_head_mode)args->head,
        .chat_template = template.ptr,
        .thinking = (tern_thinking)args->thinking,
        .pooling = (tern_pooling)args->pooling,
        .vocab_only = args->vocab_only,
        .cpu_features = args->cpu_features ? args->cpu_features : getenv("TERN_CPU_FEATURES"),
        .on_progress = show_progress,
        .mmproj = args->mmproj && !strcmp(args->mmproj, "none") ? "" : args->mmproj,
    };
    return true;
}

void free_model_desc(tern_model_desc *desc) {
    free((char *)desc->chat_template);
    free_loras((tern_lora *)desc->loras, desc->n_loras);
}

int no_model(const command *self) {
    return bad_usage("%s: no model: a file, a folder or a name (`tern list`, `tern pull --list`; "
                     "usage: tern %s %s)",
                     self->name, self->name, self->usage);
}

tern_model *open_model(const command *self, model_args *args, int *status) {
    tern_model *model = NULL;
    tern_error err = {0};
    tern_model_desc desc;
    *status = EXIT_FAILED;
    if (!args->path) {
        *status = no_model(self);
        return NULL;
    }
    args->path = resolve_model(args->folder, args->path);
    if (!args->path || !read_model_desc(args, &desc)) return NULL;
    tern_status opened = tern_model_open(&model, args->path, &desc, &err);
    free_model_desc(&desc);
    if (opened != TERN_OK) {
        end_progress();
        exit_status(opened, &err);
        return NULL;
    }
    tern_model_info info;
    tern_model_get_info(model, &info);
    say_device(args, info.device);
    if (args->verbose) {
        fprintf(stderr, "%s: %s, %.2f billion weights, %s, products %s, head %s, %.2f s to load\n",
                info.path, info.architecture, (double)info.n_params * 1e-9, info.device,
                info.ternary_layout, info.head, info.load_seconds);
    }
    *status = EXIT_OK;
    return model;
}

void note_template(const tern_model *model) {
    tern_model_info info;
    tern_model_get_info(model, &info);
    if (info.template_guess)
        fputs("note: ", stderr), put_plain(stderr, info.template_guess), fputc('\n', stderr);
}

tern_session *open_session(tern_model *model, const session_args *args) {
    tern_session *session = NULL;
    tern_error err = {0};
    const tern_session_desc desc = {
        .n_context = args->n_context,
        .kv_type = (tern_kv_type)args->kv_type,
        .shift_context = args->shift,
        .n_keep = args->n_keep,
        .speculation = args->speculation,
        .profile = args->profile,
    };
    if (tern_session_open(&session, model, &desc, &err) != TERN_OK) fail("%s", err.message);
    return session;
}

sampling_args sampling_args_default(void) {
    tern_sampling s = tern_sampling_default();
    s.seed = 0;
    return (sampling_args){.sampling = s, .top_k = -1, .window = -1};
}

tern_generate_params generate_params(sampling_args *args) {
    args->sampling.top_k = args->top_k;
    if (args->window >= 0) args->sampling.penalty_window = args->window;
    if (args->samplers) // a list that is too long fills it, and is refused
        memcpy(args->sampling.samplers, args->samplers,
               strnlen(args->samplers, sizeof args->sampling.samplers));
    return (tern_generate_params){
        .sampling = &args->sampling,
        .max_tokens = args->n_max,
        .stops = args->stops.items,
        .n_stops = args->stops.n,
        .ignore_end = args->ignore_end,
        .min_tokens = args->min_tokens,
        .stop_token_ids = args->stop_ids.at,
        .n_stop_token_ids = args->stop_ids.n,
        .allowed_token_ids = args->allowed_ids.at,
        .n_allowed_token_ids = args->allowed_ids.n,
        .bad_words = args->bad_words.items,
        .n_bad_words = args->bad_words.n,
        .dry_sequence_breakers = args->breakers.items,
        .n_dry_sequence_breakers = args->breakers.n,
    };
}

const char *stop_reason_name(tern_stop_reason reason) {
    static const char *const names[] = {"end", "length", "stop", "context", "cancelled"};
    return names[reason];
}

void print_notice(tern_session *session) {
    const char *notice = tern_session_notice(session);
    if (notice) fail("%s", notice);
}

void print_stats(const tern_generate_stats *s) {
    size_t computed = s->n_prompt - s->n_reused;
    fprintf(stderr, "prompt: %zu token%s", s->n_prompt, many(s->n_prompt));
    if (s->n_reused) fprintf(stderr, " (%zu already there)", s->n_reused);
    if (s->prompt_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)computed / s->prompt_seconds);
    fprintf(stderr, "; answer: %zu token%s", s->n_generated, many(s->n_generated));
    if (s->generate_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)s->n_generated / s->generate_seconds);
    fprintf(stderr, "; stopped by %s; seed %llu\n", stop_reason_name(s->reason),
            (unsigned long long)s->seed);
}

// ---- Tokens -------------------------------------------------------------------------------------

bool tokenize(const tern_model *model, const char *s, size_t n, unsigned flags, ids *out) {
    tern_error err = {0};
    // No text has more tokens than bytes, except for those that the tokenizer adds at its ends.
    for (tern_ids list = {.capacity = n + 16};; list.capacity = list.n) {
        out->ptr = list.ids = must_alloc(out->ptr, list.capacity, sizeof *out->ptr);
        if (tern_tokenize(model, s, n, flags, &list, &err) != TERN_OK) {
            fail("%s", err.message);
            return false;
        }
        out->n = list.n;
        if (list.n <= list.capacity) return true;
    }
}

bool tokenize_chat(const tern_model *model, const tern_message *messages, size_t n, ids *out) {
    tern_error err = {0};
    for (tern_ids list = {.capacity = 1024};; list.capacity = list.n) {
        out->ptr = list.ids = must_alloc(out->ptr, list.capacity, sizeof *out->ptr);
        if (tern_chat_tokens(model, messages, n, NULL, &list, &err) != TERN_OK) {
            fail("%s", err.message);
            return false;
        }
        out->n = list.n;
        if (list.n <= list.capacity) return true;
    }
}
