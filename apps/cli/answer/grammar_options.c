// Options that restrict the answer.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>

// The file's text, into `content`; FILE may be the JSON or the rules themselves if it cannot be a
// file name.
static bool read_source(const char *file, text *content) {
    if (*file != '{') return text_read(content, file);
    text_puts(content, file);
    return true;
}

static const char *source_file(const grammar_args *args) {
    return args->schema ? args->schema : args->rules;
}

bool grammar_given(const grammar_args *args) {
    return args->schema || args->rules || args->regex || args->choices.n;
}

bool describe_grammar(const grammar_args *args, text *content, tern_grammar_desc *out) {
    const char *file = source_file(args);
    if (file && !read_source(file, content)) return false;
    *out = (tern_grammar_desc){.compact = args->compact};
    if (args->schema)
        out->kind = TERN_GRAMMAR_JSON_SCHEMA;
    else if (args->rules)
        out->kind = ends_with(args->rules, ".lark") ? TERN_GRAMMAR_LARK : TERN_GRAMMAR_GBNF;
    else
        out->kind = args->regex ? TERN_GRAMMAR_REGEX : TERN_GRAMMAR_CHOICES;
    if (content->n == 0 && file) text_puts(content, "");
    out->text = args->regex ? args->regex : content->ptr;
    out->n_bytes = content->n;
    out->choices = args->choices.items;
    out->n_choices = args->choices.n;
    return true;
}

bool open_grammar(const grammar_args *args, tern_model *model, tern_grammar **out) {
    tern_grammar_desc desc;
    tern_error err = {0};
    text content = {0};
    const char *file = source_file(args);
    *out = NULL;
    if (!grammar_given(args)) return true;
    if (!describe_grammar(args, &content, &desc)) return false;
    bool ok = tern_grammar_open(out, model, &desc, &err) == TERN_OK;
    if (!ok) fail(file && *file != '{' ? "%s: %s" : "%.0s%s", file ? file : "", err.message);
    free(content.ptr);
    return ok;
}

const char *grammar_usage(const grammar_args *args) {
    int n = (args->schema != NULL) + (args->rules != NULL) + (args->regex != NULL) +
            (args->choices.n > 0);
    if (n > 1) return "--schema, --grammar, --regex and --choice exclude each other";
    if (args->compact && !args->schema) return "--compact needs --schema";
    return NULL;
}
