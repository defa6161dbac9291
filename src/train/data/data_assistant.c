// Finds the assistant's tokens in a chat, by the marks that its template puts before an answer.
//
// The template renders a question, once plainly and once with the mark that makes the model answer
// ("<|im_start|>assistant\n", "Assistant: "); the extra tokens of the second are the mark. An
// answer goes from the end of the mark to the first token that ends a turn or a text, inclusive.
// White space at the mark's end may have become part of the answer's first word, so it is matched
// separately.
#include <ctype.h>
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "train/data/data.h"

struct tern_assistant {
    const tern_tokenizer *tokenizer;
    tern_ids with;                    // tokens of the question and the mark
    size_t n_before, n_mark, n_space; // in `with`, in this order
};

static tern_status render(const tern_file *file, const tern_tokenizer *t, tern_strbuf *question,
                          tern_strbuf *both, tern_error *err) {
    static const tern_message ask = {.role = "user", .content = "x"};
    tern_template *template;
    TERN_TRY(tern_template_for_model(&template, file, t, NULL, err));
    tern_status status = tern_template_chat(template, t, &ask, 1, false, question, err);
    if (status == TERN_OK) status = tern_template_chat(template, t, &ask, 1, true, both, err);
    tern_template_free(template);
    if (status == TERN_OK && (question->failed || both->failed))
        status = tern_fail_memory(err, both->len);
    return status;
}

size_t tern_ids_n_common(const tern_ids *a, const tern_ids *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n]) n++;
    return n;
}

static tern_status find_mark(tern_assistant *s, const tern_strbuf *question,
                             const tern_strbuf *both, tern_error *err) {
    const tern_tokenizer *t = s->tokenizer;
    tern_ids before = {0}, mark = {0};
    size_t n = both->len;
    while (n > 0 && isspace((unsigned char)both->ptr[n - 1])) n--;
    tern_status status = tern_tokenizer_encode(t, tern_strbuf_text(question), question->len,
                                               TERN_TOKENIZE_SPECIAL, &before, err);
    if (status == TERN_OK)
        status =
            tern_tokenizer_encode(t, tern_strbuf_text(both), n, TERN_TOKENIZE_SPECIAL, &mark, err);
    if (status == TERN_OK)
        status = tern_tokenizer_encode(t, tern_strbuf_text(both), both->len, TERN_TOKENIZE_SPECIAL,
                                       &s->with, err);
    if (status == TERN_OK) {
        s->n_before = tern_ids_n_common(&before, &mark);
        s->n_mark = mark.n - s->n_before;
        size_t same = tern_ids_n_common(&mark, &s->with);
        s->n_space = same == mark.n ? s->with.n - same : 0;
        if (same != mark.n || s->n_mark == 0)
            status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                               "the chat template does not mark where an answer begins");
    }
    tern_free(before.ids);
    tern_free(mark.ids);
    return status;
}

tern_status tern_assistant_open(tern_assistant **out, const tern_file *file,
                                const tern_tokenizer *t, tern_error *err) {
    tern_strbuf question = {0}, both = {0};
    tern_assistant *s = *out = tern_alloc(TERN_MEM_MISC, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->tokenizer = t;
    tern_status status = render(file, t, &question, &both, err);
    if (status == TERN_OK) status = find_mark(s, &question, &both, err);
    tern_strbuf_free(&question);
    tern_strbuf_free(&both);
    return status;
}

void tern_assistant_close(tern_assistant *s) {
    if (!s) return;
    tern_free(s->with.ids);
    tern_free(s);
}

void tern_assistant_mask(const tern_assistant *s, const int32_t *ids, const uint8_t *marks,
                         int32_t n, int32_t *targets) {
    const int32_t *mark = s->with.ids + s->n_before, *space = mark + s->n_mark;
    int32_t n_mark = (int32_t)s->n_mark, n_space = (int32_t)s->n_space, from = -1; // of an answer
    for (int32_t i = 1; i <= n; i++) {
        if (marks[i] & TERN_TOKEN_BEGINS) from = -1;
        if (from < 0 && i >= n_mark &&
            memcmp(ids + i - n_mark, mark, (size_t)n_mark * sizeof *ids) == 0) {
            bool spaced =
                i + n_space <= n + 1 && memcmp(ids + i, space, (size_t)n_space * sizeof *ids) == 0;
            from = spaced ? i + n_space : i;
        }
        bool speaks = from >= 0 && i >= from;
        if (!speaks) targets[i - 1] = -1;
        if (speaks && tern_tokenizer_is_end(s->tokenizer, ids[i])) from = -1;
    }
}
