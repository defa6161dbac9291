// tern run: completes a text, or with --chat answers a question. Without a text it is tern chat.
#include "chat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "apps/cli/console/render.h"

typedef struct run_args {
    model_args model;
    session_args session;
    sampling_args sampling;
    speculation_args speculation;
    grammar_args grammar;
    const char *prompt, *file, *system, *saved;
    string_list images;
    bool chat, raw, json;
    int n_logprobs; // negative: none
} run_args;

typedef struct output {
    text all;        // kept for --json
    renderer *shown; // on a terminal; NULL: the text unchanged
    bool json;
    char last; // last character written
} output;

static bool on_text(void *user, const char *bytes, size_t n) {
    output *out = user;
    if (out->json) return text_collect(&out->all, bytes, n);
    if (n) out->last = bytes[n - 1];
    return out->shown ? render_text(out->shown, bytes, n) : write_shown(NULL, bytes, n);
}

// ---- The text -----------------------------------------------------------------------------------

// Whether standard input was redirected: a pipe or a file. Not /dev/null or a terminal.
static bool has_input(void) {
    struct stat s;
    return fstat(STDIN_FILENO, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode));
}

// Whether to chat with a person instead.
static bool has_person(void) { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

// The text from a pipe, without its trailing newlines.
static bool read_input(text *out) {
    if (!text_read(out, "-")) return false;
    while (out->n > 0 && strchr("\r\n", out->ptr[out->n - 1])) out->ptr[--out->n] = 0;
    return true;
}

// The text, as one of: words, a file, standard input, or words about what is on standard input,
// which makes them a question.
static bool read_prompt(run_args *args, text *prompt) {
    bool reads = args->file || (args->prompt && !strcmp(args->prompt, "-"));
    if (reads) return text_given(prompt, args->prompt, args->file);
    if (args->prompt ? has_input() : true)
        if (!read_input(prompt)) return false;
    if (!args->prompt) return true;
    if (prompt->n) {
        text_puts(prompt, "\n\n");
        args->chat = !args->raw;
    }
    text_puts(prompt, args->prompt);
    return true;
}

#define SHOWN_BYTES 1000
// Shows the text that the answer continues, on a terminal; the end of a long text.
static void show_prompt(renderer *r, const text *prompt) {
    size_t from = prompt->n > SHOWN_BYTES ? prompt->n - SHOWN_BYTES : 0;
    while (from < prompt->n && ((unsigned char)prompt->ptr[from] & 0xC0) == 0x80) from++;
    if (from) render_text(r, "[...] ", 6);
    render_text(r, prompt->ptr + from, prompt->n - from);
}

// The prompt's ids: plain, or as a conversation of one question.
static bool make_prompt(const run_args *args, const tern_model *model, const text *prompt,
                        tern_image_tokens **images, ids *out) {
    tern_message messages[2];
    size_t n = 0;
    if (!args->chat)
        return tokenize(model, prompt->ptr, prompt->n, TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS,
                        out) &&
               place_images(model, images, (int)args->images.n, out);
    if (args->system) messages[n++] = (tern_message){.role = "system", .content = args->system};
    messages[n++] = (tern_message){.role = "user",
                                   .content = prompt->ptr ? prompt->ptr : "",
                                   .images = images,
                                   .n_images = (size_t)args->images.n};
    return tokenize_chat(model, messages, n, out);
}

static void put_token(const tern_model *model, const tern_token_logprob *t) {
    text piece = {0};
    text_puts(&piece, "");
    tern_token_piece(model, t->id, text_collect, &piece, NULL);
    printf("{\"id\":%d,\"token\":", (int)t->id);
    put_json(stdout, piece.ptr, piece.n);
    printf(",\"bytes\":[");
    for (size_t i = 0; i < piece.n; i++) printf(i ? ",%u" : "%u", (unsigned char)piece.ptr[i]);
    putchar(']');
    printf(isfinite(t->logprob) ? ",\"logprob\":%.6f" : ",\"logprob\":null", (double)t->logprob);
    free(piece.ptr);
}

static void put_logprobs(const tern_model *model, const tern_session *session) {
    size_t n, n_each;
    const tern_token_logprob *rows = tern_session_token_logprobs(session, &n, &n_each);
    if (!rows) return;
    printf(",\"logprobs\":[");
    for (size_t i = 0; i < n; i++, rows += n_each) {
        printf(i ? ",\n" : "\n");
        put_token(model, rows);
        if (n_each > 1) printf(",\"top\":[");
        for (size_t k = 1; k < n_each; k++) {
            if (k > 1) putchar(',');
            put_token(model, rows + k);
            putchar('}');
        }
        printf(n_each > 1 ? "]}" : "}");
    }
    printf("]");
}

static bool drafts(const tern_speculation *s) {
    return s->chains || s->lookup || s->online || s->draft_model || s->draft;
}

// Parts with nothing to report are left out.
static void put_result(const run_args *args, const tern_model *model, tern_session *session,
                       const output *out, const tern_generate_stats *s, double see_seconds) {
    const tern_profile_row *rows;
    size_t n_rows;
    tern_model_info info;
    size_t n, computed = s->n_prompt - s->n_reused;
    const int32_t *list = tern_session_generated(session, &n);
    tern_model_get_info(model, &info);
    printf("{\"text\":");
    put_json(stdout, out->all.ptr ? out->all.ptr : "", out->all.n);
    printf(",\"ids\":[");
    for (size_t i = 0; i < n; i++) printf(i ? ",%d" : "%d", (int)list[i]);
    printf("],\"prompt_tokens\":%zu,\"generated_tokens\":%zu", s->n_prompt, s->n_generated);
    put_number(stdout, "tokens_per_second", "%.3f",
               s->generate_seconds > 0 ? (double)s->n_generated / s->generate_seconds : 0);
    put_number(stdout, "prompt_tokens_per_second", "%.3f",
               s->prompt_seconds > 0 ? (double)computed / s->prompt_seconds : 0);
    printf(",\"stop_reason\":\"%s\",\"seed\":%llu,\"model\":", stop_reason_name(s->reason),
           (unsigned long long)s->seed);
    put_json(stdout, info.path, strlen(info.path));
    printf(",\"device\":");
    put_json(stdout, info.device, strlen(info.device));
    if (info.device_memory.most > 0) {
        printf(",\"device_memory\":");
        put_device_memory(stdout, &info.device_memory);
    }
    printf(",\"threads\":%d,\"context\":%d,\"load_seconds\":%.3f", (int)info.n_threads,
           (int)tern_session_n_context(session), info.load_seconds);
    if (args->images.n) printf(",\"see_seconds\":%.3f", see_seconds);
    put_logprobs(model, session);
    if (drafts(&args->session.speculation)) {
        printf(",\"speculation\":");
        put_drafts(stdout, &s->draft);
    }
    if (tern_session_profile(session, &rows, &n_rows, NULL) == TERN_OK) {
        printf(",\"profile\":");
        put_profile(stdout, rows, n_rows);
    }
    printf("}\n");
}

// The part of the prompt that the file begins with is not computed again.
static bool load_saved(const run_args *args, tern_session *session) {
    tern_error err = {0};
    if (!args->saved || access(args->saved, F_OK) != 0) return true;
    if (tern_session_load(session, args->saved, &err) == TERN_OK) return true;
    fail("%s", err.message);
    return false;
}

static bool save(const run_args *args, tern_session *session) {
    tern_error err = {0};
    if (!args->saved || tern_session_save(session, args->saved, &err) == TERN_OK) return true;
    fail("%s", err.message);
    return false;
}

static int complete(run_args *args, tern_model *model, const text *prompt) {
    tern_session *session = open_session(model, &args->session);
    tern_generate_params params = generate_params(&args->sampling);
    params.logprobs = args->n_logprobs >= 0;
    params.n_top_logprobs = params.logprobs ? args->n_logprobs : 0;
    tern_generate_stats stats = {0};
    tern_error err = {0};
    output out = {.json = args->json, .last = '\n'};
    ids start = {0};
    int status = EXIT_FAILED, n_images = (int)args->images.n;
    tern_image_tokens **images = NULL;
    double seen = seconds_now();
    if (session && n_images) images = see_images(model, args->images.items, n_images);
    seen = seconds_now() - seen;
    if (n_images && !images) goto end;
    if (!open_grammar(&args->grammar, model, &params.grammar)) goto end;
    if (!session || !make_prompt(args, model, prompt, images, &start) || !load_saved(args, session))
        goto end;
    if (!args->json && isatty(STDOUT_FILENO))
        out.shown = render_open(true, args->chat && render_may_style());
    if (out.shown && !args->chat) show_prompt(out.shown, prompt);
    params.on_text = on_text;
    params.user = &out;
    tern_status done = tern_generate_ids(session, start.ptr, start.n, &params, &stats, &err);
    if (out.shown)
        render_close(out.shown);
    else if (!args->json && (done == TERN_OK || out.last != '\n'))
        putchar('\n');
    if (done != TERN_OK) {
        fail("%s", err.message);
        goto end;
    }
    if (args->json) put_result(args, model, session, &out, &stats, seen);
    fflush(stdout);
    print_notice(session);
    const tern_profile_row *rows;
    size_t n_rows;
    if (!args->json && tern_session_profile(session, &rows, &n_rows, NULL) == TERN_OK)
        print_profile(stderr, "kernel", rows, n_rows);
    bool is_talkative = args->model.verbose || (isatty(STDERR_FILENO) && !args->json);
    if (is_talkative && n_images) fprintf(stderr, "images: %d, %.2f s\n", n_images, seen);
    if (is_talkative) print_stats(&stats);
    if (args->model.verbose) {
        tern_model_info info;
        tern_model_get_info(model, &info);
        print_device_memory(stderr, "", &info.device_memory);
    }
    if (is_talkative || args->speculation.visualize)
        print_drafts(&stats.draft, args->speculation.visualize);
    status = save(args, session) ? EXIT_OK : EXIT_FAILED;
end:
    free(start.ptr);
    free(out.all.ptr);
    tern_session_close(session);
    free_image_tokens(images, n_images);
    tern_grammar_close(params.grammar);
    return status;
}

// The first given option that needs a text and has no meaning in a conversation; NULL: none.
static const char *needs_text(const run_args *args) {
    const grammar_args *g = &args->grammar;
    return args->json                                          ? "json"
           : args->saved                                       ? "session"
           : args->raw                                         ? "raw"
           : args->session.profile                             ? "profile"
           : g->schema || g->rules || g->regex || g->choices.n ? "schema and its like"
                                                               : NULL;
}

static int talk(const command *self, const run_args *args) {
    const char *needs = needs_text(args);
    if (needs) return bad_usage("run: no text (-p, -f or standard input): --%s needs one", needs);
    chat_args talk_args = {.model = args->model,
                           .session = args->session,
                           .sampling = args->sampling,
                           .speculation = args->speculation,
                           .system = args->system,
                           .images = args->images};
    return chat_open(self, &talk_args);
}

static const char *wrong_usage(const run_args *args, bool has_text) {
    if (args->prompt && args->file) return "give a text with one of -p and -f";
    if (args->chat && args->raw) return "--raw and --chat exclude each other";
    if (args->n_logprobs >= 0 && !args->json) return "--logprobs needs --json";
    if (args->images.n && args->saved) return "--session keeps no images: leave out --image";
    if (args->system && !args->chat && has_text) return "--system needs --chat";
    return grammar_usage(&args->grammar);
}

int cmd_run(const command *self, int argc, char **argv) {
    run_args args = {
        .model.finds_gpu = true, .sampling = sampling_args_default(), .n_logprobs = -1};
    const option options[] = {
        OPTIONS_GROUP("Prompt"),
        {'p', "prompt", OPTION_TEXT, &args.prompt, "TEXT",
         "the text to go on from, or a question about what standard input has; -: read it",
         .position = 2},
        {'f', "file", OPTION_TEXT, &args.file, "FILE", "the same from a file"},
        {'i', "image", OPTION_TEXTS, &args.images, "FILE",
         "an image in front of the text, or where it has <|image_pad|>, <image> or "
         "<start_of_image>; may be repeated"},
        {0, "raw", OPTION_FLAG, &args.raw, NULL, "complete the text as it is (the default)"},
        {0, "chat", OPTION_FLAG, &args.chat, NULL, "answer it, by the model's chat template"},
        {0, "system", OPTION_TEXT, &args.system, "TEXT", "with --chat: what comes before"},
        {0, "json", OPTION_FLAG, &args.json, NULL, "print one JSON object at the end"},
        {0, "logprobs", OPTION_COUNT, &args.n_logprobs, "N",
         "with --json: ln p of each token, and of the N likeliest", 0, TERN_TOP_LOGPROBS_MAX},
        {0, "session", OPTION_TEXT, &args.saved, "FILE",
         "go on from the text in FILE, if there is one, and save all there"},
        MODEL_OPTIONS(args.model),
        TEMPLATE_OPTION(args.model),
        SESSION_OPTIONS(args.session),
        PROFILE_OPTION(args.session),
        SAMPLING_OPTIONS(args.sampling),
        GRAMMAR_OPTIONS(args.grammar),
        SPECULATION_OPTIONS(args.speculation),
        OPTIONS_END,
    };
    int status, n_positional;
    text prompt = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    bool has_text = args.prompt || args.file;
    bool asks = args.prompt && !args.raw && strcmp(args.prompt, "-") != 0 && has_input();
    const char *wrong = wrong_usage(&args, has_text && !asks);
    if (wrong) return bad_usage("run: %s", wrong);
    if (!args.model.path) return no_model(self);
    if (!has_text && has_person()) return talk(self, &args);
    if (!has_text && isatty(STDIN_FILENO))
        return bad_usage("run: no text (-p, -f or standard input)");
    if (!read_prompt(&args, &prompt)) return EXIT_FAILED;
    if (!has_text && !prompt.n) return bad_usage("run: standard input is empty: give a text");
    tern_model *model = open_model(self, &args.model, &status);
    if (model && args.chat) note_template(model);
    if (model && !open_speculation(&args.speculation, &args.model, &args.session.speculation))
        status = EXIT_FAILED;
    else if (model)
        status = complete(&args, model, &prompt);
    close_speculation(&args.session.speculation);
    tern_model_close(model);
    free(prompt.ptr);
    free(args.images.items);
    free(args.sampling.stops.items);
    free(args.grammar.choices.items);
    return status;
}
