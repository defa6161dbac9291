// tern chat: a conversation. Each question goes with all that was said before through the model's
// chat template; the session computes only what it has not seen yet.
#include "cli.h"
#include "line.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat {
    tern_model *model;
    tern_session *session;
    tern_generate_params params;
    tern_message *messages; // contents and roles are owned, but for the roles' literals
    size_t n_messages;
    tern_generate_stats last;
    bool interactive, verbose, shift, visualize;
} chat;

static const char commands_help[] =
    "  /help           this list\n"
    "  /system TEXT    what the model is told before the conversation; without TEXT: nothing\n"
    "  /clear          forget the conversation\n"
    "  /save FILE      write the conversation as JSON\n"
    "  /stats          tokens and speed of the last answer\n"
    "  /quit           leave; so does Ctrl-D\n"
    "A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of many lines.\n"
    "Ctrl-C stops an answer.\n";

// ---- The conversation ---------------------------------------------------------------------------

static char *copy_text(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(must_alloc(NULL, n, 1), s, n);
}

static void add_message(chat *c, const char *role, char *content) {
    c->messages = must_alloc(c->messages, c->n_messages + 1, sizeof *c->messages);
    c->messages[c->n_messages++] = (tern_message){role, content};
}

static void drop_messages(chat *c, size_t n_kept) {
    while (c->n_messages > n_kept) free((char *)c->messages[--c->n_messages].content);
}

static bool has_system(const chat *c) {
    return c->n_messages > 0 && !strcmp(c->messages[0].role, "system");
}

static void set_system(chat *c, const char *content) {
    if (has_system(c)) {
        free((char *)c->messages[0].content);
        memmove(c->messages, c->messages + 1, --c->n_messages * sizeof *c->messages);
    }
    if (!content || !*content) return;
    add_message(c, "system", copy_text(content));
    tern_message system = c->messages[c->n_messages - 1];
    memmove(c->messages + 1, c->messages, (c->n_messages - 1) * sizeof *c->messages);
    c->messages[0] = system;
}

typedef struct answer {
    text said;
    char last;
} answer;

static bool on_text(void *user, const char *bytes, size_t n) {
    answer *a = user;
    text_append(&a->said, bytes, n);
    if (n) a->last = bytes[n - 1];
    return write_out(NULL, bytes, n) && !line_interrupted();
}

// Forgets the oldest question and its answer; false when only the newest question is left.
static bool forget_oldest(chat *c) {
    size_t first = has_system(c) ? 1 : 0;
    if (c->n_messages < first + 3) return false;
    for (size_t i = first; i < first + 2; i++) free((char *)c->messages[i].content);
    c->n_messages -= 2;
    memmove(c->messages + first, c->messages + first + 2,
            (c->n_messages - first) * sizeof *c->messages);
    return true;
}

static bool answer_all(chat *c, answer *a) {
    for (;;) {
        tern_error err = {0};
        ids prompt = {0};
        if (!tokenize_chat(c->model, c->messages, c->n_messages, &prompt)) {
            free(prompt.ptr);
            return false;
        }
        tern_status status = tern_generate_ids(c->session, prompt.ptr, prompt.n, &c->params,
                                               on_text, a, &c->last, &err);
        bool full = status == TERN_ERR_CONTEXT_FULL;
        free(prompt.ptr);
        if (status == TERN_OK) return true;
        if (full && c->shift && !a->said.n && forget_oldest(c)) continue;
        if (a->last != '\n') putchar('\n');
        fail("%s%s", err.message, full ? " (/clear forgets the conversation)" : "");
        return false;
    }
}

// Asks and prints the answer. What failed is not part of the conversation.
static void ask(chat *c, const char *question) {
    answer a = {.last = '\n'};
    add_message(c, "user", copy_text(question));
    line_clear_interrupt();
    if (!answer_all(c, &a)) {
        drop_messages(c, c->n_messages - 1);
        free(a.said.ptr);
        return;
    }
    putchar('\n');
    fflush(stdout);
    print_notice(c->session);
    if (!a.said.ptr) text_puts(&a.said, "");
    add_message(c, "assistant", a.said.ptr);
    if (c->verbose) print_stats(&c->last);
    if (c->verbose || c->visualize) print_drafts(&c->last.draft, c->visualize);
    if (c->last.reason == TERN_STOP_CONTEXT && !ferror(stdout))
        fprintf(stderr, "tern: the context is full, the answer ends here (/clear forgets the "
                        "conversation)\n");
}

// ---- Commands -----------------------------------------------------------------------------------

static void save(const chat *c, const char *path) {
    if (!*path) {
        fail("/save needs the name of a file");
        return;
    }
    char *bytes = NULL;
    size_t n = 0;
    tern_error err = {0};
    FILE *f = open_memstream(&bytes, &n);
    if (!f) exit(fail("out of memory"));
    fputs("[", f);
    for (size_t i = 0; i < c->n_messages; i++) {
        fprintf(f, "%s\n{\"role\":\"%s\",\"content\":", i ? "," : "", c->messages[i].role);
        put_json(f, c->messages[i].content, strlen(c->messages[i].content));
        fputs("}", f);
    }
    fputs("\n]\n", f);
    bool ok = !ferror(f);
    if (fclose(f) != 0 || !ok) exit(fail("out of memory"));
    if (tern_file_write(path, bytes, n, &err) != TERN_OK) fail("%s", err.message);
    else if (c->interactive) printf("%zu messages are in %s\n", c->n_messages, path);
    free(bytes);
}

static void print_state(const chat *c) {
    fprintf(stderr, "%zu of %d tokens of context are used\n", tern_session_n_tokens(c->session),
            (int)tern_session_n_context(c->session));
    if (c->last.n_prompt) print_stats(&c->last);
    print_drafts(&c->last.draft, true);
}

// A line that begins with '/'. False: leave.
static bool obey(chat *c, const char *line) {
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)(n < 15 ? n : 15), line);
    if (!strcmp(name, "/quit") || !strcmp(name, "/exit")) return false;
    if (!strcmp(name, "/help")) fputs(commands_help, stdout);
    else if (!strcmp(name, "/system")) set_system(c, rest);
    else if (!strcmp(name, "/clear")) drop_messages(c, has_system(c) ? 1 : 0);
    else if (!strcmp(name, "/save")) save(c, rest);
    else if (!strcmp(name, "/stats")) print_state(c);
    else fail("there is no command %s (/help lists them)", name);
    fflush(stdout);
    return true;
}

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

static int converse(chat *c) {
    line_reader *reader = line_open(c->interactive);
    text question = {0};
    if (c->interactive) printf("/help lists the commands, Ctrl-D leaves.\n");
    while (read_question(reader, &question) && !ferror(stdout)) {
        const char *start = question.ptr + strspn(question.ptr, " \t\n");
        if (!*start) continue;
        if (*start == '/' && !strchr(question.ptr, '\n')) {
            if (!obey(c, start)) break;
        } else {
            ask(c, question.ptr);
        }
    }
    free(question.ptr);
    line_close(reader);
    return EXIT_OK;
}

int cmd_chat(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    session_args session_options = {0};
    sampling_args sampling = sampling_args_default();
    speculation_args speculation = {0};
    const char *system = NULL;
    const option options[] = {
        OPTIONS_GROUP("Conversation"),
        {0, "system", OPTION_TEXT, &system, "TEXT", "what the model is told before"},
        TEMPLATE_OPTION(model_options),
        MODEL_OPTIONS(model_options),
        SESSION_OPTIONS(session_options),
        SAMPLING_OPTIONS(sampling),
        SPECULATION_OPTIONS(speculation),
        OPTIONS_END,
    };
    chat c = {.interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    c.model = open_model(self, &model_options, &status);
    if (!c.model) return status;
    note_template(c.model);
    c.params = generate_params(&sampling);
    c.verbose = model_options.verbose;
    c.shift = session_options.shift;
    c.visualize = speculation.visualize;
    if (open_speculation(&speculation, &model_options, &session_options.speculation))
        c.session = open_session(c.model, &session_options);
    if (system) set_system(&c, system);
    status = c.session ? converse(&c) : EXIT_FAILED;
    drop_messages(&c, 0);
    free(c.messages);
    free(sampling.stops.items);
    tern_session_close(c.session);
    close_speculation(&session_options.speculation);
    tern_model_close(c.model);
    return status;
}
