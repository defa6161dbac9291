// tern logits: the scores of every next token, for comparing with other programs.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>
#include "tern_tools.h"

// Little-endian int32, whatever this machine is.
static bool read_id_file(const char *path, ids *out) {
    text bytes = {0};
    bool ok = text_read(&bytes, path);
    if (ok && (bytes.n == 0 || bytes.n % 4)) {
        fail("%s: %zu bytes are not a list of int32 ids", path, bytes.n);
        ok = false;
    }
    out->n = bytes.n / 4;
    out->ptr = must_alloc(NULL, out->n, sizeof *out->ptr);
    for (size_t i = 0; ok && i < out->n; i++) {
        const unsigned char *b = (const unsigned char *)bytes.ptr + 4 * i;
        out->ptr[i] =
            (int32_t)(b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
    }
    free(bytes.ptr);
    return ok;
}

// As little-endian bytes, in place.
static void to_bytes(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        unsigned char b[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                              (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
        memcpy(&x[i], b, 4);
    }
}

#define LOGITS_PIECE 64 // tokens whose scores are held in memory at once

static int compute_logits(tern_model *model, session_args *args, const ids *list,
                          tern_output *out) {
    tern_model_info info;
    tern_error err = {0};
    int status = EXIT_OK;
    tern_model_get_info(model, &info);
    if (!args->n_context && list->n <= INT32_MAX) args->n_context = (int)list->n;
    tern_session *session = open_session(model, args);
    if (!session) return EXIT_FAILED;
    size_t n_vocab = (size_t)info.n_vocab;
    float *logits = must_alloc(NULL, LOGITS_PIECE * n_vocab, sizeof *logits);
    for (size_t done = 0; done < list->n && status == EXIT_OK;) {
        size_t n = list->n - done < LOGITS_PIECE ? list->n - done : LOGITS_PIECE;
        if (was_cancelled())
            status = exit_status(TERN_ERR_CANCELLED, &err);
        else if (tern_session_logits(session, list->ptr + done, n, logits, &err) != TERN_OK)
            status = fail("%s", err.message);
        to_bytes(logits, n * n_vocab);
        if (status == EXIT_OK &&
            tern_output_write(out, logits, n * n_vocab * sizeof *logits, &err) != TERN_OK)
            status = fail("%s", err.message);
        done += n;
    }
    free(logits);
    tern_session_close(session);
    return status;
}

int cmd_logits(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    session_args session = {.kv_type = TERN_KV_F32};
    const char *in = NULL, *out = NULL;
    const option options[] = {
        {0, "ids", OPTION_TEXT, &in, "FILE", "little-endian int32 ids; -: standard input"},
        {'o', "output", OPTION_TEXT, &out, "FILE",
         "float32 [tokens, vocabulary]; -: standard output"},
        MODEL_OPTIONS(model_options),
        SESSION_OPTIONS(session),
        OPTIONS_END,
    };
    int status, n;
    ids list = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!in || !out)
        return bad_usage("logits: --ids and -o are needed (usage: tern logits %s)", self->usage);
    if (!read_id_file(in, &list)) return free(list.ptr), EXIT_FAILED;
    cancel_on_signals("nothing was written");
    tern_model *model = open_model(self, &model_options, &status);
    tern_output *output = NULL;
    tern_error err = {0};
    if (model && tern_output_open(&output, strcmp(out, "-") ? out : "/dev/stdout", &err) != TERN_OK)
        status = fail("%s", err.message);
    if (output) status = compute_logits(model, &session, &list, output);
    if (output && status == EXIT_OK && tern_output_finish(output, &err) != TERN_OK)
        status = fail("%s", err.message);
    tern_output_close(output);
    free(list.ptr);
    tern_model_close(model);
    return status;
}
