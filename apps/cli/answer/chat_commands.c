// The commands of tern chat, and how Tab completes them.
#include "chat.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "apps/cli/console/line.h"
#include "apps/cli/console/render.h"

void chat_fail(chat *c, const char *format, ...) {
    char *line = NULL;
    va_list args;
    va_start(args, format);
    bool ok = vasprintf(&line, format, args) >= 0;
    va_end(args);
    fail("%s", ok ? line : "out of memory");
    if (ok) free(line);
    c->failed = true;
}

void chat_remark(const chat *c, const char *format, ...) {
    char *line = NULL;
    va_list args;
    bool styled = render_may_style();
    if (!c->interactive) return;
    va_start(args, format);
    bool ok = vasprintf(&line, format, args) >= 0;
    va_end(args);
    if (!ok) return;
    renderer *r = render_open(true, false);
    if (styled) printf("\033[2m");
    render_text(r, line, strlen(line));
    render_close(r);
    if (styled) printf("\033[0m");
    fflush(stdout);
    free(line);
}

// ---- /set ---------------------------------------------------------------------------------------

#define VALUES_MAX 32
typedef struct values {
    option rows[VALUES_MAX];
    char names[VALUES_MAX][24]; // an option's name, with '_' for '-'; "": as it is
} values;

static const char *name_of(const values *v, const option *o) {
    const char *name = v->names[o - v->rows];
    return *name ? name : o->name;
}

// The same rows as on the command line, with the names that other chat programs use.
static values values_of(chat *c) {
    const option rows[] = {SAMPLING_VALUES(c->sampling),
                           FURTHER_SAMPLERS(c->sampling),
                           {0, "speed", OPTION_CHOICE, &c->speed, "off|on", "after an answer"},
                           {0, "markdown", OPTION_CHOICE, &c->markdown, "off|on", "by styles"},
                           {0, "wrap", OPTION_CHOICE, &c->wrap, "off|on", "at the window's width"},
                           OPTIONS_END};
    static const char *const renamed[][2] = {{"n-predict", "max_tokens"}, {"temp", "temperature"}};
    _Static_assert(sizeof rows <= sizeof(values), "room for all values");
    values v = {0};
    memcpy(v.rows, rows, sizeof rows);
    for (option *o = v.rows; o->name; o++) {
        for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
            if (!strcmp(o->name, renamed[i][0])) o->name = renamed[i][1];
        if (!strchr(o->name, '-')) continue;
        char *name = v.names[o - v.rows];
        snprintf(name, sizeof v.names[0], "%s", o->name);
        for (char *at = name; (at = strchr(at, '-'));) *at = '_';
    }
    return v;
}

// The effective value of a setting that was not set: the file's, else the default.
static double default_value(const chat *c, const char *name) {
    tern_model_info info;
    tern_model_get_info(c->model, &info);
    const struct {
        const char *name;
        double file, usual;
    } known[] = {
        {"temperature", (double)info.temperature, 0.8},
        {"top_k", info.top_k, 40},
        {"top_p", (double)info.top_p, 0.95},
        {"min_p", (double)info.min_p, 0.05},
        {"repeat_penalty", (double)info.repeat_penalty, 1},
        {"penalty_window", -1, 64},
        {"xtc_threshold", -1, 0.1},
        {"dynatemp_exponent", -1, 1},
        {"dry_base", -1, 1.75},
        {"dry_allowed_length", -1, 2},
        {"dry_penalty_last_n", -1, (double)tern_session_n_context(c->session)},
        {"mirostat_tau", -1, 5},
        {"mirostat_eta", -1, 0.1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].file >= 0 ? known[i].file : known[i].usual;
    return 0;
}

static void print_value(const chat *c, const values *v, const option *o) {
    const char *name = name_of(v, o);
    double x = 0;
    switch (o->kind) {
    case OPTION_CHOICE: printf("  %-18s %s\n", name, *(int *)o->target ? "on" : "off"); return;
    case OPTION_SEED:
        printf("  %-18s %llu\n", name, (unsigned long long)*(uint64_t *)o->target);
        return;
    case OPTION_COUNT: x = *(int *)o->target; break;
    default: x = (double)*(float *)o->target; break;
    }
    printf("  %-18s %g%s\n", name, x < 0 ? default_value(c, name) : x, x < 0 ? " (default)" : "");
}

static void set(chat *c, const char *rest) {
    values v = values_of(c);
    size_t n = strcspn(rest, " \t=");
    const char *value = rest + n + strspn(rest + n, " \t=");
    char complaint[256];
    if (!*rest)
        for (const option *o = v.rows; o->name; o++) print_value(c, &v, o);
    for (const option *o = v.rows; o->name && *rest; o++) {
        const char *name = name_of(&v, o);
        if (strlen(name) != n || memcmp(name, rest, n) != 0) continue;
        if (!*value)
            print_value(c, &v, o);
        else if (!set_option(o, value, complaint, sizeof complaint))
            chat_fail(c, "/set %s %s", o->name, complaint);
        return;
    }
    if (*rest) chat_fail(c, "/set knows no '%.*s' (/set alone lists the names)", (int)n, rest);
}

// ---- The others ---------------------------------------------------------------------------------

// A file's name as it was typed: "~/" is the home folder.
static void user_path(text *path, const char *typed) {
    char *at_home = strncmp(typed, "~/", 2) ? NULL : user_file(USER_HOME, typed + 1);
    text_puts(path, at_home ? at_home : typed);
    free(at_home);
}

typedef tern_status (*file_job)(const chat *c, const char *path, tern_error *err);

static tern_status save_to(const chat *c, const char *path, tern_error *err) {
    return tern_chat_save(c->talk, path, err);
}
static tern_status load_from(const chat *c, const char *path, tern_error *err) {
    return tern_chat_load(c->talk, path, err);
}

static void with_file(chat *c, const char *name, const char *typed, file_job job,
                      const char *done) {
    text path = {0};
    tern_error err = {0};
    size_t n;
    if (!*typed) {
        chat_fail(c, "%s needs the name of a file", name);
        return;
    }
    user_path(&path, typed);
    if (job(c, path.ptr, &err) != TERN_OK) {
        chat_fail(c, "%s", err.message);
    } else {
        tern_chat_messages(c->talk, &n);
        chat_remark(c, "%zu message%s %s %s", n, many(n), done, path.ptr);
    }
    free(path.ptr);
}

static void save(chat *c, const char *rest) { with_file(c, "/save", rest, save_to, "are in"); }
static void load(chat *c, const char *rest) {
    with_file(c, "/load", rest, load_from, "from");
    c->said_dropped = false;
}

static void image(chat *c, const char *rest) {
    text path = {0};
    if (*rest) user_path(&path, rest);
    const char *paths[] = {path.ptr};
    if (!*rest)
        chat_fail(c, "/image needs the name of a file");
    else if (!chat_look(c, paths, 1))
        c->failed = true;
    else
        chat_remark(c, "%s goes with the next question", path.ptr);
    free(path.ptr);
}

static void history(chat *c, const char *rest) {
    size_t n;
    const tern_message *m = tern_chat_messages(c->talk, &n);
    (void)rest;
    bool styled = c->interactive && render_may_style();
    for (size_t i = 0; i < n; i++) {
        printf("%s%s:%s\n", styled ? "\033[2m" : "", m[i].role, styled ? "\033[0m" : "");
        if (c->interactive) {
            renderer *r = render_open(c->wrap, c->markdown && styled);
            render_text(r, m[i].content, strlen(m[i].content));
            render_close(r);
        } else {
            puts(m[i].content);
        }
    }
}

static bool is_role(const tern_message *m, const char *role) { return !strcmp(m->role, role); }

static void regenerate(chat *c, const char *rest) {
    size_t n;
    const tern_message *m = tern_chat_messages(c->talk, &n);
    (void)rest;
    if (n > 1 && is_role(&m[n - 1], "assistant") && is_role(&m[n - 2], "user"))
        tern_chat_cut(c->talk, --n);
    if (n == 0 || !is_role(&m[n - 1], "user")) {
        chat_fail(c, "/regenerate: there is no question yet");
        return;
    }
    c->n_again++;
    chat_answer(c);
}

static void set_system(chat *c, const char *rest) {
    tern_error err = {0};
    if (tern_chat_set_system(c->talk, rest, &err) != TERN_OK) chat_fail(c, "%s", err.message);
}

static void clear(chat *c, const char *rest) {
    size_t n;
    const tern_message *m = tern_chat_messages(c->talk, &n);
    (void)rest;
    tern_chat_cut(c->talk, n > 0 && is_role(&m[0], "system") ? 1 : 0);
    c->said_dropped = false;
}

static void stats(chat *c, const char *rest) {
    (void)rest;
    size_t n_used = tern_session_n_tokens(c->session), n_dropped = c->last.n_dropped;
    fprintf(stderr, "%zu of %d tokens of context %s used", n_used,
            (int)tern_session_n_context(c->session), n_used == 1 ? "is" : "are");
    if (n_dropped == 1)
        fprintf(stderr, "; the oldest message is left out");
    else if (n_dropped)
        fprintf(stderr, "; the %zu oldest messages are left out", n_dropped);
    fputc('\n', stderr);
    if (c->last.generate.n_prompt) print_stats(&c->last.generate);
    print_drafts(&c->last.generate.draft, true);
}

static void print_help(chat *c, const char *rest);
static void leave(chat *c, const char *rest) { (void)c, (void)rest; }

typedef struct chat_command {
    const char *name, *argument, *help;
    void (*run)(chat *c, const char *rest);
} chat_command;

static const chat_command commands[] = {
    {"/help", "", "this list", print_help},
    {"/set", "[NAME VALUE]", "temperature, top_k, top_p, min_p, seed, max_tokens ...; alone: all",
     set},
    {"/system", "[TEXT]", "what the model is told before the conversation; alone: nothing",
     set_system},
    {"/image", "FILE", "an image that goes with the next question, of models that see", image},
    {"/regenerate", "", "another answer to the last question", regenerate},
    {"/history", "", "the conversation so far", history},
    {"/save", "FILE", "write it: Markdown to a name in .md, else JSON", save},
    {"/load", "FILE", "go on with one that was saved", load},
    {"/clear", "", "forget it, but for the system text", clear},
    {"/stats", "", "tokens and speed of the last answer", stats},
    {"/quit", "", "leave; so do /exit, /bye and Ctrl-D", leave},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_help(chat *c, const char *rest) {
    (void)c, (void)rest;
    static const char ends[] =
        "A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of many "
        "lines.\nTab completes commands and files, Ctrl-R searches earlier lines, Ctrl-C stops an "
        "answer.";
    renderer *r = render_open(true, false);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char row[160];
        int n = snprintf(row, sizeof row, "  %-12s%-13s%s\n", commands[i].name,
                         commands[i].argument, commands[i].help);
        render_text(r, row, (size_t)n);
    }
    render_text(r, ends, sizeof ends - 1);
    render_close(r);
}

static void no_command(chat *c, const char *line, size_t n) {
    guess g = {.word = line + 1, .length = n - 1};
    for (size_t i = 0; i < N_COMMANDS; i++) guess_try(&g, commands[i].name + 1);
    chat_fail(c, "there is no command %.*s (%s/help lists them)", (int)n, line,
              guess_text(&g, "/"));
}

bool chat_obey(chat *c, const char *line) {
    size_t n = strcspn(line, " \t"), i = 0;
    text rest = {0};
    text_puts(&rest, line + n + strspn(line + n, " \t"));
    while (rest.n && strchr(" \t", rest.ptr[rest.n - 1])) rest.ptr[--rest.n] = 0;
    bool leaves = (n == 5 && (!memcmp(line, "/quit", n) || !memcmp(line, "/exit", n))) ||
                  (n == 4 && !memcmp(line, "/bye", n));
    while (i < N_COMMANDS && (strlen(commands[i].name) != n || memcmp(commands[i].name, line, n)))
        i++;
    if (i < N_COMMANDS)
        commands[i].run(c, rest.ptr);
    else if (!leaves)
        no_command(c, line, n);
    fflush(stdout);
    free(rest.ptr);
    return !leaves;
}

size_t chat_complete(void *user, const char *line, string_list *out) {
    chat *c = user;
    size_t n = strcspn(line, " \t"), start = n + strspn(line + n, " \t");
    if (line[0] != '/') return strlen(line);
    if (!line[n]) {
        for (size_t i = 0; i < N_COMMANDS; i++)
            if (!strncmp(commands[i].name, line, n)) line_add_word(out, commands[i].name);
        return 0;
    }
    bool takes_file =
        !strncmp(line, "/save ", 6) || !strncmp(line, "/load ", 6) || !strncmp(line, "/image ", 7);
    if (takes_file) line_complete_path(line + start, out);
    if (!strncmp(line, "/set ", 5)) {
        values v = values_of(c);
        for (const option *o = v.rows; o->name; o++)
            if (!strncmp(o->name, line + start, strlen(line + start))) line_add_word(out, o->name);
    }
    return start;
}
