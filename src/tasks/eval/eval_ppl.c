// Perplexity of a text: exp of the mean of -ln p(token | the tokens before it in its window).
//
// A model sees only a limited number of tokens, so a long text is cut into windows, and the result
// depends on how. Two conventions are in use:
//
//   llama.cpp     |BOS ......|scored ....|BOS ......|scored ....|   (each window: half, half)
//   transformers  |scored ..............|
//                        |context .......|scored|
//                                 |context .....|scored|          (each begins a stride later)
//
// With the first no token has less context than half a window, but half of the text is not scored
// and BOS overwrites a token. With the second every token but the very first is scored exactly once
// (with a stride of a whole window: all but the first of each); those of the first window have
// little context; the smaller the stride, the more context the others have and the longer it takes.
// (The script in transformers' documentation weighs each window by one token too few; that changes
// the sixth digit.)
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"
#include "tern_tools.h"

typedef struct run {
    tern_session *session;
    const tern_perplexity_desc *desc;
    tern_ids ids;           // of the whole text
    tern_strbuf text;       // their text...
    size_t *ends;           // ...and where in it each ends, [ids.n]
    int32_t *fed, *targets; // [window]
    tern_target_score *scores;
    double squares;
    tern_perplexity *out;
} run;

// A stretch of ids: [begin, end) is the window; ids[first_scored..end) count.
typedef struct window {
    size_t begin, end, first_scored;
    bool bos; // BOS replaces the first token
} window;

static bool starts_word(const run *r, size_t at) {
    static const char spaces[] = " \t\n\v\f\r";
    return !strchr(spaces, r->text.ptr[at]) && (at == 0 || strchr(spaces, r->text.ptr[at - 1]));
}

static void count_text(run *r, size_t first, size_t end) {
    size_t from = first ? r->ends[first - 1] : 0, to = r->ends[end - 1];
    r->out->scored_bytes += to - from;
    for (size_t at = from; at < to; at++) r->out->scored_words += starts_word(r, at);
}

static tern_status score(run *r, const window *w, tern_error *err) {
    size_t n = w->end - w->begin - 1; // the last one is only a target
    const int32_t *ids = r->ids.ids + w->begin;
    memcpy(r->fed, ids, n * sizeof *ids);
    if (w->bos) r->fed[0] = tern_tokenizer_bos(r->session->model->tokenizer);
    for (size_t i = 0; i < n; i++)
        r->targets[i] = w->begin + i + 1 >= w->first_scored ? ids[i + 1] : -1;
    tern_session_reset(r->session);
    TERN_TRY(tern_session_logprobs(r->session, r->fed, n, r->targets, r->scores, err));
    for (size_t i = 0; i < n; i++) {
        const double logprob = r->scores[i].logprob; // 0 where no score was requested
        r->out->nll -= logprob;
        r->squares += logprob * logprob;
    }
    r->out->n_scored += w->end - w->first_scored;
    count_text(r, w->first_scored, w->end);
    return TERN_OK;
}

static bool next_window(const run *r, window *w) {
    size_t size = (size_t)r->out->window, n = r->ids.n, done = w->end;
    if (r->desc->convention == TERN_PERPLEXITY_LLAMA_CPP) {
        *w = (window){.begin = done,
                      .end = done + size,
                      .first_scored = done + size / 2 + 1,
                      .bos = tern_tokenizer_adds_bos(r->session->model->tokenizer)};
        return w->end <= n; // a last part is not scored
    }
    if (done == n) return false;
    w->begin = done ? w->begin + (size_t)r->out->stride : 0;
    w->end = n - w->begin < size ? n : w->begin + size;
    w->first_scored = done > w->begin ? done : w->begin + 1; // the first has nothing before it
    return true;
}

static tern_status all_windows(run *r, tern_error *err) {
    const tern_perplexity_desc *d = r->desc;
    size_t stride = (size_t)r->out->stride, n = r->ids.n / stride;
    if (d->n_windows && n > (size_t)d->n_windows) n = (size_t)d->n_windows;
    for (window w = {0}; next_window(r, &w);) {
        if (d->n_windows && r->out->n_windows == (size_t)d->n_windows) break;
        TERN_TRY(score(r, &w, err));
        double done = (double)++r->out->n_windows / (double)(n + 1);
        if (!tern_progress(d->on_progress, d->user, "perplexity", done < 1 ? done : 0.999))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    if (d->on_progress) d->on_progress(d->user, "perplexity", 1);
    return TERN_OK;
}

static tern_status check(const run *r, tern_error *err) {
    int context = (int)tern_session_n_context(r->session), size = r->out->window;
    bool llama = r->desc->convention == TERN_PERPLEXITY_LLAMA_CPP;
    if (size < 4 || size > context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a window of %d tokens: expected 4 to %d, the context's size", size,
                         context);
    if (llama && r->desc->stride && r->desc->stride != size)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a stride is of the convention of transformers; "
                         "llama.cpp's windows stand side by side");
    if (r->out->stride < 1 || r->out->stride > size)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a stride of %d tokens: expected 1 to %d, the window", r->out->stride,
                         size);
    size_t least = llama ? (size_t)size : 2;
    if (r->ids.n < least)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the text has %zu token%s: expected %zu or more",
                         r->ids.n, r->ids.n == 1 ? "" : "s", least);
    return TERN_OK;
}

static tern_status encode(run *r, const char *text, size_t n_bytes, tern_error *err) {
    const tern_tokenizer *t = r->session->model->tokenizer;
    tern_decoder d = {0};
    // Names of special tokens in the text are only text to llama.cpp.
    unsigned flags = r->desc->convention == TERN_PERPLEXITY_LLAMA_CPP
                         ? TERN_TOKENIZE_BOS
                         : TERN_TOKENIZE_BOS | TERN_TOKENIZE_SPECIAL;
    TERN_TRY(tern_tokenizer_encode(t, text, n_bytes, flags, &r->ids, err));
    r->ends = tern_alloc_array(TERN_MEM_MISC, r->ids.n + 1, sizeof *r->ends);
    if (!r->ends) return tern_fail_memory(err, r->ids.n * sizeof *r->ends);
    for (size_t i = 0; i < r->ids.n; i++) {
        tern_tokenizer_decode(t, &d, r->ids.ids[i], &r->text);
        r->ends[i] = r->text.len;
    }
    return r->text.failed ? tern_fail_memory(err, r->text.len) : TERN_OK;
}

static tern_status allocate(run *r, tern_error *err) {
    size_t n = (size_t)r->out->window;
    r->fed = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->fed);
    r->targets = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->targets);
    r->scores = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->scores);
    return r->fed && r->targets && r->scores ? TERN_OK
                                             : tern_fail_memory(err, n * sizeof *r->scores);
}

static void finish(const run *r) {
    tern_perplexity *p = r->out;
    double n = (double)p->n_scored, mean = p->nll / n;
    double variance = n > 1 ? (r->squares - n * mean * mean) / (n - 1) : 0;
    p->nll_per_token = mean;
    p->nll_error = sqrt((variance > 0 ? variance : 0) / n);
    p->perplexity = exp(mean);
    p->perplexity_error = p->perplexity * p->nll_error; // the error of exp(x)
    p->nll_per_word = p->scored_words ? p->nll / (double)p->scored_words : 0;
    p->bits_per_byte = p->scored_bytes ? p->nll / (double)p->scored_bytes / log(2) : 0;
}

tern_status tern_eval_perplexity(tern_session *session, const char *text, size_t n_bytes,
                                 const tern_perplexity_desc *desc, tern_perplexity *out,
                                 tern_error *err) {
    tern_clear(err);
    static const tern_perplexity_desc defaults = {0};
    TERN_NEED(session);
    TERN_NEED(text);
    TERN_NEED(out);
    if (!desc) desc = &defaults;
    run r = {.session = session, .desc = desc, .out = out};
    tern_status status = TERN_OK;
    bool llama = desc->convention == TERN_PERPLEXITY_LLAMA_CPP;
    int context = (int)tern_session_n_context(session);
    int usual = llama && context > 512 ? 512 : context;
    *out = (tern_perplexity){.window = desc->window ? desc->window : usual};
    out->stride = desc->stride ? desc->stride : llama ? out->window : out->window / 2;
    if (!session->model->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                         session->model->path);
    TERN_NEED_ENUM(desc->convention, TERN_PERPLEXITY_TRANSFORMERS);
    tern_session_call call;
    tern_session_enter(&call, session);
    TERN_TRY_GOTO(encode(&r, text, n_bytes, err));
    TERN_TRY_GOTO(check(&r, err));
    TERN_TRY_GOTO(allocate(&r, err));
    out->n_tokens = r.ids.n;
    TERN_TRY_GOTO(all_windows(&r, err));
    finish(&r);
fail:
    tern_session_leave(&call);
    tern_free(r.ids.ids);
    tern_free(r.ends);
    tern_free(r.fed);
    tern_free(r.targets);
    tern_free(r.scores);
    tern_strbuf_free(&r.text);
    return status;
}
