// What conversion and reading refuse of a config, or say of it.
#include <stdlib.h>
#include <string.h>
#include "tern_tools.h"
#include "tests/library/convert/keyed_model.h"
#include "tests/support/harness.h"

static void check_why(const char *path, const char *want) {
    answer a = answer_of(path);
    CHECK_MSG(strstr(a.why, want), "%s: '%s'", path, a.why);
    free(a.x);
}

// What a config says of biases, and what is there. Seen to fail: with biases of a Mistral read
// where its config says that there are some; without what a folder cannot say.
TEST(convert_and_reading_refuse_biases_that_a_config_does_not_have) {
    static const char is_not_there[] = "a bias that config.json says is not there";
    static model m;
    const tern_arch *arch;
    keys seen = {.n = 0};
    tern_config c;
    tern_error err = {0};
    CHECK(model_begin(&m, "llama_biased", NULL, NULL));
    CHECK(keyed_convert(m.folder, m.gguf));
    m.header = read_blob(m.gguf);
    CHECK(keyed_set_config(&m, "attention_bias", "false"));
    check_why(m.folder, is_not_there);
    CHECK(keyed_set_config(&m, "mlp_bias", "false"));
    check_why(m.folder, is_not_there);
    CHECK(keyed_set_config(&m, "model_type", "\"mistral\""));
    check_why(m.folder, is_not_there);
    CHECK(keyed_set_gguf(&m, "llama.attention.sliding_window", 0));
    CHECK(tern_convert(m.gguf, m.back, NULL, &err) != TERN_OK);
    CHECK_MSG(strstr(err.message, "biases of layers with a window"), "%s", err.message);
    CHECK(keyed_read_keys(m.gguf, &seen, &arch, &c, &err));
    CHECK(c.qkv_biases && c.output_biases && c.ff_biases);
    c.output_biases = false;
    CHECK(tern_config_check_folder(arch, &c, &err) != TERN_OK);
    CHECK_MSG(strstr(err.message, "a part of attention's products"), "%s", err.message);
    model_end(&m);
    free(m.header.bytes);
    CHECK(model_begin(&m, "llama", "attention_bias", "true"));
    check_why(m.folder, "self_attn.q_proj.bias is missing");
    model_end(&m);
}

// One member of config.json says it of all products. Seen to fail: with such a GGUF read, which
// would become a folder without the others.
TEST(convert_refuses_a_gguf_of_which_some_products_have_biases) {
    static const char name[] = "blk.0.attn_output.bias";
    static model m;
    CHECK(model_begin(&m, "ernie4_5", NULL, NULL));
    check_why(m.folder, "");
    CHECK(keyed_convert(m.folder, m.gguf));
    blob file = read_blob(m.gguf);
    size_t at = 0, n = sizeof name - 1;
    while (at + n < file.n && memcmp(file.bytes + at, name, n)) at++;
    REQUIRE(at + n < file.n);
    file.bytes[at + n - 1] = 'z';
    CHECK(model_write(m.folder, "out.gguf", file.bytes, file.n));
    check_why(m.gguf, "in an ernie4_5 all have, or none");
    CHECK(keyed_set_config(&m, "use_bias", "false"));
    check_why(m.folder, "a bias that config.json says is not there");
    free(file.bytes);
    model_end(&m);
}

// ---- What is said of some values ----------------------------------------------------------------

static void on_note(void *user, const char *text) { tern_strbuf_printf(user, "%s\n", text); }

static void check_notes(const char *name, const char *key, const char *value, const char *window,
                        const char *want) {
    static model m;
    tern_strbuf notes = {0};
    tern_error err = {0};
    CHECK(model_begin(&m, name, key, value));
    if (window) CHECK(keyed_set_config(&m, "sliding_window", window));
    const tern_convert_desc desc = {.n_threads = 1, .on_note = on_note, .user = &notes};
    tern_status status = tern_convert(m.folder, m.gguf, &desc, &err);
    tern_strbuf_puts(&notes, "");
    bool is_said = notes.ptr && strstr(notes.ptr, "programs other than tern will");
    CHECK_MSG(status == TERN_OK && is_said == (want != NULL) && (!want || strstr(notes.ptr, want)),
              "%s: %s: %s%s", name, key ? key : "", err.message, notes.ptr ? notes.ptr : "");
    tern_strbuf_free(&notes);
    model_end(&m);
}

// What llama.cpp does not look for in a GGUF is said when it is written. Seen to fail: without the
// families' `differs`.
TEST(convert_notes_what_other_programs_will_compute) {
    static const char window[] = "compute attention without its window";
    check_notes("qwen2", NULL, NULL, NULL, NULL);
    check_notes("qwen2", "use_sliding_window", "true", NULL, window);
    check_notes("qwen3", NULL, NULL, NULL, NULL);
    check_notes("qwen3", "use_sliding_window", "true", "6, \"max_window_layers\": 1", window);
    check_notes("llama", NULL, NULL, NULL, NULL);
    check_notes("llama", "model_type", "\"mistral\"", "6", window);
    check_notes("phi3", NULL, NULL, "6", window);
    check_notes("ernie4_5", NULL, NULL, NULL, "not load it: they know no biases");
    check_notes("gemma3", "query_pre_attn_scalar", "8", NULL, NULL);
    check_notes("gemma3", "query_pre_attn_scalar", "7", NULL, "scale the scores of attention by");
}

static void check_refused(const char *name, const char *key, const char *value, const char *want) {
    static model m;
    CHECK(model_begin(&m, name, key, value));
    check_why(m.folder, want);
    model_end(&m);
}

// Computed, they would be another model, or tokens of a text that nobody wrote. Seen to fail:
// without placeholders; with steps of Kani's frames that are not read.
TEST(configs_whose_numbers_nobody_computes_are_refused) {
    static const char given[] = "token 3 at place 1 stands for an image or a sound";
    check_refused("gemma4", "image_token_id", "3", given);
    check_refused("gemma4", "audio_token_id", "3", given);
    check_refused("gemma4", "video_token_id", "3", given);
    check_refused("kani", "audio_step", "0.5", "audio_step 0.5 is not supported (1 is)");
    check_refused("kani", "audio_step", "\"2\"", "audio_step 2 is not supported (1 is)");
}
