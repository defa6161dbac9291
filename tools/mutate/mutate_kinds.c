// The kinds of files to mutate: how to make small ones, and everything that reads them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "formats/formats.h"
#include "tern_image.h"
#include "tern_tools.h"
#include "tern_train.h"
#include "tests/support/tiny_model.h"
#include "tools/mutate/mutate.h"

enum { PATHS = 8, PATH_BYTES = 600 };

static void join(char path[PATH_BYTES], const char *folder, const char *name) {
    int n = snprintf(path, PATH_BYTES, "%s%s", folder, name);
    if (n < 0 || n >= PATH_BYTES) abort(); // the paths are this program's own
}

// "folder/name", valid for the next PATHS calls.
static const char *in(const char *folder, const char *name) {
    static char paths[PATHS][PATH_BYTES];
    static int turn;
    char *path = paths[turn = (turn + 1) % PATHS], slash[PATH_BYTES];
    join(slash, "/", name);
    join(path, folder, slash);
    return path;
}

static bool ok(tern_status status, const tern_error *err) {
    if (status != TERN_OK) fprintf(stderr, "mutate: %s\n", err->message);
    return status == TERN_OK;
}

static bool put(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    return f && fputs(text, f) >= 0 && fclose(f) == 0;
}

static bool look(void *user, const char *text, size_t n) {
    volatile char *last = user;
    if (n) *last = text[n - 1];
    return true;
}

// ---- Using -------------------------------------------------------------------------------------

static const char prompt[] = "the cat and\n the 12\xC3\xA9 <|im_start|>";

static void run_session(tern_model *m, const tern_chains *chains) {
    tern_session *s;
    tern_error err;
    volatile char last = 0;
    tern_sampling greedy = {0}, usual = tern_sampling_default();
    usual.seed = 1;
    tern_session_desc sd = {.n_context = 64, .speculation = {.chains = chains}};
    if (tern_session_open(&s, m, &sd, &err) != TERN_OK) return;
    tern_generate_params p = {
        .sampling = &greedy, .max_tokens = 4, .on_text = look, .user = (void *)&last};
    tern_generate(s, prompt, &p, NULL, &err);
    p.sampling = &usual;
    tern_generate_ids(s, (const int32_t[]){1, 2}, 2, &p, NULL, &err);
    tern_session_close(s);
}

static void use_text(tern_model *m) {
    static const tern_message chat[] = {{.role = "system", .content = "Be"},
                                        {.role = "user", .content = "Hi"}};
    tern_ids ids = {(int32_t[64]){0}, 64, 0};
    tern_error err;
    volatile char last = 0;
    tern_chat_format(m, chat, 2, look, (void *)&last, &err);
    tern_tokenize(m, prompt, sizeof prompt - 1, 3, &ids, &err);
    if (ids.n > ids.capacity) ids.n = ids.capacity;
    tern_detokenize(m, &ids, true, look, (void *)&last, &err);
}

static void run_model(const char *path, const char *lora, const tern_chains *chains) {
    tern_lora adapter = {.path = lora, .scale = 1};
    tern_model_desc desc = {.n_threads = 1,
                            .n_batch = 16,
                            .ternary = TERN_TERNARY_2BIT,
                            .loras = &adapter,
                            .n_loras = lora != NULL};
    tern_model *m;
    tern_error err;
    if (tern_model_open(&m, path, &desc, &err) != TERN_OK) {
        desc.vocab_only = true;
        if (lora || tern_model_open(&m, path, &desc, &err) != TERN_OK) return;
        use_text(m);
    } else {
        use_text(m);
        run_session(m, chains);
    }
    tern_model_close(m);
}

static void inspect(const char *path) {
    tern_inspect_desc d = {.format = TERN_FORMAT_JSON, .tensors = true, .histogram = true};
    tern_error err;
    volatile char last = 0;
    tern_inspect(path, &d, look, (void *)&last, &err);
    tern_eval_paper(path, TERN_FORMAT_TEXT, look, (void *)&last, &err);
}

static void use_model(const char *folder, const char *path) {
    tern_convert_desc c = {0};
    tern_error err;
    inspect(path);
    run_model(path, NULL, NULL);
    tern_convert(path, in(folder, "converted.gguf"), &c, &err);
    tern_convert(path, in(folder, "converted"), &c, &err);
}

static void use_gguf(const char *folder) { use_model(folder, in(folder, "model.gguf")); }
static void use_folder(const char *folder) { use_model(folder, folder); }

// ---- Models ------------------------------------------------------------------------------------

static bool make_model(const char *path, tiny_model_desc d) {
    tern_error err = {0};
    d.n_layers = 1;
    d.n_ff = d.n_embd = d.n_embd ? d.n_embd : 32;
    d.n_heads = 2;
    d.n_kv_heads = 1;
    return ok(tiny_model_write(path, &d, &err), &err);
}

#define GGUF_KIND(function, ...)                                                                   \
    static bool function(const char *folder) {                                                     \
        return make_model(in(folder, "model.gguf"), (tiny_model_desc){__VA_ARGS__});               \
    }
GGUF_KIND(make_i2_s, .n_embd = 128, .head_type = TERN_DTYPE_F16)
GGUF_KIND(make_tq1_0, .n_embd = 256, .type = TERN_DTYPE_TQ1_0, .head_type = TERN_DTYPE_F16)
GGUF_KIND(make_tq2_0, .n_embd = 256, .type = TERN_DTYPE_TQ2_0, .head_type = TERN_DTYPE_F16)
GGUF_KIND(make_groups, .arch = "qwen3", .n_embd = 128, .type = TERN_DTYPE_Q2_0,
          .head_type = TERN_DTYPE_Q1_0)
GGUF_KIND(make_rotated, .arch = "qwen35", .n_embd = 128, .type = TERN_DTYPE_PTQ1_0,
          .head_type = TERN_DTYPE_PTQ1_0, .rotation = 32)
GGUF_KIND(make_masters, .type = TERN_DTYPE_BF16)
GGUF_KIND(make_llama, .arch = "llama", .type = TERN_DTYPE_F16, .separate_head = true)
GGUF_KIND(make_q8_0, .arch = "llama", .type = TERN_DTYPE_Q8_0, .head_type = TERN_DTYPE_Q8_0)

static bool make_hf(const char *folder, tiny_model_desc d) {
    const char *gguf = in(folder, "source.gguf");
    tern_error err = {0};
    bool made = make_model(gguf, d) &&
                ok(tern_convert(gguf, folder, &(tern_convert_desc){0}, &err), &err) &&
                put(in(folder, "generation_config.json"),
                    "{\"eos_token_id\": [0, 2], \"temperature\": 0.6, \"top_k\": 20}");
    return unlink(gguf) == 0 && made;
}
static bool make_hf_llama(const char *folder) {
    return make_hf(folder, (tiny_model_desc){.arch = "llama", .type = TERN_DTYPE_F16});
}
static bool make_hf_packed(const char *folder) {
    return make_hf(folder, (tiny_model_desc){.n_embd = 128, .head_type = TERN_DTYPE_F16});
}

// ---- Text, shards, training --------------------------------------------------------------------

static bool make_documents(const char *folder) {
    static const char plain[] = "{\"text\": \"a \\u00e9 line %d\"}\n",
                      chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi %d\"}, "
                               "{\"role\": \"assistant\", \"content\": \"Ho\"}]}\n";
    tern_strbuf text = {0};
    for (int i = 0; i < 150; i++)
        tern_strbuf_printf(&text, "The cat %d and the dog %d went on.<|endoftext|>", i, i % 7);
    bool made = put(in(folder, "a.txt"), tern_strbuf_text(&text));
    tern_strbuf_clear(&text);
    for (int i = 0; i < 40; i++) tern_strbuf_printf(&text, i % 2 ? plain : chat, i);
    made = made && put(in(folder, "b.jsonl"), tern_strbuf_text(&text));
    tern_strbuf_free(&text);
    return made;
}

static tern_status build_data(const char *from, const char *tokenizer, const char *to,
                              tern_error *err) {
    tern_data_build_desc d = {.source = {.paths = &from, .n_paths = 1},
                              .tokenizer = tokenizer,
                              .valid = 0.1,
                              .drop_near = true,
                              .n_threads = 1};
    return tern_data_build(to, &d, NULL, err);
}

static void use_documents(const char *folder) {
    tern_data_tokenizer_desc t = {.source = {.paths = &folder, .n_paths = 1}, .n_vocab = 300};
    const char *tokenizer = in(folder, "tokenizer.json");
    tern_error err;
    if (tern_data_tokenizer(tokenizer, &t, NULL, &err) == TERN_OK)
        build_data(folder, tokenizer, in(folder, "shards"), &err);
}

// A folder of shards with its tokenizer.
static bool make_shards(const char *folder) {
    char text[PATH_BYTES], tokenizer[PATH_BYTES];
    tern_error err = {0};
    join(text, folder, "-text");
    join(tokenizer, text, "/tokenizer.json");
    const char *paths[] = {text};
    tern_data_tokenizer_desc t = {.source = {.paths = paths, .n_paths = 1}, .n_vocab = 300};
    bool made = mkdir(text, 0777) == 0 && make_documents(text) &&
                ok(tern_data_tokenizer(tokenizer, &t, NULL, &err), &err) &&
                ok(build_data(text, tokenizer, folder, &err), &err);
    unlink(in(text, "a.txt")), unlink(in(text, "b.jsonl")), unlink(tokenizer);
    return rmdir(text) == 0 && made;
}

// A run of few steps of a small model, from the shards of the folder into the folder.
static tern_train_desc small_run(const char *folder, int64_t n_steps) {
    return (tern_train_desc){.data = folder,
                             .out = folder,
                             .n_layers = 1,
                             .n_embd = 16,
                             .n_heads = 1,
                             .n_ff = 16,
                             .seq_len = 16,
                             .batch_tokens = 16,
                             .micro_tokens = 16,
                             .n_threads = 1,
                             .seed = 1,
                             .n_steps = n_steps,
                             .log_every = 1,
                             .checkpoint_every = 2,
                             .valid_every = 2,
                             .valid_tokens = 32,
                             .n_warmup = 1};
}

static void use_shards(const char *folder) {
    tern_data_inspect_desc d = {.format = TERN_FORMAT_JSON};
    tern_train_desc run = small_run(folder, 2);
    tern_error err;
    volatile char last = 0;
    tern_data_inspect(in(folder, "train-00000.tern"), &d, look, (void *)&last, &err);
    tern_data_inspect(in(folder, "valid-00000.tern"), &d, look, (void *)&last, &err);
    run.out = in(folder, "out");
    tern_train(&run, &err);
}

// A run that was stopped after two of its four steps.
static bool stop_after_two(void *user, const tern_train_event *e) {
    (void)user;
    return e->step < 2;
}

static bool make_run(const char *folder) {
    tern_error err = {0};
    tern_train_desc d = small_run(folder, 4);
    d.on_event = stop_after_two;
    return make_shards(folder) && tern_train(&d, &err) == TERN_ERR_CANCELLED;
}

static void use_run(const char *folder) {
    tern_error err;
    char log[PATH_BYTES], step[PATH_BYTES];
    join(log, folder, "/log.jsonl");
    join(step, folder, "/step-00000002.gguf");
    tern_train_plot((const char *const[]){log}, 1, in(folder, "log.svg"), &err);
    run_model(step, NULL, NULL);
    tern_train_desc d = small_run(folder, 4);
    d.resume = true;
    tern_train(&d, &err);
}

// ---- Beside a model ----------------------------------------------------------------------------

static bool make_chains(const char *folder) {
    int32_t tokens[300];
    tern_chain entries[300];
    uint8_t chances[300];
    tern_chains *c = NULL;
    tern_error err = {0};
    for (int i = 0; i < 300; i++) {
        tokens[i] = i;
        chances[i] = (uint8_t)(i + 1);
    }
    for (int i = 0; i < 290; i++)
        entries[i] = (tern_chain){tokens + i, 2 + i % 8, (float)(i % 10) / 10, chances + i};
    bool made = make_model(in(folder, "model.gguf"), (tiny_model_desc){.type = TERN_DTYPE_BF16});
    const int sizes[] = {20, 290}; // version 1, version 2
    for (int i = 0; made && i < 2; i++) {
        for (int k = 0; i == 0 && k < sizes[0]; k++) entries[k].n_tokens = 2 + k % 7;
        made = ok(tern_chains_create(&c, entries, (size_t)sizes[i], &err), &err) &&
               ok(tern_chains_save(c, in(folder, i ? "2.chains" : "1.chains"), &err), &err);
        tern_chains_close(c);
        c = NULL;
    }
    return made;
}

static void use_chains(const char *folder) {
    for (int i = 0; i < 2; i++) {
        tern_chains *c;
        tern_error err;
        const char *path = in(folder, i ? "2.chains" : "1.chains");
        if (tern_chains_open(&c, path, &err) != TERN_OK) continue;
        run_model(in(folder, "model.gguf"), NULL, c);
        tern_chains_close(c);
    }
}

static tern_status train_adapter(const char *folder, const char *base, tern_error *err) {
    tern_train_desc d = {.data = folder,
                         .out = folder,
                         .init = base,
                         .lora_rank = 2,
                         .seq_len = 16,
                         .batch_tokens = 16,
                         .micro_tokens = 16,
                         .n_threads = 1,
                         .seed = 1,
                         .n_steps = 2,
                         .checkpoint_every = 2};
    return tern_train(&d, err);
}

static bool make_lora(const char *folder) {
    tern_error err = {0};
    char base[PATH_BYTES], text[PATH_BYTES];
    join(base, folder, "/base.gguf");
    join(text, folder, "/text.txt");
    bool made = make_model(base, (tiny_model_desc){.arch = "llama", .type = TERN_DTYPE_F16}) &&
                put(text, "the cat and the dog<|endoftext|>a bird and the fish, in the end") &&
                ok(build_data(text, base, folder, &err), &err) &&
                ok(train_adapter(folder, base, &err), &err) &&
                rename(in(folder, "step-00000002.gguf"), in(folder, "adapter.gguf")) == 0;
    return made;
}

static void use_lora(const char *folder) {
    char base[PATH_BYTES];
    tern_lora lora = {.path = in(folder, "adapter.gguf"), .scale = 1};
    tern_convert_desc c = {.loras = &lora, .n_loras = 1};
    tern_error err;
    join(base, folder, "/base.gguf");
    inspect(lora.path);
    run_model(base, lora.path, NULL);
    tern_convert(base, in(folder, "merged.gguf"), &c, &err);
}

static bool write_peft(const char *folder) {
    static const char a[] = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                      b[] = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
    static const float numbers[64] = {0.5f, -0.25f, 1};
    tern_st_writer *w;
    tern_error err = {0};
    if (!ok(tern_st_writer_open(&w, folder, 0, &err), &err)) return false;
    bool made = tern_st_declare(w, a, TERN_DTYPE_F32, 2, (const uint64_t[]){2, 32}) == TERN_OK &&
                tern_st_declare(w, b, TERN_DTYPE_F32, 2, (const uint64_t[]){32, 2}) == TERN_OK &&
                tern_st_write(w, numbers, sizeof numbers, &err) == TERN_OK &&
                tern_st_write(w, numbers, sizeof numbers, &err) == TERN_OK &&
                ok(tern_st_writer_finish(w, &err), &err);
    tern_st_writer_free(w);
    return made;
}

static bool make_peft(const char *folder) {
    return write_peft(folder) &&
           rename(in(folder, "model.safetensors"), in(folder, "adapter_model.safetensors")) == 0 &&
           put(in(folder, "adapter_config.json"),
               "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"use_rslora\": true, "
               "\"alpha_pattern\": {\"q_proj\": 8}, \"use_dora\": false}") &&
           make_model(in(folder, "base.gguf"), (tiny_model_desc){.arch = "llama"});
}

static void use_peft(const char *folder) { run_model(in(folder, "base.gguf"), folder, NULL); }

// ---- Evaluation --------------------------------------------------------------------------------

static tern_status evaluate(const char *folder, tern_error *err) {
    tern_model *m;
    tern_session *s;
    tern_eval_result result;
    char items[PATH_BYTES], results[PATH_BYTES];
    join(items, folder, "/items.jsonl");
    join(results, folder, "/results.jsonl");
    tern_eval_desc d = {.task = "piqa", .path = items, .results_path = results};
    tern_model_desc md = {.n_threads = 1};
    TERN_TRY(tern_model_open(&m, in(folder, "model.gguf"), &md, err));
    tern_status status = tern_session_open(&s, m, &(tern_session_desc){.n_context = 64}, err);
    if (status == TERN_OK) {
        status = tern_eval_run(s, &d, &result, err);
        tern_session_close(s);
    }
    tern_model_close(m);
    return status;
}

static bool make_eval(const char *folder) {
    static const char item[] =
        "{\"goal\":\"To sit\",\"sol1\":\"a chair\",\"sol2\":\"b\",\"label\":1}\n";
    tern_strbuf items = {0};
    tern_error err = {0};
    for (int i = 0; i < 4; i++) tern_strbuf_puts(&items, item);
    bool made = put(in(folder, "items.jsonl"), tern_strbuf_text(&items)) &&
                make_model(in(folder, "model.gguf"), (tiny_model_desc){.type = TERN_DTYPE_BF16}) &&
                ok(evaluate(folder, &err), &err);
    tern_strbuf_free(&items);
    return made;
}

static void use_eval(const char *folder) {
    tern_error err;
    evaluate(folder, &err);
}

// ---- Images ----------------------------------------------------------------------------------

#define SEES  "tests/oracles/qwen35_sees"
#define DEEP  "tests/oracles/qwen3vl_sees"
#define SEEDS "fuzz/corpus/image/"

static bool add_file(tern_strbuf *out, const char *path) {
    char bytes[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) tern_strbuf_append(out, bytes, n);
    return fclose(f) == 0 && !out->failed;
}

static bool write_file(const char *path, tern_strbuf *bytes) {
    FILE *f = fopen(path, "wb");
    bool done = f && fwrite(tern_strbuf_text(bytes), 1, bytes->len, f) == bytes->len;
    tern_strbuf_free(bytes);
    return f && fclose(f) == 0 && done;
}

static bool copy_file(const char *folder, const char *from, const char *name) {
    char path[PATH_BYTES];
    tern_strbuf bytes = {0};
    join(path, from, name);
    return add_file(&bytes, path) && write_file(in(folder, name), &bytes);
}

// A JPEG that says in its EXIF data how it is to be turned.
static bool make_turned(const char *folder) {
    tern_strbuf exif = {0}, jpeg = {0}, out = {0};
    bool made = add_file(&exif, SEEDS "exif") && add_file(&jpeg, SEEDS "jpeg") && jpeg.len > 2;
    if (made) {
        tern_strbuf_append(&out, "\xFF\xD8\xFF\xE1", 4);
        tern_strbuf_putc(&out, (char)((exif.len + 8) >> 8));
        tern_strbuf_putc(&out, (char)(exif.len + 8));
        tern_strbuf_append(&out, "Exif\0", 6);
        tern_strbuf_append(&out, exif.ptr, exif.len);
        tern_strbuf_append(&out, jpeg.ptr + 2, jpeg.len - 2);
        made = write_file(in(folder, "turned"), &out);
    }
    tern_strbuf_free(&exif);
    tern_strbuf_free(&jpeg);
    return made;
}

static const char *const images[] = {"jpeg", "png", "png16", "webp", "gif"};

static bool make_images(const char *folder) {
    bool made = make_turned(folder);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        made = made && copy_file(folder, SEEDS, images[i]);
    return made;
}

// As `tern run --image` does.
static void show(tern_model *m, const tern_image *p) {
    static int32_t text[] = {259, 261, 260, 'W', 'h', 'o', '?'};
    const tern_ids before = {text, sizeof text / sizeof *text, sizeof text / sizeof *text};
    tern_error err;
    tern_image_tokens *image;
    tern_session *s;
    tern_ids ids = {(int32_t[256]){0}, 256, 0};
    volatile char last = 0;
    const tern_sampling greedy = {0};
    const tern_generate_params say = {
        .sampling = &greedy, .max_tokens = 2, .on_text = look, .user = (void *)&last};
    if (tern_image_tokens_open(&image, m, p, 1, NULL, &err) != TERN_OK) return;
    if (tern_image_tokens_place(m, &before, &image, 1, &ids, &err) == TERN_OK && ids.n <= 256 &&
        tern_session_open(&s, m, &(tern_session_desc){.n_context = 256}, &err) == TERN_OK) {
        tern_generate_ids(s, ids.ids, ids.n, &say, NULL, &err);
        tern_session_close(s);
    }
    tern_image_tokens_close(image);
}

static void use_image(tern_model *m, const char *path) {
    tern_error err;
    tern_image p, as_stored;
    const tern_image_desc desc = {.n_pixels_max = 1 << 20, .as_stored = true};
    if (tern_image_open(&as_stored, path, &desc, &err) == TERN_OK) tern_image_close(&as_stored);
    if (tern_image_open(&p, path, &(tern_image_desc){.n_pixels_max = 1 << 20}, &err) != TERN_OK)
        return;
    if (m) show(m, &p);
    tern_image_close(&p);
}

static void use_images(const char *folder) {
    tern_error err;
    tern_model *m = NULL;
    tern_model_open(&m, SEES, &(tern_model_desc){.n_threads = 1}, &err);
    use_image(m, in(folder, "turned"));
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) use_image(m, in(folder, images[i]));
    tern_model_close(m);
}

// A model that sees: its config, its rules for images, its tower.
static bool make_sees(const char *folder) {
    static const char *const names[] = {"config.json",    "model.safetensors",
                                        "image.png",      "preprocessor_config.json",
                                        "tokenizer.json", "tokenizer_config.json"};
    bool made = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        made = made && copy_file(folder, SEES "/", names[i]);
    return made;
}

static void use_sees(const char *folder) {
    tern_error err;
    tern_model *m;
    if (tern_model_open(&m, folder, &(tern_model_desc){.n_threads = 1}, &err) != TERN_OK) return;
    use_image(m, in(folder, "image.png"));
    tern_model_close(m);
}

// The same as two GGUFs, of a model that reads rows of several layers: its mmproj is mutated. (Seen
// to find: without the bounds of its sizes, 17 of 4,000 mutations divided by zero.)
static bool make_mmproj(const char *folder) {
    tern_error err = {0};
    return ok(tern_convert(DEEP, in(folder, "model.gguf"), &(tern_convert_desc){0}, &err), &err) &&
           copy_file(folder, SEES "/", "image.png");
}

// A file that is found and does not fit is left; one that is named is refused.
static void use_mmproj(const char *folder) {
    char mmproj[PATH_BYTES];
    tern_error err;
    tern_model *m;
    join(mmproj, folder, "/mmproj-model.gguf");
    tern_model_desc desc = {.n_threads = 1};
    for (int named = 0; named < 2; named++) {
        desc.mmproj = named ? mmproj : NULL;
        if (tern_model_open(&m, in(folder, "model.gguf"), &desc, &err) != TERN_OK) continue;
        if (named) use_image(m, in(folder, "image.png"));
        tern_model_close(m);
    }
    inspect(mmproj);
}

const mutate_kind mutate_kinds[] = {
    {"i2_s", make_i2_s, use_gguf, NULL},
    {"tq1_0", make_tq1_0, use_gguf, NULL},
    {"tq2_0", make_tq2_0, use_gguf, NULL},
    {"groups", make_groups, use_gguf, NULL},
    {"rotated", make_rotated, use_gguf, NULL},
    {"masters", make_masters, use_gguf, NULL},
    {"llama", make_llama, use_gguf, NULL},
    {"q8_0", make_q8_0, use_gguf, NULL},
    {"hf_llama", make_hf_llama, use_folder, NULL},
    {"hf_json", make_hf_llama, use_folder, ".json"},
    {"hf_packed", make_hf_packed, use_folder, NULL},
    {"documents", make_documents, use_documents, NULL},
    {"shards", make_shards, use_shards, NULL},
    {"run", make_run, use_run, NULL},
    {"checkpoint", make_run, use_run, "step-"},
    {"log", make_run, use_run, "log"},
    {"chains", make_chains, use_chains, "chains"},
    {"lora", make_lora, use_lora, "adapter"},
    {"peft", make_peft, use_peft, "adapter"},
    {"eval", make_eval, use_eval, "jsonl"},
    {"images", make_images, use_images, NULL},
    {"sees", make_sees, use_sees, NULL},
    {"sees_json", make_sees, use_sees, "config.json"},
    {"mmproj", make_mmproj, use_mmproj, "mmproj"},
};
const size_t mutate_n_kinds = sizeof mutate_kinds / sizeof *mutate_kinds;
