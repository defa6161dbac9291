// The windows of a text, and sums over the tokens that count in them: what perplexity and the
// comparison of two models have in common.
#ifndef TERN_TASKS_EVAL_WINDOWS_H
#define TERN_TASKS_EVAL_WINDOWS_H

#include "base/status.h"
#include "base/strbuf.h"
#include "session/session.h"
#include "tern_tools.h"

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
typedef struct tern_eval_windows {
    const tern_perplexity_desc *desc;
    int window, stride; // in tokens, chosen where the description leaves it
    tern_ids ids;       // of the whole text
    tern_strbuf text;   // their text...
    size_t *ends;       // ...and where in it each ends, [ids.n]
    int32_t bos;        // stands in place of each window's first token; -1: that token stays
    // The window: tokens [begin, end) of the text; [first_scored, end) count.
    size_t begin, end, first_scored, n_done;
    // What a session reads of it, and of each of these tokens the next one, -1 where that does not
    // count: [end - begin - 1], since the last token is only a target.
    int32_t *fed, *targets;
} tern_eval_windows;

// The text's tokens, with BOS, as the convention takes them; the caller frees ids->ids.
tern_status tern_eval_encode(const tern_session *session, tern_str text,
                             const tern_perplexity_desc *desc, tern_ids *ids, tern_error *err);
// The token in place of each window's first one; -1: that one stays.
int32_t tern_eval_bos(const tern_session *session, const tern_perplexity_desc *desc);
// n_context: the most tokens of a window. desc stays the caller's, and has to live as long. Close
// it after a failure, too.
tern_status tern_eval_windows_open(tern_eval_windows *w, const tern_session *session, tern_str text,
                                   size_t n_context, const tern_perplexity_desc *desc,
                                   tern_error *err);
// Fills in the next window, and counts it in `out`. False: there is none.
bool tern_eval_windows_next(tern_eval_windows *w, tern_perplexity *out);
tern_status tern_eval_windows_progress(const tern_eval_windows *w, const char *phase,
                                       tern_error *err); // after each window; fails if cancelled
void tern_eval_windows_close(tern_eval_windows *w);

// Adds up numbers for their mean and its standard error.
typedef struct tern_eval_sum {
    double sum, squares, n;
} tern_eval_sum;
void tern_eval_sum_add(tern_eval_sum *s, double x);
double tern_eval_sum_mean(const tern_eval_sum *s);
double tern_eval_sum_error(const tern_eval_sum *s); // the sample deviation over the root of n
// All of `out` that follows from the -ln p of its tokens.
void tern_eval_perplexity_of(tern_perplexity *out, const tern_eval_sum *nll);

#endif
