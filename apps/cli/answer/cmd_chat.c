// tern chat: a conversation. Each question goes through the model's chat template together with all
// earlier messages; the library leaves out what does not fit, and the session computes only what it
// has not seen yet.
#include "chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "apps/cli/console/line.h"
#include "apps/cli/console/render.h"

// ---- Answers ------------------------------------------------------------------------------------

typedef struct answer {
    text said;
    renderer *shown; // NULL: plain text
} answer;

static bool on_text(void *user, const char *bytes, size_t n) {
    answer *a = user;
    text_append(&a->said, bytes, n);
    bool ok = a->shown ? render_text(a->shown, bytes, n) : write_shown(NULL, bytes, n);
    return ok && !line_interrupted();
}

static void say_what_is_dropped(chat *c) {
    if (c->said_dropped || (!c->last.n_dropped && !c->last.n_cut)) return;
    c->said_dropped = true;
    int n_context = (int)tern_session_n_context(c->session);
    const char *note = "the conversation is longer than the context of %d tokens: from here on the "
                       "model does not see its oldest part";
    if (c->interactive)
        chat_remark(c, note, n_context);
    else
        fprintf(stderr, note, n_context), fputc('\n', stderr);
}

static void print_speed(const chat *c) {
    const tern_generate_stats *s = &c->last.generate;
    if (!c->interactive || !c->speed || !s->n_generated || s->generate_seconds <= 0) return;
    chat_remark(c, "%zu token%s, %.1f tokens/s%s", s->n_generated, many(s->n_generated),
                (double)s->n_generated / s->generate_seconds,
                s->reason == TERN_STOP_CALLER   ? ", stopped"
                : s->reason == TERN_STOP_LENGTH ? ", more was not allowed"
                                                : "");
}

void chat_answer(chat *c) {
    answer a = {0};
    tern_error err = {0};
    size_t n;
    const tern_message *messages = tern_chat_messages(c->talk, &n);
    tern_generate_params params = generate_params(&c->sampling);
    tern_sampling sampling = *params.sampling;
    if (sampling.seed) sampling.seed += c->n_again; // else the answer would be the same
    params.sampling = &sampling;
    line_clear_interrupt();
    text_puts(&a.said, "");
    if (c->interactive) a.shown = render_open(c->wrap, c->markdown && render_may_style());
    params.on_text = on_text;
    params.user = &a;
    tern_status status = tern_chat_answer(c->session, messages, n, &params, &c->last, &err);
    if (a.shown)
        render_close(a.shown);
    else if (status == TERN_OK || a.said.n > 0)
        putchar('\n');
    fflush(stdout);
    if (status == TERN_OK) status = tern_chat_add(c->talk, "assistant", a.said.ptr, &err);
    free(a.said.ptr);
    if (status != TERN_OK) {
        tern_chat_cut(c->talk, n - 1);
        chat_fail(c, "%s", err.message);
        return;
    }
    print_notice(c->session);
    say_what_is_dropped(c);
    print_speed(c);
    if (c->verbose) print_stats(&c->last.generate);
    if (c->verbose || c->visualize) print_drafts(&c->last.generate.draft, c->visualize);
}

static void ask(chat *c, const char *question) {
    tern_error err = {0};
    c->n_again = 0;
    tern_status status = tern_chat_add(c->talk, "user", question, &err);
    for (; status == TERN_OK && c->n_waiting > 0; c->n_waiting--)
        status = tern_chat_add_image(c->talk, c->images[c->n_images - c->n_waiting], &err);
    if (status == TERN_OK)
        chat_answer(c);
    else
        chat_fail(c, "%s", err.message);
}

bool chat_look(chat *c, const char **paths, int n) {
    if (n == 0) return true;
    tern_image_tokens **more = see_images(c->model, paths, n);
    if (!more) return false;
    c->images = must_alloc(c->images, (size_t)(c->n_images + n), sizeof *c->images);
    memcpy(c->images + c->n_images, more, (size_t)n * sizeof *more);
    free(more);
    c->n_images += n;
    c->n_waiting += n;
    return true;
}

// ---- Questions ----------------------------------------------------------------------------------

// Reads one question, which may have several lines. False: leave.
static bool read_question(line_reader *reader, text *question) {
    const char *prompt = "> ";
    bool quoted = false;
    question->n = 0;
    text_puts(question, "");
    for (;;) {
        char *line = line_read(reader, prompt);
        if (!line) return question->n > 0 && !quoted;
        size_t n = strlen(line);
        prompt = ". ";
        if (!quoted && question->n == 0 && !strncmp(line, "\"\"\"", 3)) {
            quoted = true;
            memmove(line, line + 3, n - 3 + 1);
            n -= 3;
            if (n == 0) continue;
        }
        char *end = quoted ? strstr(line, "\"\"\"") : NULL;
        if (end) *end = 0, n = (size_t)(end - line);
        bool goes_on = quoted ? !end : n > 0 && line[n - 1] == '\\';
        if (!quoted && goes_on) n--;
        text_append(question, line, n);
        if (!goes_on) return true;
        text_puts(question, "\n");
    }
}

static void greet(const chat *c) {
    tern_model_info info;
    tern_model_get_info(c->model, &info);
    const char *slash = strrchr(info.path, '/');
    const char *name = info.name && *info.name ? info.name : slash ? slash + 1 : info.path;
    char line[1024];
    const char *why = strstr(info.device, " (no GPU: "); // was printed before this
    renderer *r = render_open(true, false);
    snprintf(line, sizeof line,
             "%s (%s, %.3g%s weights) on %.*s, context of %d tokens\n"
             "/help lists the commands, Tab completes them, Ctrl-D leaves.",
             name, info.architecture,
             (double)info.n_params * (info.n_params < 1000000000 ? 1e-6 : 1e-9),
             info.n_params < 1000000000 ? "M" : "B",
             (int)(why ? (size_t)(why - info.device) : strlen(info.device)), info.device,
             (int)tern_session_n_context(c->session));
    render_text(r, line, strlen(line));
    render_close(r);
}

// In a script the status shows whether all commands succeeded.
static int converse(chat *c) {
    line_reader *reader = line_open(c->interactive, chat_complete, c);
    text question = {0};
    if (c->interactive) greet(c);
    while (read_question(reader, &question) && !ferror(stdout)) {
        const char *start = question.ptr + strspn(question.ptr, " \t\n");
        if (!*start) continue;
        if (*start == '/' && !strchr(question.ptr, '\n')) {
            if (!chat_obey(c, start)) break;
        } else {
            ask(c, question.ptr);
        }
    }
    free(question.ptr);
    line_close(reader);
    return c->failed && !c->interactive ? EXIT_FAILED : EXIT_OK;
}

int chat_open(const command *self, chat_args *args) {
    chat c = {.interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO),
              .sampling = args->sampling,
              .speed = 1,
              .markdown = 1,
              .wrap = 1,
              .verbose = args->model.verbose,
              .visualize = args->speculation.visualize};
    int status;
    tern_error err = {0};
    c.model = open_model(self, &args->model, &status);
    if (!c.model) return status;
    note_template(c.model);
    if (open_speculation(&args->speculation, &args->model, &args->session.speculation))
        c.session = open_session(c.model, &args->session);
    status = EXIT_FAILED;
    if (c.session && (tern_chat_open(&c.talk, &err) != TERN_OK ||
                      tern_chat_set_system(c.talk, args->system, &err) != TERN_OK))
        fail("%s", err.message);
    else if (c.session && chat_look(&c, args->images.items, (int)args->images.n))
        status = converse(&c);
    tern_chat_close(c.talk);
    tern_session_close(c.session);
    free_image_tokens(c.images, c.n_images);
    close_speculation(&args->session.speculation);
    tern_model_close(c.model);
    return status;
}

int cmd_chat(const command *self, int argc, char **argv) {
    chat_args args = {.model.finds_gpu = true, .sampling = sampling_args_default()};
    const option options[] = {
        OPTIONS_GROUP("Conversation"),
        {0, "system", OPTION_TEXT, &args.system, "TEXT", "what the model is told before"},
        {'i', "image", OPTION_TEXTS, &args.images, "FILE",
         "an image that goes with the first question; may be repeated"},
        TEMPLATE_OPTION(args.model),
        MODEL_OPTIONS(args.model),
        SESSION_OPTIONS(args.session),
        SAMPLING_OPTIONS(args.sampling),
        SPECULATION_OPTIONS(args.speculation),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    status = chat_open(self, &args);
    free(args.sampling.stops.items);
    free(args.images.items);
    return status;
}
