// tern tokenize and tern detokenize.
#include "apps/cli/console/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cmd_tokenize(const command *self, int argc, char **argv) {
    model_args args = {.vocab_only = true};
    bool as_ids = false, as_pieces = false, bos = false, plain = false;
    const char *words = NULL, *path = NULL;
    const option options[] = {
        {'p', "prompt", OPTION_TEXT, &words, "TEXT", "the text; -: standard input (the default)",
         .position = 2},
        {'f', "file", OPTION_TEXT, &path, "FILE", "the same from a file"},
        {0, "ids", OPTION_FLAG, &as_ids, NULL, "the ids on one line (the default)"},
        {0, "pieces", OPTION_FLAG, &as_pieces, NULL, "a line for each: its id, its quoted entry"},
        {0, "bos", OPTION_FLAG, &bos, NULL, "begin as the model's tokenizer does"},
        {0, "no-special", OPTION_FLAG, &plain, NULL, "names of special tokens are only text"},
        MODEL_OPTIONS(args),
        OPTIONS_END,
    };
    int status, n;
    text input = {0};
    ids list = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (as_ids && as_pieces) return bad_usage("tokenize: --ids and --pieces exclude each other");
    if (words && path) return bad_usage("tokenize: give the text with one of -p and -f");
    tern_model *model = open_model(self, &args, &status);
    if (!model) return status;
    unsigned flags = (plain ? 0 : TERN_TOKENIZE_SPECIAL) | (bos ? TERN_TOKENIZE_BOS : 0);
    status = EXIT_FAILED;
    if (text_given(&input, words, path) && tokenize(model, input.ptr, input.n, flags, &list)) {
        for (size_t i = 0; i < list.n; i++) {
            printf(i && !as_pieces ? " %d" : "%d", (int)list.ptr[i]);
            if (!as_pieces) continue;
            size_t n_bytes;
            const char *piece = tern_token_text(model, list.ptr[i], &n_bytes);
            putchar('\t');
            put_json(stdout, piece ? piece : "", n_bytes);
            putchar('\n');
        }
        if (!as_pieces) putchar('\n');
        status = EXIT_OK;
    }
    free(list.ptr);
    free(input.ptr);
    tern_model_close(model);
    return status;
}

// Numbers separated by white space and commas.
static bool read_ids(const char *s, const char *where, ids *out) {
    size_t capacity = 0;
    for (;;) {
        s += strspn(s, " \t\r\n,[]");
        if (!*s) return true;
        char *end;
        errno = 0;
        long id = strtol(s, &end, 10);
        if (end == s || errno || id < 0 || id > INT32_MAX) {
            fail("%s: '%.*s' is not a token id", where, (int)strcspn(s, " \t\r\n,"), s);
            return false;
        }
        if (out->n == capacity) {
            capacity = capacity * 2 + 1024;
            out->ptr = must_alloc(out->ptr, capacity, sizeof *out->ptr);
        }
        out->ptr[out->n++] = (int32_t)id;
        s = end;
    }
}

int cmd_detokenize(const command *self, int argc, char **argv) {
    model_args args = {.vocab_only = true};
    bool special = false;
    const char *words = NULL, *path = NULL;
    const option options[] = {
        {'p', "prompt", OPTION_TEXT, &words, "IDS", "the ids; -: standard input (the default)",
         .position = 2},
        {'f', "file", OPTION_TEXT, &path, "FILE", "the same from a file"},
        {0, "special", OPTION_FLAG, &special, NULL, "print the names of control tokens, too"},
        MODEL_OPTIONS(args),
        OPTIONS_END,
    };
    int status, n;
    text input = {0};
    ids list = {0};
    tern_error err = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (words && path) return bad_usage("detokenize: give the ids with one of -p and -f");
    tern_model *model = open_model(self, &args, &status);
    if (!model) return status;
    status = EXIT_FAILED;
    bool from_stdin = !path && (!words || !strcmp(words, "-"));
    const char *where = path ? path : from_stdin ? "standard input" : "--prompt";
    if (text_given(&input, words, path) && read_ids(input.ptr, where, &list)) {
        const tern_ids all = {list.ptr, list.n, list.n};
        if (tern_detokenize(model, &all, special, write_out, NULL, &err) == TERN_OK)
            status = EXIT_OK;
        else if (!ferror(stdout))
            fail("%s", err.message);
    }
    free(list.ptr);
    free(input.ptr);
    tern_model_close(model);
    return status;
}
