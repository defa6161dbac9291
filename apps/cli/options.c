// Reading options by a table, and printing that table as help.
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Help ---------------------------------------------------------------------------------------

static void print_help(const command *self, const option *options) {
    printf("usage: tern %s %s\n\n%s\n", self->name, self->usage, self->summary);
    bool any_group = false;
    for (const option *o = options; o->name || o->kind == OPTION_GROUP; o++) {
        if (o->kind == OPTION_GROUP) {
            printf("\n%s:\n", o->help);
            any_group = true;
            continue;
        }
        if (!any_group) printf("\nOptions:\n");
        any_group = true;
        char left[128], both[8] = "    ";
        if (o->short_name) snprintf(both, sizeof both, "-%c, ", o->short_name);
        snprintf(left, sizeof left, "%s--%s%s%s", both, o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        printf("  %-31s%s%s\n", left,
               strlen(left) > 30 ? "\n                                 " : "", o->help);
    }
}

// ---- Values -------------------------------------------------------------------------------------

static bool read_count(const char *value, int *out) {
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    *out = (int)n;
    return *value && !*end && !errno && n >= 0 && n <= INT_MAX;
}

static bool read_unsigned(const char *value, uint64_t *out, bool with_unit) {
    char *end;
    errno = 0;
    if (*value < '0' || *value > '9') return false;
    unsigned long long n = strtoull(value, &end, 10);
    int shift = 0;
    if (with_unit && *end) {
        const char *units = "kMG", *hit = strchr(units, *end == 'K' ? 'k' : *end);
        if (!hit) return false;
        shift = 10 * (int)(hit - units + 1);
        end++;
    }
    if (*end || errno || (shift && n >> (64 - shift))) return false;
    *out = (uint64_t)n << shift;
    return true;
}

static bool read_number(const char *value, float *out) {
    char *end;
    *out = strtof(value, &end);
    return *value && !*end && isfinite(*out) && *out >= 0;
}

static bool read_choice(const char *value, const char *choices, int *out) {
    size_t n = strlen(value);
    for (int i = 0;; i++) {
        size_t length = strcspn(choices, "|");
        if (length == n && !memcmp(choices, value, n)) {
            *out = i;
            return true;
        }
        if (!choices[length]) return false;
        choices += length + 1;
    }
}

static bool set_value(const option *o, const char *value) {
    string_list *list = o->target;
    switch (o->kind) {
    case OPTION_COUNT: return read_count(value, o->target);
    case OPTION_SEED: return read_unsigned(value, o->target, false);
    case OPTION_SIZE: return read_unsigned(value, o->target, true);
    case OPTION_NUMBER: return read_number(value, o->target);
    case OPTION_CHOICE: return read_choice(value, o->argument, o->target);
    case OPTION_MAYBE:
    case OPTION_TEXT: *(const char **)o->target = value; return true;
    case OPTION_TEXTS:
        list->items = must_alloc(list->items, list->n + 1, sizeof *list->items);
        list->items[list->n++] = value;
        return true;
    default: *(bool *)o->target = true; return true;
    }
}

static const char *expected(const option *o) {
    switch (o->kind) {
    case OPTION_COUNT: return "a whole number, 0 or more";
    case OPTION_SEED: return "a whole number, 0 or more";
    case OPTION_SIZE: return "a number of bytes, as 500K, 500M or 4G";
    case OPTION_NUMBER: return "a number, 0 or more";
    default: return o->argument;
    }
}

// ---- The command's arguments --------------------------------------------------------------------

// Finds -x or --name (up to '='); *value is what is attached to it, or NULL.
static const option *find_option(const option *options, const char *word, const char **value) {
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    bool is_long = word[1] == '-';
    *value = NULL;
    for (const option *o = options; o->name || o->kind == OPTION_GROUP; o++) {
        if (o->kind == OPTION_GROUP) continue;
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

bool parse_options(const command *self, const option *options, int argc, char **argv,
                   const char **positional, int n_max, int *n_positional, int *status) {
    bool only_positional = false;
    *n_positional = 0;
    *status = EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        if (only_positional || word[0] != '-' || !word[1]) {
            if (*n_positional == n_max) {
                bad_usage("%s: unexpected argument '%s' (usage: tern %s %s)", self->name, word,
                          self->name, self->usage);
                return false;
            }
            positional[(*n_positional)++] = word;
            continue;
        }
        if (!strcmp(word, "--")) {
            only_positional = true;
            continue;
        }
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help(self, options);
            *status = EXIT_OK;
            return false;
        }
        const option *o = find_option(options, word, &value);
        if (!o) {
            bad_usage("%s: unknown option '%s' (tern %s --help lists them)", self->name, word,
                      self->name);
            return false;
        }
        if (o->kind == OPTION_FLAG && value) {
            bad_usage("%s: --%s takes no value", self->name, o->name);
            return false;
        }
        if (o->kind == OPTION_MAYBE && !value && (i + 1 == argc || argv[i + 1][0] == '-'))
            value = "";
        if (o->kind != OPTION_FLAG && !value) value = i + 1 < argc ? argv[++i] : NULL;
        if (o->kind != OPTION_FLAG && !value) {
            bad_usage("%s: --%s needs %s", self->name, o->name, o->argument);
            return false;
        }
        if (!set_value(o, value)) {
            bad_usage("%s: --%s '%s': expected %s", self->name, o->name, value, expected(o));
            return false;
        }
    }
    return true;
}
