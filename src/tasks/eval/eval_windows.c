#include "tasks/eval/eval_windows.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"

// ---- Sums --------------------------------------------------------------------------------------

void tern_eval_sum_add(tern_eval_sum *s, double x) {
    s->sum += x;
    s->squares += x * x;
    s->n++;
}

double tern_eval_sum_mean(const tern_eval_sum *s) { return s->n > 0 ? s->sum / s->n : 0; }

double tern_eval_sum_error(const tern_eval_sum *s) {
    double mean = tern_eval_sum_mean(s);
    double variance = s->n > 1 ? (s->squares - s->n * mean * mean) / (s->n - 1) : 0;
    return variance > 0 ? sqrt(variance / s->n) : 0;
}

void tern_eval_perplexity_of(tern_perplexity *p, const tern_eval_sum *nll) {
    p->nll = nll->sum;
    p->nll_per_token = tern_eval_sum_mean(nll);
    p->nll_error = tern_eval_sum_error(nll);
    p->perplexity = exp(p->nll_per_token);
    p->perplexity_error = p->perplexity * p->nll_error; // the error of exp(x)
    p->nll_per_word = p->scored_words ? p->nll / (double)p->scored_words : 0;
    p->bits_per_byte = p->scored_bytes ? p->nll / (double)p->scored_bytes / log(2) : 0;
}

// ---- The text ----------------------------------------------------------------------------------

static bool is_llama(const tern_eval_windows *w) {
    return w->desc->convention == TERN_PERPLEXITY_LLAMA_CPP;
}

tern_status tern_eval_encode(const tern_session *session, tern_str text,
                             const tern_perplexity_desc *desc, tern_ids *ids, tern_error *err) {
    const tern_model *m = session->model;
    // Names of special tokens in the text are only text to llama.cpp.
    const bool is_plain = desc->convention == TERN_PERPLEXITY_LLAMA_CPP;
    const unsigned flags = TERN_TOKENIZE_BOS | (is_plain ? 0 : TERN_TOKENIZE_SPECIAL);
    if (!m->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    return tern_tokenizer_encode(m->tokenizer, text.ptr, text.len, flags, ids, err);
}

int32_t tern_eval_bos(const tern_session *session, const tern_perplexity_desc *desc) {
    const tern_tokenizer *t = session->model->tokenizer;
    const bool replaces = desc->convention == TERN_PERPLEXITY_LLAMA_CPP;
    return replaces && tern_tokenizer_adds_bos(t) ? tern_tokenizer_bos(t) : -1;
}

static tern_status find_ends(tern_eval_windows *w, const tern_tokenizer *t, tern_error *err) {
    tern_decoder d = {0};
    w->ends = tern_alloc_array(TERN_MEM_MISC, w->ids.n + 1, sizeof *w->ends);
    if (!w->ends) return tern_fail_memory(err, w->ids.n * sizeof *w->ends);
    for (size_t i = 0; i < w->ids.n; i++) {
        tern_tokenizer_decode(t, &d, w->ids.ids[i], &w->text);
        w->ends[i] = w->text.len;
    }
    return w->text.failed ? tern_fail_memory(err, w->text.len) : TERN_OK;
}

static tern_status check(const tern_eval_windows *w, size_t n_context, tern_error *err) {
    int context = (int)n_context, size = w->window;
    if (size < 4 || size > context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a window of %d tokens: expected 4 to %d, the context's size", size,
                         context);
    if (is_llama(w) && w->desc->stride && w->desc->stride != size)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a stride is of the convention of transformers; "
                         "llama.cpp's windows stand side by side");
    if (w->stride < 1 || w->stride > size)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a stride of %d tokens: expected 1 to %d, the window", w->stride, size);
    size_t least = is_llama(w) ? (size_t)size : 2;
    if (w->ids.n < least)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the text has %zu token%s: expected %zu or more",
                         w->ids.n, w->ids.n == 1 ? "" : "s", least);
    return TERN_OK;
}

tern_status tern_eval_windows_open(tern_eval_windows *w, const tern_session *session, tern_str text,
                                   size_t n_context, const tern_perplexity_desc *desc,
                                   tern_error *err) {
    *w = (tern_eval_windows){.desc = desc, .bos = -1};
    int usual = is_llama(w) && n_context > 512 ? 512 : (int)n_context;
    w->window = desc->window ? desc->window : usual;
    w->stride = desc->stride ? desc->stride : is_llama(w) ? w->window : w->window / 2;
    TERN_TRY(tern_eval_encode(session, text, desc, &w->ids, err));
    w->bos = tern_eval_bos(session, desc);
    TERN_TRY(find_ends(w, session->model->tokenizer, err));
    TERN_TRY(check(w, n_context, err));
    w->fed = tern_alloc_array(TERN_MEM_MISC, (size_t)w->window, sizeof *w->fed);
    w->targets = tern_alloc_array(TERN_MEM_MISC, (size_t)w->window, sizeof *w->targets);
    if (!w->fed || !w->targets) return tern_fail_memory(err, (size_t)w->window * sizeof *w->fed);
    return TERN_OK;
}

void tern_eval_windows_close(tern_eval_windows *w) {
    tern_free(w->ids.ids);
    tern_free(w->ends);
    tern_free(w->fed);
    tern_free(w->targets);
    tern_strbuf_free(&w->text);
}

// ---- Windows -----------------------------------------------------------------------------------

static bool starts_word(const tern_eval_windows *w, size_t at) {
    static const char spaces[] = " \t\n\v\f\r";
    return !strchr(spaces, w->text.ptr[at]) && (at == 0 || strchr(spaces, w->text.ptr[at - 1]));
}

static void count(const tern_eval_windows *w, tern_perplexity *out) {
    size_t first = w->first_scored, from = first ? w->ends[first - 1] : 0, to = w->ends[w->end - 1];
    out->window = w->window;
    out->stride = w->stride;
    out->n_windows = w->n_done;
    out->n_tokens = w->ids.n;
    out->n_scored += w->end - first;
    out->scored_bytes += to - from;
    for (size_t at = from; at < to; at++) out->scored_words += starts_word(w, at);
}

static bool move_on(tern_eval_windows *w) {
    size_t size = (size_t)w->window, n = w->ids.n, done = w->end;
    if (is_llama(w)) {
        w->begin = done;
        w->end = done + size;
        w->first_scored = done + size / 2 + 1;
        return w->end <= n; // a last part is not scored
    }
    if (done == n) return false;
    w->begin = done ? w->begin + (size_t)w->stride : 0;
    w->end = n - w->begin < size ? n : w->begin + size;
    w->first_scored = done > w->begin ? done : w->begin + 1; // the first has nothing before it
    return true;
}

bool tern_eval_windows_next(tern_eval_windows *w, tern_perplexity *out) {
    if (w->desc->n_windows && w->n_done == (size_t)w->desc->n_windows) return false;
    if (!move_on(w)) return false;
    size_t n = w->end - w->begin - 1;
    const int32_t *ids = w->ids.ids + w->begin;
    memcpy(w->fed, ids, n * sizeof *ids);
    if (w->bos >= 0) w->fed[0] = w->bos;
    for (size_t i = 0; i < n; i++)
        w->targets[i] = w->begin + i + 1 >= w->first_scored ? ids[i + 1] : -1;
    w->n_done++;
    count(w, out);
    return true;
}

tern_status tern_eval_windows_progress(const tern_eval_windows *w, const char *phase,
                                       tern_error *err) {
    const tern_perplexity_desc *d = w->desc;
    size_t n = w->ids.n / (size_t)w->stride;
    if (d->n_windows && n > (size_t)d->n_windows) n = (size_t)d->n_windows;
    double done = (double)w->n_done / (double)(n + 1);
    return tern_progress(d->on_progress, d->user, phase, done < 1 ? done : 0.999)
               ? TERN_OK
               : tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
}
