// tern train: from shards of tokens to a model; tern train plot: its log as a picture.
#include "cli.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void print_time(double seconds) {
    long s = isfinite(seconds) ? (long)seconds : 0;
    if (s >= 3600)
        fprintf(stderr, ", %ld:%02ld:%02ld left", s / 3600, s / 60 % 60, s % 60);
    else
        fprintf(stderr, ", %ld:%02ld left", s / 60, s % 60);
}

// One line that is written over on a terminal; validation and checkpoints stay.
static bool print_event(void *user, const tern_train_event *e) {
    (void)user;
    bool terminal = isatty(STDERR_FILENO);
    if (terminal) fputs("\r\033[K", stderr);
    fprintf(stderr, "step %lld/%lld", (long long)e->step, (long long)e->n_steps);
    if (e->checkpoint) {
        fprintf(stderr, ", wrote %s\n", e->checkpoint);
    } else if (!isnan(e->valid_loss)) {
        fprintf(stderr, ", validation loss %.4f\n", e->valid_loss);
    } else {
        fprintf(stderr, ", loss %.4f, rate %.2e, gradient %.2f, %.0f tokens/s", e->loss, e->rate,
                e->grad_norm, e->tokens_per_second);
        print_time(e->seconds_left);
        if (!terminal) fputc('\n', stderr);
    }
    fflush(stderr);
    return !interrupted;
}

static int plot(const command *self, int argc, char **argv) {
    const char *logs[16], *out = "loss.svg";
    int n, status;
    tern_error err = {0};
    const option options[] = {
        {'o', "out", OPTION_TEXT, &out, "FILE", "the picture (loss.svg)"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, logs, 16, &n, &status)) return status;
    if (n == 0) return bad_usage("train plot: a log is needed (log.jsonl of a training)");
    return exit_status(tern_train_plot(logs, (size_t)n, out, &err), &err);
}

// Options whose targets in the desc have other types than the parser's.
typedef struct train_args {
    int recipe, schedule, n_layers, n_embd, n_heads, n_kv_heads, n_ff, n_context, seq_len;
    int batch_tokens, micro_tokens, n_steps, n_warmup, log_every, valid_every, valid_tokens;
    int checkpoint_every, keep;
    float weight_decay, clip;
} train_args;

static void take_args(tern_train_desc *d, const train_args *a) {
    d->recipe = (tern_recipe)a->recipe;
    d->schedule = (tern_schedule)a->schedule;
    d->n_layers = a->n_layers;
    d->n_embd = a->n_embd;
    d->n_heads = a->n_heads;
    d->n_kv_heads = a->n_kv_heads;
    d->n_ff = a->n_ff;
    d->n_context = a->n_context;
    d->seq_len = a->seq_len;
    d->batch_tokens = a->batch_tokens;
    d->micro_tokens = a->micro_tokens;
    d->n_steps = a->n_steps;
    d->n_warmup = a->n_warmup;
    d->log_every = a->log_every;
    d->valid_every = a->valid_every;
    d->valid_tokens = a->valid_tokens;
    d->checkpoint_every = a->checkpoint_every;
    d->keep = a->keep;
    // 0 on the command line: none; not there: the default
    d->weight_decay = isnan(a->weight_decay) ? 0 : a->weight_decay > 0 ? a->weight_decay : -1;
    d->clip = a->clip > 0 ? a->clip : -1;
}

// "RANK" or "RANK,ALPHA".
static bool read_lora(const char *value, tern_train_desc *d) {
    char *end;
    long rank = strtol(value, &end, 10);
    if (end == value || rank < 1 || rank > 4096) return false;
    d->lora_rank = (int32_t)rank;
    if (*end == 0) return true;
    const char *alpha = end + 1;
    d->lora_alpha = strtof(alpha, &end);
    return alpha[-1] == ',' && end != alpha && *end == 0 && d->lora_alpha > 0 &&
           isfinite(d->lora_alpha);
}

int cmd_train(const command *self, int argc, char **argv) {
    tern_train_desc d = {.seed = 1};
    train_args a = {.weight_decay = NAN, .clip = 1};
    tern_error err = {0};
    const char *rest[1], *lora = NULL;
    int n, status;
    const option options[] = {
        OPTIONS_GROUP("Data and results"),
        {0, "data", OPTION_TEXT, &d.data, "DIR", "shards and tokenizer of `tern data build`"},
        {'o', "out", OPTION_TEXT, &d.out, "DIR", "where checkpoints and log.jsonl go"},
        {0, "resume", OPTION_FLAG, &d.resume, NULL, "go on from the newest checkpoint in --out"},
        {0, "init", OPTION_TEXT, &d.init, "MODEL", "first weights from this model"},
        {0, "assistant-only", OPTION_FLAG, &d.assistant_only, NULL,
         "of chats learn only what the assistant says"},
        OPTIONS_GROUP("An adapter (LoRA) instead of a whole model"),
        {0, "lora", OPTION_TEXT, &lora, "RANK[,ALPHA]",
         "beside the frozen weights of --init; alpha: 2 RANK"},
        {0, "lora-targets", OPTION_TEXT, &d.lora_targets, "LIST",
         "some of q,k,v,o,gate,up,down (all)"},
        OPTIONS_GROUP("Model"),
        {0, "preset", OPTION_NAME, &d.preset, "tiny|nano|micro|small|medium",
         "the shape, see docs/training.md (nano)"},
        {0, "recipe", OPTION_CHOICE, &a.recipe, "bitnet|paper|llama",
         "2B-4T's, arXiv:2402.17764's, or float weights (bitnet)"},
        {0, "layers", OPTION_COUNT, &a.n_layers, "N", "instead of the preset's; so are these:", 1,
         1024},
        {0, "embd", OPTION_COUNT, &a.n_embd, "N", "dimensions", 1, 1 << 16},
        {0, "heads", OPTION_COUNT, &a.n_heads, "N", "attention heads", 1, 1 << 16},
        {0, "kv-heads", OPTION_COUNT, &a.n_kv_heads, "N", "key and value heads", 1, 1 << 16},
        {0, "ff", OPTION_COUNT, &a.n_ff, "N", "width of the feed-forward layer", 1,
         1 << 20},
        {0, "act", OPTION_TEXT, &d.act, "NAME", "silu, relu2 or gelu (the recipe's)"},
        {0, "separate-head", OPTION_FLAG, &d.separate_head, NULL, "head not tied to the table"},
        OPTIONS_GROUP("Course"),
        {'n', "steps", OPTION_COUNT, &a.n_steps, "N", "optimizer steps (1000)"},
        {0, "batch-tokens", OPTION_COUNT, &a.batch_tokens, "N", "tokens of a step", 1},
        {0, "seq-len", OPTION_COUNT, &a.seq_len, "N", "tokens of a sequence", 1, 1 << 24},
        {0, "context", OPTION_COUNT, &a.n_context, "N", "that the model will state (--seq-len)", 1,
         1 << 24},
        {0, "micro-tokens", OPTION_COUNT, &a.micro_tokens, "N",
         "computed at once (4096, on a GPU 32768)", 1},
        {0, "schedule", OPTION_CHOICE, &a.schedule, "auto|two-stage|cosine|constant",
         "of the rate (ternary: two-stage, float: cosine)"},
        {0, "rate", OPTION_NUMBER, &d.rate, "R", "peak learning rate", 0, 10},
        {0, "rate-2", OPTION_NUMBER, &d.rate_2, "R", "of the second stage", 0, 10},
        {0, "warmup", OPTION_COUNT, &a.n_warmup, "N", "steps in which the rate rises"},
        {0, "weight-decay", OPTION_NUMBER, &a.weight_decay, "D",
         "of AdamW, 0: none (0.1; adapters: 0)", 0, 10},
        {0, "clip", OPTION_NUMBER, &a.clip, "C", "norm of the gradient at most, 0: any (1)"},
        {0, "seed", OPTION_SEED, &d.seed, "S", "of first weights and order (1)"},
        {0, "in-order", OPTION_FLAG, &d.in_order, NULL, "take the text in its order, not shuffled"},
        OPTIONS_GROUP("Machine and reports"),
        {0, "device", OPTION_NAME, &d.device, "cpu|webgpu", "where it runs (cpu)"},
        {'t', "threads", OPTION_COUNT, &d.n_threads, "N", "threads, 0: one for each core (0)", 0,
         1024},
        FEATURES_OPTION(d.cpu_features),
        {0, "bf16", OPTION_FLAG, &d.bf16, NULL,
         "round the factors of products to bf16, where the processor is fast at it"},
        {0, "log-every", OPTION_COUNT, &a.log_every, "N", "steps (10)", 1},
        {0, "valid-every", OPTION_COUNT, &a.valid_every, "N", "steps (250)", 1},
        {0, "valid-tokens", OPTION_COUNT, &a.valid_tokens, "N", "of held-out text (65536)", 1},
        {0, "checkpoint-every", OPTION_COUNT, &a.checkpoint_every, "N", "steps (500)", 1},
        {0, "keep", OPTION_COUNT, &a.keep, "N", "newest checkpoints (2)", 1},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, rest, 0, &n, &status)) return status;
    if (!d.data || !d.out) return bad_usage("train: --data and --out are needed");
    if (lora && !read_lora(lora, &d))
        return bad_usage("train: --lora '%s': expected RANK or RANK,ALPHA, such as 16,32", lora);
    if (lora && !d.init) return bad_usage("train: --lora needs --init, the model it is for");
    if (!lora && d.lora_targets) return bad_usage("train: --lora-targets goes with --lora");
    take_args(&d, &a);
    d.comm = cli_comm();
    d.on_event = print_event;
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    return exit_status(tern_train(&d, &err), &err);
}

const command train_jobs[] = {
    {"train plot", "LOG... [-o FILE]", "draw the losses of training logs", plot, NULL},
    {0},
};
