// The options that several commands share, as rows of their tables (cli.h: option).
// MODEL_OPTIONS(m) and the like go into an option table, and set the members of the given struct.
#ifndef TERN_CLI_OPTIONS_H
#define TERN_CLI_OPTIONS_H
// clang-format takes a table row in a macro for a statement.
// clang-format off

#define OPTIONS_END {0}
#define OPTIONS_GROUP(title) {.kind = OPTION_GROUP, .help = title}
#define MODEL_OPTIONS(m)                                                                           \
    MODEL_OPTIONS_BEGIN(m),                                                                        \
    {'t', "threads", OPTION_COUNT, &(m).n_threads, "N",                                            \
     "threads, 0: one for each core (0)", 0, 1024},                                                \
    MODEL_OPTIONS_END(m)
#define MODEL_OPTIONS_BEGIN(m) /* without the threads, of which tern bench takes several */        \
    OPTIONS_GROUP("Model"),                                                                        \
        {'m',          "model", OPTION_TEXT,                                                       \
         &(m).path,    "MODEL", "a .gguf file, a Hugging Face folder, or a name (`tern list`)",    \
         .position = 1},                                                                           \
        HUB_OPTIONS, MODELS_DIR_OPTION((m).folder), DEVICE_OPTION((m).device)
#define MODELS_DIR_OPTION(target)                                                                  \
    {0, "models-dir", OPTION_TEXT, &(target), "DIR", "where models with names are (TERN_MODELS)"}
// Beside an option "model".
#define HUB_OPTIONS                                                                                \
    {0,                                                                                            \
     "hf-repo",                                                                                    \
     OPTION_HUB,                                                                                   \
     NULL,                                                                                         \
     "OWNER/NAME[:FILE]",                                                                          \
     "a model of Hugging Face, by file or type; it is downloaded if it is not here",               \
     .letters = "hf"},                                                                             \
    {                                                                                              \
        'y', "yes", OPTION_FLAG, &takes_downloads, NULL,                                           \
            "download a model that is not here without asking"                                     \
    }
#define DEVICE_OPTION(target)                                                                      \
    {0, "device", OPTION_NAME, &(target), "cpu|webgpu|auto",                                       \
     "where it runs (TERN_DEVICE; run, chat, serve, mcp, ask, agent: auto; others: cpu)"}
#define FEATURES_OPTION(target)                                                                    \
    {0, "cpu-features", OPTION_NAME, &(target),                                                    \
     "scalar|avx2|avxvnni|avx512|amx|neon|dotprod|i8mm",                                           \
     "use at most these instructions"}
#define MODEL_OPTIONS_END(m)                                                                       \
    {'b', "batch", OPTION_COUNT, &(m).n_batch, "N",                                                \
     "prompt tokens computed at once (512, with matrix units 2048)", 1, 65536},                    \
    {0, "ternary", OPTION_CHOICE, &(m).ternary, "auto|2bit|1.6bit",                                \
     "how ternary weights lie in memory"},                                                         \
    {0, "precise", OPTION_FLAG, &(m).precise, NULL,                                                \
     "float activations where weights have a scale for each group"},                               \
    {0, "matmul-precision", OPTION_CHOICE, &(m).matmul_precision, "exact|half",                    \
     "a GPU's prompts with such weights; half: 1.3 to 1.9 times as fast"},                         \
    {0, "head", OPTION_CHOICE, &(m).head, "auto|file|exact|q8_0|q6_k|q4_0",                        \
     "the output head; the last three change the logits"},                                         \
    LORA_OPTION((m).loras),                                                                        \
    {0, "mmproj", OPTION_TEXT, &(m).mmproj, "FILE|none",                                           \
     "the part of a GGUF that sees (mmproj*.gguf beside it)"},                                     \
    FEATURES_OPTION((m).cpu_features),                                                             \
    {0, "verbose", OPTION_FLAG, &(m).verbose, NULL, "say more on standard error"}
#define LORA_OPTION(list)                                                                          \
    {0, "lora", OPTION_TEXTS, &(list), "FILE[=SCALE]",                                             \
     "a LoRA adapter: GGUF, or a folder of PEFT, 0: none of it; may be repeated"}
#define TEMPLATE_OPTION(m)                                                                         \
    {0, "chat-template", OPTION_TEXT, &(m).template_file, "FILE",                                  \
     "a Jinja template instead of the model's own"},                                               \
    {0, "thinking", OPTION_CHOICE, &(m).thinking, "auto|on|off",                                   \
     "whether models that can think before they answer do so"}
#define PROFILE_OPTION(s)                                                                          \
    {0, "profile", OPTION_FLAG, &(s).profile, NULL, "time each kernel, and print a table"}
#define SESSION_OPTIONS(s)                                                                         \
    OPTIONS_GROUP("Context"),                                                                      \
    {'c', "context", OPTION_COUNT, &(s).n_context, "N",                                            \
     "tokens of context, 0: the model's, at most 8192 (0)", 0, 1 << 24},                           \
    {0, "kv-type", OPTION_CHOICE, &(s).kv_type, "auto|f32|f16|q8_0|q4_0",                          \
     "keys and values"},                                                                           \
    {0, "shift-context", OPTION_FLAG, &(s).shift, NULL,                                            \
     "when the context is full, drop its oldest half and go on"},                                  \
    {0, "keep", OPTION_COUNT, &(s).n_keep, "N", "first tokens that are never dropped (4)", 0,      \
     1 << 24}
// Options that chat's /set has, too.
#define SAMPLING_VALUES(s)                                                                         \
    {'n', "n-predict", OPTION_COUNT, &(s).n_max, "N",                                              \
     "tokens at most, 0: until the model ends (0)", 0, 1 << 24},                                   \
    SAMPLER_VALUES(s)
// How a token is chosen.
#define SAMPLER_VALUES(s)                                                                          \
    {0, "temp", OPTION_NUMBER, &(s).sampling.temperature, "T", "temperature, 0: greedy (0.8)", 0,  \
     100},                                                                                         \
    {0, "top-k", OPTION_COUNT, &(s).top_k, "K", "the K likeliest tokens, 0: all (40)", 0,          \
     1 << 24},                                                                                     \
    {0, "top-p", OPTION_NUMBER, &(s).sampling.top_p, "P",                                          \
     "the likeliest that reach P, 1: all, 0: one (0.95)", 0, 1},                                   \
    {0, "min-p", OPTION_NUMBER, &(s).sampling.min_p, "P", "at least P of the likeliest (0.05)", 0, \
     1},                                                                                           \
    {0, "repeat-penalty", OPTION_NUMBER, &(s).sampling.repeat_penalty, "R", "1: none (1)", 0, 10}, \
    {0, "frequency-penalty", OPTION_NUMBER, &(s).sampling.frequency_penalty, "F",                  \
     "for each time that a token was there (0)", 0, 10},                                           \
    {0, "presence-penalty", OPTION_NUMBER, &(s).sampling.presence_penalty, "F",                    \
     "for tokens that were there (0)", 0, 10},                                                     \
    {0, "penalty-window", OPTION_COUNT, &(s).window, "N", "last tokens that they see (64)", 1,     \
     1 << 24},                                                                                     \
    {0, "seed", OPTION_SEED, &(s).sampling.seed, "S", "0: another one each time (0)"}
// Further samplers; chat's /set has these, too.
#define FURTHER_SAMPLERS(s)                                                                        \
    {0, "top-n-sigma", OPTION_NUMBER, &(s).sampling.top_n_sigma, "N",                              \
     "logits at most N standard deviations below the greatest, 0: all (0)", 0, 1000},              \
    {0, "typical-p", OPTION_NUMBER, &(s).sampling.typical_p, "P",                                  \
     "the most typical that exceed P, 0 or 1: all (0)", 0, 1},                                     \
    {0, "xtc-probability", OPTION_NUMBER, &(s).sampling.xtc_probability, "P",                      \
     "now and then none but the least of the likely ones (0)", 0, 1},                              \
    {0, "xtc-threshold", OPTION_NUMBER, &(s).sampling.xtc_threshold, "P",                          \
     "which are those of at least P (0.1)", 0, 1},                                                 \
    {0, "dynatemp-range", OPTION_NUMBER, &(s).sampling.dynatemp_range, "R",                        \
     "temperature goes up and down by R with the entropy (0)", 0, 100},                            \
    {0, "dynatemp-exponent", OPTION_NUMBER, &(s).sampling.dynatemp_exponent, "E", "(1)", 0, 100},  \
    {0, "dry-multiplier", OPTION_NUMBER, &(s).sampling.dry_multiplier, "M",                        \
     "penalty of what continues a repetition (0)", 0, 1000},                                       \
    {0, "dry-base", OPTION_NUMBER, &(s).sampling.dry_base, "B",                                    \
     "times B for each more token of it (1.75)", 1, 1000},                                         \
    {0, "dry-allowed-length", OPTION_COUNT, &(s).sampling.dry_allowed_length, "N",                 \
     "shorter repetitions cost nothing (2)", 0, 1 << 24},                                          \
    {0, "dry-penalty-last-n", OPTION_COUNT, &(s).sampling.dry_penalty_last_n, "N",                 \
     "among the last N tokens (all)", 0, 1 << 24},                                                 \
    {0, "mirostat", OPTION_COUNT, &(s).sampling.mirostat, "V",                                     \
     "1 or 2: in place of all but temperature (0)", 0, 2},                                         \
    {0, "mirostat-tau", OPTION_NUMBER, &(s).sampling.mirostat_tau, "T",                            \
     "the surprise it aims at, in bits (5)", 0, 1000},                                             \
    {0, "mirostat-eta", OPTION_NUMBER, &(s).sampling.mirostat_eta, "E", "how fast (0.1)", 0, 1000}
#define SAMPLING_OPTIONS(s)                                                                        \
    OPTIONS_GROUP("Generation (defaults: the model's own, else those in brackets)"),               \
    SAMPLING_VALUES(s),                                                                            \
    {0, "stop", OPTION_TEXTS, &(s).stops, "TEXT", "ends the answer; may be repeated"},             \
    {0, "ignore-eos", OPTION_FLAG, &(s).ignore_end, NULL, "go on after end tokens"},               \
    {0, "min-tokens", OPTION_COUNT, &(s).min_tokens, "N", "no end before N tokens (0)", 0,         \
     1 << 24},                                                                                     \
    {0, "stop-token-ids", OPTION_COUNTS, &(s).stop_ids, "ID,...", "tokens that end the answer",    \
     0, INT32_MAX},                                                                                \
    {0, "allowed-token-ids", OPTION_COUNTS, &(s).allowed_ids, "ID,...", "no others are chosen",    \
     0, INT32_MAX},                                                                                \
    {0, "bad-words", OPTION_TEXTS, &(s).bad_words, "TEXT", "is not written; may be repeated"},     \
    OPTIONS_GROUP("Further samplers (0 or left out: off; docs/cli.md)"),                           \
    FURTHER_SAMPLERS(s),                                                                           \
    {0, "dry-sequence-breakers", OPTION_TEXTS, &(s).breakers, "TEXT",                              \
     "no repetition goes beyond it; may be repeated (\\n : \" *)"},                                \
    {0, "samplers", OPTION_TEXT, &(s).samplers, "LETTERS",                                         \
     "which act, in their order; -: none (" TERN_SAMPLERS ")"}
#define GRAMMAR_OPTIONS(g)                                                                         \
    OPTIONS_GROUP("What the answer may be (docs/grammar.md)"),                                     \
    {0, "schema", OPTION_TEXT, &(g).schema, "FILE",                                                \
     "JSON that satisfies the JSON Schema in FILE, or that is given here"},                        \
    {0, "compact", OPTION_FLAG, &(g).compact, NULL, "with --schema: without blanks"},              \
    {0, "grammar", OPTION_TEXT, &(g).rules, "FILE", "rules: GBNF, or Lark's in FILE.lark"},        \
    {0, "regex", OPTION_TEXT, &(g).regex, "R", "a regular expression that matches all of it"},     \
    {0, "choice", OPTION_TEXTS, &(g).choices, "TEXT", "one of these; may be repeated"}
#define SPECULATION_OPTIONS(s)                                                                     \
    OPTIONS_GROUP("Speculation (never changes the text)"),                                         \
    {0, "enable-chains", OPTION_MAYBE, &(s).chains, "[PATH]",                                      \
     "draft from chains (default: chain-buckets.bin next to the model)"},                          \
    {0, "lookup", OPTION_FLAG, &(s).lookup, NULL, "draft from the text itself"},                   \
    {0, "online-chains", OPTION_FLAG, &(s).online, NULL, "draft from the text so far"},       \
    {0, "draft-model", OPTION_TEXT, &(s).draft_model, "MODEL", "draft with a smaller model"},      \
    {0, "chain-max-length", OPTION_COUNT, &(s).max_length, "N", "tokens drafted at most (8)", 1,   \
     TERN_DRAFT_MAX},                                                                              \
    {0, "chain-threshold", OPTION_NUMBER, &(s).threshold, "P",                                     \
     "greedy: keep drafted tokens only above this probability, too (0)", 0, 1},                    \
    {0, "token-cost", OPTION_NUMBER, &(s).token_cost, "C",                                         \
     "a further token of a run costs C runs of one (measured)", 0, 1000},                          \
    {0, "visualize", OPTION_FLAG, &(s).visualize, NULL, "draw how drafts fared"}

// clang-format on
#endif
