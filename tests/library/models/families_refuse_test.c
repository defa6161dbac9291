// Configs that are refused, in one line that says why, and a number of which two readings are one.
#include <string.h>
#include "tests/library/models/families_fixture.h"

TEST(families_refuse_in_one_line) {
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{" QWEN3 ", \"num_experts\": 8}", "8 experts: mixtures of experts are not supported"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"spiral\", \"factor\": 2}}",
         "RoPE scaling \"spiral\" of a qwen3 is not supported"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}}",
         "RoPE scaling \"dynamic\" of a qwen3 is not supported"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2, \"alpha\": 9}}",
         "RoPE scaling \"dynamic\" of a qwen3 is not supported"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": 3, \"factor\": 2}}",
         "rope_scaling.rope_type is not a text"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"linear\"}}", "without a number factor"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"proportional\", "
         "\"partial_rotary_factor\": 1e30}}",
         "makes no sense"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, "
         "\"high_freq_factor\": 4}}",
         "without a number low_freq_factor"},
        {"{" QWEN3 ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, "
         "\"truncate\": false}}",
         "(truncate) is not supported"},
        {"{" QWEN3 ", \"rope_scaling\": \"yarn\"}", "rope_scaling is not an object"},
        {"{" QWEN3 ", \"rope_theta\": \"many\"}", "rope_theta is not a number"},
        {"{" QWEN3 ", \"rms_norm_eps\": true}", "rms_norm_eps is not a number"},
        {"{" QWEN3 ", \"head_dim\": 4.5}", "head_dim is not a whole number"},
        {"{" QWEN3 ", \"use_sliding_window\": \"yes\"}", "use_sliding_window is not true or"},
        {"{" QWEN3 ", \"hidden_act\": 3}", "hidden_act is not a text"},
        {"{" QWEN3 ", \"partial_rotary_factor\": 0.5}", "the heads of a qwen3 turn whole"},
        {"{" SMALL("llama") ", \"partial_rotary_factor\": 0.5}", "of a llama turn whole"},
        {"{" SMALL("phi3") ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "RoPE scaling \"linear\" of a phi3 is not supported"},
        {"{" SMALL("smollm3") ", \"no_rope_layers\": [1, 0]}",
         "no_rope_layers has 2 entries for 5 layers"},
        {"{" SMALL("smollm3") ", \"no_rope_layer_interval\": 0}", "expected 1 or more"},
        {"{" SMALL("granite") ", \"logits_scaling\": 0}", "logits_scaling is 0, expected"},
        {"{" SMALL("minicpm") ", \"dim_model_base\": -1}", "dim_model_base is -1"},
        {"{" SMALL("exaone4") ", \"sliding_window\": -6}", "sliding_window is -6"},
        {"{" SMALL("cohere2") ", \"sliding_window\": 0}", "sliding_window is 0, expected 1 to"},
        {"{" SMALL("cohere2") ", \"sliding_window_pattern\": 0}", "pattern is 0, expected 1 or"},
        {"{" SMALL("cohere2") ", \"logit_scale\": 0}", "logit_scale is 0, expected"},
        {"{" SMALL("ministral3") ", \"head_dim\": 8, \"partial_rotary_factor\": 0.5, "
                                 "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
                                 "\"llama_4_scaling_beta\": 0.1}}",
         "the heads of a ministral3 turn whole"},
        {"{" SMALL("phi3") ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [], "
                           "\"long_factor\": []}}",
         "no numbers for rope_factors_short.weight"},
        {"{\"model_type\": \"qwen4\"}", "this architecture is not supported"},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES ", \"layer_types\": [\"conv\"]}",
         "layer_types has \"conv\", which a qwen35 has not"},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES
         ", \"layer_types\": [\"full_attention\"]}",
         "layer_types has 1 entries for 4 layers"},
        {"{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES ", \"attn_output_gate\": false}",
         "attention without a gate"},
        {"{" LFM2 "}", "neither layer_types nor full_attn_idxs"},
        {"{" LFM2 ", \"conv_bias\": true, \"full_attn_idxs\": [1]}", "conv_bias"},
        {"{" LFM2 ", \"full_attn_idxs\": [3]}", "full_attn_idxs has 3 of 3 layers"},
        {"{\"model_type\": \"gemma3_text\", " GEMMA ", \"final_logit_softcapping\": 30}",
         "final_logit_softcapping is not supported"},
        {"{\"model_type\": \"gemma3_text\", \"hidden_size\": 16, \"intermediate_size\": 24, "
         "\"num_hidden_layers\": 1}",
         "sliding_window is missing"},
    };
    const made_tensor table = {"model.embed_tokens.weight", {N_VOCAB, 16}, 2};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[600];
        opened o;
        tern_error err = {0};
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family_wrong"), i);
        if (!family_write_tensors(folder, cases[i].json, &table, 1)) continue;
        CHECK_MSG(!family_open_config(&o, folder, &err), "%s", cases[i].json);
        CHECK_MSG(strstr(err.message, cases[i].says) && !strchr(err.message, '\n'), "%s: %s",
                  cases[i].says, err.message);
        tern_file_close(o.file);
    }
}

// 512 states a width, 257 the bound that was made of it: the same model.
TEST(families_odd_window_of_an_encoder_is_its_bound) {
    static const struct {
        const char *stated;
        int32_t window;
    } cases[] = {{"512", 257}, {"257", 257}, {"16", 9}};
    const made_tensor table = {"embed_tokens.weight", {N_VOCAB, 16}, 2};
    for (size_t i = 0; i < 3; i++) {
        char folder[600], json[600];
        opened o;
        tern_error err = {0};
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family_window"), i);
        snprintf(json, sizeof json,
                 "{\"model_type\": \"gemma3_text\", \"hidden_size\": 16, "
                 "\"intermediate_size\": 24, \"num_hidden_layers\": 1, \"sliding_window\": %s, "
                 "\"use_bidirectional_attention\": true}",
                 cases[i].stated);
        if (!family_write_tensors(folder, json, &table, 1)) continue;
        CHECK_MSG(family_open_config(&o, folder, &err), "%s", err.message);
        CHECK_MSG(o.c.bidirectional && o.c.window == cases[i].window, "%s: %d", cases[i].stated,
                  o.c.window);
        tern_file_close(o.file);
    }
}

// A tensor under two names is one too many; one that nothing reads is refused by name.
TEST(families_refuse_tensors_that_nothing_reads) {
    static const char *const extra[] = {"norm.weight", "model.layers.0.self_attn.q_proj.bias",
                                        "model.layers.9.input_layernorm.weight"};
    for (size_t i = 0; i < 3; i++) {
        char folder[600];
        opened o;
        tern_error err = {0};
        snprintf(folder, sizeof folder, "%s%zu", test_tmp("family_extra"), i);
        if (!family_make_folder(folder, "{" QWEN3 "}", 16, "model.", extra[i])) continue;
        CHECK(family_open_config(&o, folder, &err));
        CHECK(tern_arch_check(o.file, o.arch, &o.c, &err) == TERN_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(err.message, extra[i]), "%s", err.message);
        tern_file_close(o.file);
    }
}
