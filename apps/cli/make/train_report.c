// What a training says on the terminal: what it will do, lines of its log, how far it is.
#include "apps/cli/make/train_report.h"
#include "apps/cli/console/cli.h"

#include <math.h>

static double seconds_since(const struct timespec *then) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + 1e-9 * (double)(now.tv_nsec - then->tv_nsec);
}

// 8867123: "8.87 million".
static const char *amount(double n, char out[32]) {
    if (n >= 1e9)
        snprintf(out, 32, "%.3g billion", n * 1e-9);
    else if (n >= 1e6)
        snprintf(out, 32, "%.3g million", n * 1e-6);
    else if (n >= 1e4)
        snprintf(out, 32, "%.3g thousand", n * 1e-3);
    else
        snprintf(out, 32, "%.0f", n);
    return out;
}

static const char *duration(double seconds, char out[32]) {
    long s = seconds < 1e9 ? (long)seconds : 999999999;
    if (s >= 3600)
        snprintf(out, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 32, "%ld:%02ld", s / 60, s % 60);
    return out;
}

static void print_start(const tern_train_info *i, const char *folder) {
    if (i->step > 0) fprintf(stderr, "resumes %s after step %lld", folder, (long long)i->step);
    if (i->n_damaged)
        fprintf(stderr, ", %lld newer checkpoint%s damaged", (long long)i->n_damaged,
                i->n_damaged == 1 ? " is" : "s are");
    if (i->n_dropped_lines)
        fprintf(stderr, "%s%lld line%s of the log after it will be written again",
                i->step ? ", " : "", (long long)i->n_dropped_lines,
                i->n_dropped_lines == 1 ? "" : "s");
    if (i->step > 0 || i->n_dropped_lines) fputc('\n', stderr);
    if (i->step == i->n_steps)
        fprintf(stderr, "all %lld step%s done; -n MORE makes the run longer\n",
                (long long)i->n_steps, i->n_steps == 1 ? " is" : "s are");
}

static void print_tokens(const tern_train_info *i) {
    char a[32], b[32];
    fprintf(stderr, "data    %s tokens, ", amount((double)i->n_tokens, a));
    if (i->n_valid_tokens)
        fprintf(stderr, "%s held out\n", amount((double)i->n_valid_tokens, b));
    else
        fprintf(stderr, "none held out: the loss is that of text it learns\n");
    if (i->share < 1) fprintf(stderr, "scored  %.1f%% of the tokens", 100 * i->share);
    if (i->share < 1 && i->n_valid_tokens && i->valid_share == 0)
        fprintf(stderr, "; none of those held out, so there is no loss of these");
    if (i->share < 1) fputc('\n', stderr);
    if (i->n_padding || i->n_truncated)
        fprintf(stderr, "windows %llu: %.1f%% padding, %llu token%s of long documents left out\n",
                (unsigned long long)i->n_windows,
                100 * (double)i->n_padding / ((double)i->n_windows * i->seq_len),
                (unsigned long long)i->n_truncated, many(i->n_truncated));
    fprintf(stderr, "plan    %lld step%s of %d tokens (sequences of %d): %s tokens, %.3g epochs\n",
            (long long)i->n_steps, many((uint64_t)i->n_steps), i->batch_tokens, i->seq_len,
            amount((double)i->n_steps * i->batch_tokens, a), i->n_epochs);
}

static void print_pairs(const tern_train_info *i) {
    char a[32], b[32];
    fprintf(stderr, "data    %s pairs of %s tokens, ", amount((double)i->n_pairs, a),
            amount((double)i->n_tokens, b));
    if (i->n_valid_pairs)
        fprintf(stderr, "%llu held out", (unsigned long long)i->n_valid_pairs);
    else
        fprintf(stderr, "none held out: how well it finds others is not known");
    if (i->n_cut_texts)
        fprintf(stderr, "; %s texts are cut to %d tokens", amount((double)i->n_cut_texts, a),
                i->seq_len);
    fprintf(stderr, "\nplan    %lld step%s of %d pairs: %s pairs, %.3g epochs\n",
            (long long)i->n_steps, many((uint64_t)i->n_steps), i->batch_pairs,
            amount((double)i->n_steps * i->batch_pairs, a), i->n_epochs);
}

// "1234 tokens/s", or pairs.
static const char *speed(const tern_train_event *e, char out[48]) {
    bool pairs = !isnan(e->pairs_per_second);
    if (pairs)
        snprintf(out, 48, "%.0f pairs/s", e->pairs_per_second);
    else
        snprintf(out, 48, "%.0f tokens/s", e->tokens_per_second);
    return out;
}

static void print_memory(const tern_train_memory *m) {
    char a[24], b[24];
    if (m->device) fprintf(stderr, "memory  %s of the GPU, ", size_text(m->device, a));
    fprintf(stderr, "%s%s%s", m->device ? "" : "memory  ", size_text(m->host, a),
            m->device ? " of the host" : "");
    if (m->host_available) fprintf(stderr, " of %s", size_text(m->host_available + m->process, b));
    fprintf(stderr, ": weights %s", size_text(m->weights, a));
    if (m->decoded) fprintf(stderr, " (frozen floats %s)", size_text(m->decoded, a));
    fputs(", ", stderr);
    fprintf(stderr, "gradients %s, ", size_text(m->gradients, a));
    fprintf(stderr, "optimizer %s, ", size_text(m->optimizer, a));
    fprintf(stderr, "activations %s", size_text(m->activations, a));
    if (m->logits) fprintf(stderr, " (logits %s)", size_text(m->logits, a));
    fputc('\n', stderr);
}

static void print_cache(train_reporter *r, uint64_t bytes, double share) {
    char a[24];
    if (r->told_cache) return;
    r->told_cache = true;
    fprintf(stderr, "cache   %s: %s on disk", r->desc->teacher_cache, size_text(bytes, a));
    if (share < 1) fprintf(stderr, ", %.0f%% of it written", 100 * share);
    fputc('\n', stderr);
}

void train_header(void *user, const tern_train_info *i) {
    static const char *const recipes[] = {"bitnet", "paper", "llama"};
    train_reporter *r = user;
    char a[32], b[32];
    bool adapter = r->desc->lora_rank > 0, fine_tuned = r->desc->init != NULL;
    bool is_part = i->n_params < i->n_all_params;
    fprintf(stderr, "model   %s, %d layer%s of %d: %s parameters",
            adapter      ? "an adapter"
            : fine_tuned ? "that of --init"
                         : recipes[r->desc->recipe],
            i->n_layers, i->n_layers == 1 ? "" : "s", i->n_embd, amount((double)i->n_params, a));
    if (is_part) fprintf(stderr, " of %s", amount((double)i->n_all_params, b));
    if (i->n_ternary)
        fprintf(stderr, r->desc->qat ? ", %s rounded to %s" : ", %s ternary",
                amount((double)i->n_ternary, b), r->desc->qat);
    fputc('\n', stderr);
    if (i->n_new_tokens)
        fprintf(stderr,
                "tokens  %d new, from %d to %d: they begin as the means of what they were\n",
                i->n_new_tokens, i->first_new_token, i->first_new_token + i->n_new_tokens - 1);
    if (r->desc->pairs || r->desc->preferences)
        print_pairs(i);
    else
        print_tokens(i);
    print_memory(&i->memory);
    if (i->start_bytes)
        fprintf(stderr, "start   before that, %s beside the model\n", size_text(i->start_bytes, a));
    if (i->cache_bytes) print_cache(r, i->cache_bytes, i->cache_share);
    fprintf(stderr, "device  %s\n", i->device);
    if (isfinite(i->seconds))
        fprintf(stderr, "time    about %s, as measured with %d tokens\n", duration(i->seconds, a),
                (int)i->measured_tokens);
    print_start(i, r->desc->out);
    clock_gettime(CLOCK_MONOTONIC, &r->begun);
}

// Printed once, after a few seconds.
static void print_time(train_reporter *r, const tern_train_event *e) {
    char a[32], b[48];
    if (r->told_time || !isfinite(e->seconds_left) || e->step == e->n_steps) return;
    r->told_time = true;
    int64_t n = e->n_steps - e->step;
    fprintf(stderr, "time    about %s for the remaining %lld step%s, at %s\n",
            duration(e->seconds_left, a), (long long)n, many((uint64_t)n), speed(e, b));
}

void train_clear_line(const train_reporter *r) {
    if (r->is_terminal) fputs("\r\033[K", stderr);
}

bool train_step(void *user, const tern_train_event *e) {
    train_reporter *r = user;
    char a[32], b[48];
    if (*r->interrupted) return false;
    if (seconds_since(&r->begun) > 3) {
        if (!r->told_time) train_clear_line(r);
        print_time(r, e);
    }
    if (!r->is_terminal || !isfinite(e->seconds_left) || seconds_since(&r->shown) < 0.2)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &r->shown);
    train_clear_line(r);
    fprintf(stderr, "step %lld/%lld, %s, %s left", (long long)e->step, (long long)e->n_steps,
            speed(e, b), duration(e->seconds_left, a));
    fflush(stderr);
    return true;
}

// Where the best weights are.
static const char *kept(const tern_train_desc *d, int64_t step) {
    return step == 0 ? ", before training" : d->no_best ? "" : " (best.gguf)";
}

static void print_end(const tern_train_desc *d, const tern_train_event *e) {
    fprintf(stderr, "ends early: %.4f of step %lld was not reached again by %d validations\n",
            e->best_valid_loss, (long long)e->best_step, (int)d->early_stopping_patience);
}

static void print_sample(const tern_train_event *e) {
    fprintf(stderr, "step %lld/%lld, sample: ", (long long)e->step, (long long)e->n_steps);
    put_plain(stderr, e->prompt);
    fputs(" -> ", stderr);
    put_plain(stderr, e->sample);
    fputc('\n', stderr);
}

static void print_teaching(const tern_train_event *e) {
    if (isnan(e->kl)) return;
    fprintf(stderr, ", cross entropy %.4f, KL %.4f, top-1 agreement %.1f%%", e->cross_entropy,
            e->kl, 100 * e->top1_agreement);
}

// On a terminal how far it is.
static void print_writing(train_reporter *r, const tern_train_event *e) {
    print_cache(r, e->cache_bytes, e->cache_share);
    if (r->is_terminal) fprintf(stderr, "%.1f%% of it written", 100 * e->cache_share);
}

// One line that is overwritten on a terminal; validation and checkpoints stay.
bool train_event(void *user, const tern_train_event *e) {
    train_reporter *r = user;
    char a[32], b[48];
    train_clear_line(r);
    if (e->cache_bytes) {
        print_writing(r, e);
    } else if (e->sample) {
        print_sample(e);
    } else if (e->checkpoint) {
        fprintf(stderr, "step %lld/%lld, wrote %s/%s\n", (long long)e->step, (long long)e->n_steps,
                r->desc->out, e->checkpoint);
    } else if (!isnan(e->valid_loss)) {
        fprintf(stderr, "step %lld/%lld, validation loss %.4f", (long long)e->step,
                (long long)e->n_steps, e->valid_loss);
        if (!isnan(e->recall_1))
            fprintf(stderr, ", recall@1 %.1f%%, @10 %.1f%%", 100 * e->recall_1, 100 * e->recall_10);
        if (!isnan(e->reward_margin))
            fprintf(stderr, ", rewards %.3f apart, %.1f%% right", e->reward_margin,
                    100 * e->reward_accuracy);
        print_teaching(e);
        if (!isnan(e->sign_flips))
            fprintf(stderr, ", %.3f%% of the signs and %.2f%% of the zeros are others",
                    100 * e->sign_flips, 100 * e->zero_changes);
        if (e->best_step < e->step)
            fprintf(stderr, "; it was %.4f at step %lld%s", e->best_valid_loss,
                    (long long)e->best_step, kept(r->desc, e->best_step));
        fputc('\n', stderr);
        if (e->ends_early) print_end(r->desc, e);
    } else if (e->ends_early) {
        print_end(r->desc, e);
    } else {
        print_time(r, e);
        fprintf(stderr, "step %lld/%lld, loss %.4f, rate %.2e, gradient %.2f, %s",
                (long long)e->step, (long long)e->n_steps, e->loss, e->rate, e->grad_norm,
                speed(e, b));
        print_teaching(e);
        fprintf(stderr, ", %s left%s", duration(isfinite(e->seconds_left) ? e->seconds_left : 0, a),
                r->is_terminal ? "" : "\n");
        clock_gettime(CLOCK_MONOTONIC, &r->shown); // this line stays for a moment
    }
    fflush(stderr);
    return !*r->interrupted;
}

// ---- Rates -------------------------------------------------------------------------------------

int train_rates(const tern_train_desc *d) {
    tern_train_rates r;
    tern_error err;
    tern_status status = tern_train_find_rate(d, &r, &err);
    if (status != TERN_OK) return exit_status(status, &err);
    printf("%-10s  %-8s  %s\n", "rate", "loss", "smoothed");
    for (size_t i = 0; i < r.n; i++)
        printf("%-10.2e  %-8.4f  %.4f\n", r.tried[i].rate, r.tried[i].loss, r.tried[i].smoothed);
    if (isnan(r.rate)) return fail("the loss did not fall with any of these rates");
    printf("begin with --rate %.1e\n", r.rate);
    return EXIT_OK;
}
