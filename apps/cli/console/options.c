// Reading options by a table, and printing that table as help.
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Help ---------------------------------------------------------------------------------------

static bool is_last(const option *o) { return !o->name && o->kind != OPTION_GROUP; }

static void print_help(const command *self, const option *options) {
    printf("usage: tern %s %s\n\n%s\n", self->name, self->usage, self->summary);
    bool any_group = false;
    for (const option *o = options; !is_last(o); o++) {
        if (o->kind == OPTION_GROUP) {
            printf("\n%s:\n", o->help);
            any_group = true;
            continue;
        }
        if (!any_group) printf("\nOptions:\n");
        any_group = true;
        char left[128], both[8] = "    ";
        if (o->short_name) snprintf(both, sizeof both, "-%c, ", o->short_name);
        if (o->letters) snprintf(both, sizeof both, "-%s, ", o->letters);
        snprintf(left, sizeof left, "%s--%s%s%s", both, o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        printf("  %-31s%s%s\n", left,
               strlen(left) > 30 ? "\n                                 " : "", o->help);
    }
}

static const char *const kind_names[] = {
    [OPTION_FLAG] = "flag",   [OPTION_COUNT] = "count", [OPTION_COUNTS] = "counts",
    [OPTION_SEED] = "count",  [OPTION_SIZE] = "size",   [OPTION_NUMBER] = "number",
    [OPTION_TEXT] = "text",   [OPTION_MAYBE] = "maybe", [OPTION_TEXTS] = "texts",
    [OPTION_CHOICE] = "name", [OPTION_NAME] = "name",   [OPTION_HUB] = "text",
};

// For programs (shell completions): a line for the command and one for each option, with tabs
// between the fields: for a command its name, usage and summary; for an option the command's name,
// -x, --name, kind, argument (or the choices), position, least and greatest value (0: none), help.
static void print_tsv(const command *self, const option *options) {
    printf("command\t%s\t%s\t%s\n", self->name, self->usage, self->summary);
    for (const option *o = options; !is_last(o); o++) {
        char letter[8] = {'-', o->short_name, 0};
        if (o->letters) snprintf(letter, sizeof letter, "-%s", o->letters);
        if (o->kind == OPTION_GROUP) continue;
        printf("option\t%s\t%s\t--%s\t%s\t%s\t%d\t%.9g\t%.9g\t%s\n", self->name,
               letter[1] ? letter : "", o->name, kind_names[o->kind],
               o->argument ? o->argument : "", o->position, o->least, o->most, o->help);
    }
}

// ---- Values -------------------------------------------------------------------------------------

static bool in_range(const option *o, double x) {
    return x >= o->least && (o->most == 0 || x <= o->most);
}

// A whole number, with K, M or G: times 1024, its square or its cube.
static bool read_unsigned(const char *value, uint64_t *out, bool with_unit, const char **end) {
    char *after;
    errno = 0;
    if (*value < '0' || *value > '9') return false;
    unsigned long long n = strtoull(value, &after, 10);
    int shift = 0;
    if (with_unit && *after && strchr("KMGkmg", *after)) {
        shift = strchr("Kk", *after) ? 10 : strchr("Mm", *after) ? 20 : 30;
        after++;
    }
    if (errno || (shift && n >> (64 - shift))) return false;
    *out = (uint64_t)n << shift;
    *end = after;
    return true;
}

static bool read_whole(const option *o, const char *value, bool with_unit, uint64_t *out) {
    const char *end;
    return read_unsigned(value, out, with_unit, &end) && !*end && in_range(o, (double)*out);
}

static bool read_count(const option *o, const char *value, int *out) {
    uint64_t n;
    if (!read_whole(o, value, true, &n) || n > INT_MAX) return false;
    *out = (int)n;
    return true;
}

static bool read_counts(const option *o, const char *value, count_list *out) {
    *out = (count_list){0};
    for (;; value++) {
        uint64_t n;
        if (out->n == COUNT_LIST_MAX || !read_unsigned(value, &n, true, &value)) return false;
        if (n > INT_MAX || !in_range(o, (double)n)) return false;
        out->at[out->n++] = (int)n;
        if (*value != ',') return !*value;
    }
}

static bool read_number(const option *o, const char *value, float *out) {
    char *end;
    float x = strtof(value, &end);
    bool is_decimal = *value && strspn(value, "0123456789.eE+-") == strlen(value);
    if (!is_decimal || *end || !isfinite(x) || !in_range(o, (double)x)) return false;
    *out = x;
    return true;
}

// The position of a word in "one|two|three", or -1.
static int find_word(const char *value, const char *words) {
    size_t n = strlen(value);
    for (int i = 0;; i++) {
        size_t length = strcspn(words, "|");
        if (length == n && !memcmp(words, value, n)) return i;
        if (!words[length]) return -1;
        words += length + 1;
    }
}

static bool set_value(const option *o, const char *value) {
    string_list *list = o->target;
    int i;
    switch (o->kind) {
    case OPTION_COUNT: return read_count(o, value, o->target);
    case OPTION_COUNTS: return read_counts(o, value, o->target);
    case OPTION_SEED: return read_whole(o, value, false, o->target);
    case OPTION_SIZE: return read_whole(o, value, true, o->target);
    case OPTION_NUMBER: return read_number(o, value, o->target);
    case OPTION_CHOICE:
        i = find_word(value, o->argument);
        if (i >= 0) *(int *)o->target = i;
        return i >= 0;
    case OPTION_NAME:
        if (find_word(value, o->argument) < 0) return false;
        *(const char **)o->target = value;
        return true;
    case OPTION_MAYBE:
    case OPTION_TEXT: *(const char **)o->target = value; return true;
    case OPTION_TEXTS:
        list->items = must_alloc(list->items, list->n + 1, sizeof *list->items);
        list->items[list->n++] = value;
        return true;
    default: *(bool *)o->target = true; return true;
    }
}

// Describes the valid values in words.
static void describe_expected(const option *o, char *out, size_t size) {
    static const char *const what[] = {
        [OPTION_COUNT] = "a whole number",
        [OPTION_SEED] = "a whole number",
        [OPTION_COUNTS] = "up to 16 whole numbers with commas between,",
        [OPTION_SIZE] = "a whole number, also as 500K, 20M or 4G,",
        [OPTION_NUMBER] = "a number",
    };
    bool is_number = o->kind < sizeof what / sizeof *what && what[o->kind];
    if (!is_number)
        snprintf(out, size, "%s", o->argument);
    else if (o->most == 0)
        snprintf(out, size, "%s from %g on", what[o->kind], o->least);
    else
        snprintf(out, size, "%s from %.9g to %.9g", what[o->kind], o->least, o->most);
}

bool set_option(const option *o, const char *value, char *complaint, size_t size) {
    char expected[160];
    if (set_value(o, value)) return true;
    describe_expected(o, expected, sizeof expected);
    snprintf(complaint, size, "'%s': expected %s", value, expected);
    return false;
}

// ---- The command's arguments --------------------------------------------------------------------

// Finds -x or --name (up to '='); *value is the value attached to it, or NULL.
static const option *find_option(const option *options, const char *word, const char **value) {
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    bool is_long = word[1] == '-';
    *value = NULL;
    for (const option *o = options; !is_last(o); o++) {
        if (o->kind == OPTION_GROUP) continue;
        if (!is_long && o->letters && !strcmp(word + 1, o->letters)) return o;
        if (!is_long && o->short_name == word[1]) {
            if (word[2]) *value = word + 2; // -n5
            return o;
        }
        if (is_long && strlen(o->name) == n && !memcmp(o->name, name, n)) {
            if (equals) *value = equals + 1;
            return o;
        }
    }
    return NULL;
}

// The value of -hf as a model's name that is downloaded without a question. It lives as long as the
// program, like words of the command line.
static const char *hub_address(const char *value) {
    static const char front[] = "hf://";
    char *address = must_alloc(NULL, sizeof front + strlen(value), 1);
    memcpy(address, front, sizeof front - 1);
    strcpy(address + sizeof front - 1, value);
    return address;
}

// The option named by --name or -x with its value; *i is its place in argv. False after printing an
// error.
static bool take_option(const command *self, const option *options, int argc, char **argv, int *i,
                        bool *has_value) {
    const char *word = argv[*i], *value;
    char complaint[256];
    const option *o = find_option(options, word, &value);
    if (!o) {
        const char *name = word + strspn(word, "-");
        guess g = {.word = name, .length = strcspn(name, "=")};
        for (const option *near = options; !is_last(near); near++)
            if (near->kind != OPTION_GROUP) guess_try(&g, near->name);
        bad_usage("%s: unknown option '%s' (%stern %s --help lists them)", self->name, word,
                  guess_text(&g, "--"), self->name);
        return false;
    }
    bool is_flag = o->kind == OPTION_FLAG;
    if (is_flag && value) {
        bad_usage("%s: --%s takes no value", self->name, o->name);
        return false;
    }
    if (o->kind == OPTION_MAYBE && !value && (*i + 1 == argc || argv[*i + 1][0] == '-')) value = "";
    if (!is_flag && !value) value = *i + 1 < argc ? argv[++*i] : NULL;
    if (!is_flag && !value) {
        bad_usage("%s: --%s needs %s", self->name, o->name, o->argument);
        return false;
    }
    if (o->kind == OPTION_HUB) {
        o = find_option(options, "--model", &(const char *){NULL});
        value = hub_address(value);
    }
    if (!set_option(o, value, complaint, sizeof complaint)) {
        bad_usage("%s: --%s %s", self->name, o->name, complaint);
        return false;
    }
    has_value[o - options] = true;
    return true;
}

// The option that takes the next word without a name, or NULL.
static const option *next_position(const option *options, const bool *has_value) {
    const option *best = NULL;
    for (const option *o = options; !is_last(o); o++)
        if (o->position && (!has_value[o - options] || o->kind == OPTION_TEXTS) &&
            (!best || o->position < best->position))
            best = o;
    return best;
}

// Gives the words that are not options to the options with a position, and the rest to the caller.
static bool take_words(const command *self, const option *options, const string_list *words,
                       bool *has_value, const char **positional, int n_max, int *n_positional) {
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->items[i];
        char complaint[256];
        const option *o = next_position(options, has_value);
        if (!o && *n_positional == n_max) {
            bad_usage("%s: unexpected argument '%s' (usage: tern %s %s)", self->name, word,
                      self->name, self->usage);
            return false;
        }
        if (!o) {
            positional[(*n_positional)++] = word;
            continue;
        }
        if (!set_option(o, word, complaint, sizeof complaint)) {
            bad_usage("%s: --%s %s", self->name, o->name, complaint);
            return false;
        }
        has_value[o - options] = true;
    }
    return true;
}

bool parse_options(const command *self, const option *options, int argc, char **argv,
                   const char **positional, int n_max, int *n_positional, int *status) {
    string_list words = {0};
    bool only_words = false, ok = true;
    size_t n_options = 1;
    while (!is_last(&options[n_options - 1])) n_options++;
    bool *has_value = must_alloc(NULL, n_options, sizeof *has_value);
    memset(has_value, 0, n_options * sizeof *has_value);
    *n_positional = 0;
    *status = EXIT_USAGE;
    for (int i = 1; i < argc && ok; i++) {
        const char *word = argv[i];
        bool asks = !strcmp(word, "--help") || !strcmp(word, "-h");
        if (only_words || word[0] != '-' || !word[1]) {
            words.items = must_alloc(words.items, words.n + 1, sizeof *words.items);
            words.items[words.n++] = word;
        } else if (!strcmp(word, "--")) {
            only_words = true;
        } else if (asks || !strcmp(word, "--help=tsv")) {
            (asks ? print_help : print_tsv)(self, options);
            *status = EXIT_OK;
            ok = false;
        } else {
            ok = take_option(self, options, argc, argv, &i, has_value);
        }
    }
    if (ok) ok = take_words(self, options, &words, has_value, positional, n_max, n_positional);
    free(words.items);
    free(has_value);
    return ok;
}
