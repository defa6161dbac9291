// tern train: trains a model on shards of tokens; tern train plot: its log as an image.
#include "apps/cli/console/cli.h"
#include "apps/cli/make/train_report.h"
#include "tern_train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Stopping -----------------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;
static tern_cancel cancel;
static bool speaks = true; // the first process of a group

// A checkpoint may take its time, so the message does not wait for it. The second signal ends the
// process.
static bool on_interrupt(void) {
    static const char answer[] =
        "\ntern: stopping, writing a checkpoint; once more to stop at once\n";
    interrupted = 1;
    tern_cancel_request(&cancel);
    if (speaks) (void)!write(STDERR_FILENO, answer, sizeof answer - 1);
    return false;
}

// ---- The commands -------------------------------------------------------------------------------

static int plot(const command *self, int argc, char **argv) {
    const char *logs[16], *out = "loss.svg";
    int n, status;
    tern_error err = {0};
    const option options[] = {
        {'o', "out", OPTION_TEXT, &out, "FILE", "an image, .svg, or the numbers, .csv (loss.svg)"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, logs, 16, &n, &status)) return status;
    if (n == 0) return bad_usage("train plot: a log is needed (log.jsonl of a training)");
    return exit_status(tern_train_plot(logs, (size_t)n, out, &err), &err);
}

// Options whose targets in the desc have other types than the parser's.
typedef struct train_args {
    int recipe, schedule, packing, optimizer, n_layers, n_embd, n_heads, n_kv_heads, n_ff,
        n_context, seq_len;
    int batch_tokens, micro_tokens, n_steps, n_warmup, qat_warmup, log_every, valid_every,
        valid_tokens;
    int checkpoint_every, keep, patience, sample_every, sample_tokens, batch_pairs, valid_pairs,
        pooling, loss, teacher_top_k, teacher_tail;
    int32_t sizes[8];
    float weight_decay, clip, kd_ratio;
} train_args;

static void take_args(tern_train_desc *d, const train_args *a) {
    d->recipe = (tern_recipe)a->recipe;
    d->schedule = (tern_schedule)a->schedule;
    d->packing = (tern_packing)a->packing;
    d->optimizer = (tern_optimizer)a->optimizer;
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
    d->qat_warmup = a->qat_warmup;
    d->log_every = a->log_every;
    d->valid_every = a->valid_every;
    d->valid_tokens = a->valid_tokens;
    d->checkpoint_every = a->checkpoint_every;
    d->keep = a->keep;
    d->sample_every = a->sample_every;
    d->sample_tokens = a->sample_tokens;
    d->early_stopping_patience = a->patience;
    d->batch_pairs = a->batch_pairs;
    d->valid_pairs = a->valid_pairs;
    d->pooling = (tern_pooling)a->pooling;
    d->loss = (tern_train_loss)a->loss;
    // 0 on the command line: none; missing: the default
    d->weight_decay = isnan(a->weight_decay) ? 0 : a->weight_decay > 0 ? a->weight_decay : -1;
    d->clip = a->clip > 0 ? a->clip : -1;
    d->teacher_top_k = a->teacher_top_k;
    d->teacher_tail = a->teacher_tail;
    d->kd_ratio = a->kd_ratio > 0 ? a->kd_ratio : -1;
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

// "64,128,256": the sizes to which vectors may be cut.
static bool read_sizes(const char *list, train_args *a, tern_train_desc *d) {
    for (const char *at = list; *at;) {
        char *end;
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > 1 << 16 || d->n_sizes == 8) return false;
        a->sizes[d->n_sizes++] = (int32_t)size;
        if (*end && (*end != ',' || !end[1])) return false;
        at = end + (*end == ',');
    }
    d->sizes = a->sizes;
    return d->n_sizes > 0;
}

int cmd_train(const command *self, int argc, char **argv) {
    tern_train_desc d = {.seed = 1};
    train_args a = {.weight_decay = NAN, .clip = 1, .kd_ratio = 1};
    tern_error err = {0};
    const char *rest[1], *lora = NULL, *sizes = NULL;
    int n, status;
    bool plan = false, find_rate = false;
    const option options[] = {
        OPTIONS_GROUP("Data and results"),
        {0, "data", OPTION_TEXT, &d.data, "DIR", "shards and tokenizer of `tern data build`"},
        {'o', "out", OPTION_TEXT, &d.out, "DIR", "where checkpoints and log.jsonl go"},
        {0, "resume", OPTION_FLAG, &d.resume, NULL,
         "go on from the newest checkpoint in --out; -n MORE: to a greater length"},
        {0, "plan", OPTION_FLAG, &plan, NULL,
         "only say what the run would take: memory, and the time by a measured step"},
        {0, "find-rate", OPTION_FLAG, &find_rate, NULL,
         "only try rising learning rates for 100 steps, and say which one to begin with"},
        {0, "init", OPTION_TEXT, &d.init, "MODEL",
         "model to begin with: weights, shape and tokenizer"},
        {0, "assistant-only", OPTION_FLAG, &d.assistant_only, NULL,
         "of chats learn only what the assistant says"},
        OPTIONS_GROUP("Parts of --init"),
        {0, "freeze", OPTION_TEXT, &d.freeze, "LIST",
         "not trained: of q,k,v,o,gate,up,down,norm,router, or names: embed_tokens,layers.0-3,mlp"},
        {0, "layer-rate-decay", OPTION_NUMBER, &d.layer_rate_decay, "D",
         "layer l of n has the rate times D^(n - l) (1)", 0, 1},
        {0, "embedding-rate", OPTION_NUMBER, &d.embedding_rate, "R", "of table and head (--rate)",
         0, 10},
        OPTIONS_GROUP("Knowledge distillation"),
        {0, "qat", OPTION_NAME, &d.qat, "ptq1_0|pq2_0|q2_0|tq1_0|tq2_0|q1_0|q4_0|q8_0",
         "every step computes with matrices of this type, which checkpoints have"},
        {0, "qat-start", OPTION_TEXT, &d.qat_start, "FILE",
         "the same model in it, whose numbers the first step has (those --init is rounded to)"},
        {0, "qat-warmup", OPTION_COUNT, &a.qat_warmup, "N",
         "steps in which rounding sets in, from floats on (0)"},
        {0, "teacher", OPTION_TEXT, &d.teacher, "MODEL",
         "with the same vocabulary; the loss adds KL(teacher || student)"},
        {0, "teacher-cache", OPTION_TEXT, &d.teacher_cache, "FILE",
         "written once, before the first step; then read in place of --teacher"},
        {0, "teacher-top-k", OPTION_COUNT, &a.teacher_top_k, "K", "best tokens in it, of each (64)",
         1, 1 << 24},
        {0, "teacher-tail", OPTION_COUNT, &a.teacher_tail, "N",
         "and of its others, drawn by their probability (0): KL is on average that of all", 1,
         1 << 24},
        {0, "kd-ratio", OPTION_NUMBER, &a.kd_ratio, "W",
         "share of KL in the loss, the rest is cross entropy (1)", 0, 1},
        OPTIONS_GROUP("An adapter (LoRA) instead of a whole model"),
        {0, "lora", OPTION_TEXT, &lora, "RANK[,ALPHA]",
         "beside the frozen weights of --init; alpha: 2 RANK"},
        {0, "lora-targets", OPTION_TEXT, &d.lora_targets, "LIST",
         "some of q,k,v,o,gate,up,down, or modules: q_proj (all-linear)"},
        {0, "rslora", OPTION_FLAG, &d.rslora, NULL, "alpha / sqrt(RANK) is the scale; alpha: 16"},
        {0, "dora", OPTION_FLAG, &d.dora, NULL, "the lengths of the rows are trained, too (DoRA)"},
        {0, "peft", OPTION_FLAG, &d.peft, NULL, "also write it as a folder of PEFT, OUT/peft"},
        OPTIONS_GROUP("Preferences instead of text"),
        {0, "preferences", OPTION_TEXT, &d.preferences, "FILE",
         "lines {\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}, learnt from --init"},
        {0, "loss", OPTION_CHOICE, &a.loss, "auto|dpo|orpo|kto",
         "kto: lines {\"prompt\": ..., \"completion\": ..., \"label\": true} (dpo)"},
        {0, "beta", OPTION_NUMBER, &d.beta, "B", "how near --init it stays (0.1)", 0, 1000},
        {0, "label-smoothing", OPTION_NUMBER, &d.label_smoothing, "E",
         "share of pairs that may be the wrong way round (0)", 0, 0.49},
        OPTIONS_GROUP("An embedding model instead of a language model"),
        {0, "contrastive", OPTION_TEXT, &d.pairs, "PAIRS",
         "lines {\"query\": ..., \"positive\": ..., \"negatives\": [...]}"},
        {0, "held-out", OPTION_TEXT, &d.held_out_pairs, "PAIRS",
         "for validation: loss, recall; or preferences"},
        {0, "batch-pairs", OPTION_COUNT, &a.batch_pairs, "N",
         "pairs of a step (256; of preferences 16)", 2},
        {0, "valid-pairs", OPTION_COUNT, &a.valid_pairs, "N", "of those held out (1000)", 1},
        {0, "temperature", OPTION_NUMBER, &d.temperature, "T",
         "divides cosines (0.05); with --teacher the logits (1)"},
        {0, "pooling", OPTION_CHOICE, &a.pooling, "auto|mean|last|cls",
         "of rows to a vector (that of --init, else mean)"},
        {0, "matryoshka", OPTION_TEXT, &sizes, "N,N,...", "sizes to which vectors may be cut"},
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
        {0, "ff", OPTION_COUNT, &a.n_ff, "N", "width of the feed-forward layer", 1, 1 << 20},
        {0, "act", OPTION_NAME, &d.act, "silu|relu2|gelu|gelu_pytorch_tanh", "(the recipe's)"},
        {0, "separate-head", OPTION_FLAG, &d.separate_head, NULL, "head not tied to the table"},
        OPTIONS_GROUP("Course"),
        {'n', "steps", OPTION_COUNT, &a.n_steps, "N",
         "optimizer steps (1000; with --resume as many as before)"},
        {0, "batch-tokens", OPTION_COUNT, &a.batch_tokens, "N", "tokens of a step", 1},
        {0, "seq-len", OPTION_COUNT, &a.seq_len, "N", "tokens of a sequence", 1, 1 << 24},
        {0, "context", OPTION_COUNT, &a.n_context, "N", "that the model will state (--seq-len)", 1,
         1 << 24},
        {0, "micro-tokens", OPTION_COUNT, &a.micro_tokens, "N",
         "computed at once (4096, on a GPU 32768)", 1},
        {0, "gradient-checkpointing", OPTION_FLAG, &d.gradient_checkpointing, NULL,
         "compute activations inside layers again: less memory, the same bits"},
        {0, "schedule", OPTION_CHOICE, &a.schedule, "auto|two-stage|cosine|constant",
         "of the rate (ternary: two-stage, float, --init: cosine)"},
        {0, "optimizer", OPTION_CHOICE, &a.optimizer, "adamw|adamw8bit|muon",
         "moments of 8 bits; Muon for the matrices of layers (adamw)"},
        {0, "bf16-masters", OPTION_FLAG, &d.bf16_masters, NULL,
         "master weights of 16 bits, rounded at random after each step"},
        {0, "rate", OPTION_NUMBER, &d.rate, "R", "peak learning rate", 0, 10},
        {0, "rate-2", OPTION_NUMBER, &d.rate_2, "R", "of the second stage", 0, 10},
        {0, "warmup", OPTION_COUNT, &a.n_warmup, "N", "steps in which the rate rises"},
        {0, "weight-decay", OPTION_NUMBER, &a.weight_decay, "D",
         "of AdamW, 0: none (0.1; with --init 0)", 0, 10},
        {0, "clip", OPTION_NUMBER, &a.clip, "C", "norm of the gradient at most, 0: any (1)"},
        {0, "seed", OPTION_SEED, &d.seed, "S", "of first weights and order (1)"},
        {0, "packing", OPTION_CHOICE, &a.packing, "wrapped|bfd|none",
         "documents into sequences: all text, cut; whole ones; one for each (wrapped)"},
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
        {0, "tensorboard", OPTION_FLAG, &d.tensorboard, NULL,
         "also write the log as a file of TensorBoard's events, in --out"},
        {0, "sample-prompts", OPTION_TEXT, &d.sample_prompts, "FILE",
         "texts to continue while it learns, one a line; .jsonl: also chats"},
        {0, "sample-every", OPTION_COUNT, &a.sample_every, "N", "steps (--valid-every)", 1},
        {0, "sample-tokens", OPTION_COUNT, &a.sample_tokens, "N", "of each at most (64)", 1},
        {0, "checkpoint-every", OPTION_COUNT, &a.checkpoint_every, "N", "steps (500)", 1},
        {0, "keep", OPTION_COUNT, &a.keep, "N", "newest checkpoints (2)", 1},
        {0, "early-stopping-patience", OPTION_COUNT, &a.patience, "N",
         "end after N validations without a lower loss (never)", 1},
        {0, "no-best", OPTION_FLAG, &d.no_best, NULL,
         "do not keep the weights with the least validation loss as best.gguf"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, rest, 0, &n, &status)) return status;
    if (!d.out && !plan && !find_rate) return bad_usage("train: --out is needed");
    if (!d.data && !d.pairs && !d.preferences)
        return bad_usage("train: --data, --contrastive or --preferences is needed");
    if (d.preferences && !d.init)
        return bad_usage("train: --preferences needs --init, the model that learns them");
    if (!d.preferences && (a.loss || d.beta > 0 || d.label_smoothing > 0))
        return bad_usage("train: --loss, --beta and --label-smoothing go with --preferences");
    if (d.pairs && !d.data && !d.init)
        return bad_usage("train: --contrastive needs --init, or --data with a tokenizer");
    if (sizes && !read_sizes(sizes, &a, &d))
        return bad_usage("train: --matryoshka '%s': expected sizes, such as 64,128,256", sizes);
    if (!d.pairs && !d.preferences && (d.held_out_pairs || a.batch_pairs || a.valid_pairs))
        return bad_usage("train: --held-out, --batch-pairs and --valid-pairs go with --contrastive "
                         "or --preferences");
    if (!d.pairs && (a.pooling || sizes))
        return bad_usage("train: --pooling and --matryoshka go with --contrastive");
    bool taught = d.teacher || d.teacher_cache;
    if (!d.pairs && !taught && d.temperature > 0)
        return bad_usage("train: --temperature goes with --contrastive or --teacher");
    if (!taught && a.kd_ratio != 1) return bad_usage("train: --kd-ratio goes with --teacher");
    if (!d.teacher_cache && (a.teacher_top_k || a.teacher_tail))
        return bad_usage("train: --teacher-top-k and --teacher-tail go with --teacher-cache");
    if (d.pairs && a.packing) return bad_usage("train: --packing does not go with --contrastive");
    if (lora && !read_lora(lora, &d))
        return bad_usage("train: --lora '%s': expected RANK or RANK,ALPHA, such as 16,32", lora);
    if (lora && !d.init) return bad_usage("train: --lora needs --init, the model it is for");
    if (!lora && (d.lora_targets || d.rslora || d.dora || d.peft))
        return bad_usage("train: --lora-targets, --rslora, --dora and --peft go with --lora");
    take_args(&d, &a);
    train_reporter r = {
        .desc = &d, .interrupted = &interrupted, .is_terminal = isatty(STDERR_FILENO)};
    d.comm = cli_comm();
    d.webgpu = cli_webgpu();
    d.on_begin = train_header;
    d.on_event = train_event;
    d.on_step = train_step;
    d.user = &r;
    speaks = !d.comm || d.comm->rank == 0;
    tern_cancel_watch(&cancel);
    system_on_interrupt(on_interrupt, true);
    if (find_rate) return train_rates(&d);
    tern_status done = plan ? tern_train_plan(&d, &err) : tern_train(&d, &err);
    if (done != TERN_OK) train_clear_line(&r);
    return exit_status(done, &err);
}

const command train_jobs[] = {
    {"train plot", "LOG... [-o FILE]", "draw the losses of training logs", plot, NULL},
    {0},
};
