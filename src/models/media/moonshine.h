// Private to the models: the decoder, which Moonshine and its streaming variants share.
#ifndef TERN_MODELS_MOONSHINE_H
#define TERN_MODELS_MOONSHINE_H

#include "models/core/family.h"

tern_status tern_moonshine_decoder(tern_graph *g, const tern_config *c, tern_error *err);

#define TERN_MOONSHINE_LAYER(gguf_, hf_, role_)                                                    \
    TERN_MATRIX("blk.%d." gguf_, "model.decoder.layers.%d." hf_, role_)
#define TERN_MOONSHINE_BIAS(gguf_, hf_) TERN_ROW(gguf_ ".bias", hf_ ".bias")

#define TERN_ROWS_MOONSHINE_DECODER                                                                \
    TERN_MATRIX("token_embd", "model.decoder.embed_tokens", TERN_ROLE_TABLE),                      \
        TERN_MATRIX("output", "proj_out", TERN_ROLE_HEAD),                                         \
        TERN_MOONSHINE_LAYER("attn_norm", "input_layernorm", TERN_ROLE_VECTOR),                    \
        TERN_MOONSHINE_LAYER("attn_q", "self_attn.q_proj", TERN_ROLE_Q),                           \
        TERN_MOONSHINE_LAYER("attn_k", "self_attn.k_proj", TERN_ROLE_K),                           \
        TERN_MOONSHINE_LAYER("attn_v", "self_attn.v_proj", TERN_ROLE_V),                           \
        TERN_MOONSHINE_LAYER("attn_output", "self_attn.o_proj", TERN_ROLE_O),                      \
        TERN_MOONSHINE_LAYER("cross_attn_norm", "post_attention_layernorm", TERN_ROLE_VECTOR),     \
        TERN_MOONSHINE_LAYER("cross_attn_q", "encoder_attn.q_proj", TERN_ROLE_MATRIX),             \
        TERN_MOONSHINE_LAYER("cross_attn_k", "encoder_attn.k_proj", TERN_ROLE_MATRIX),             \
        TERN_MOONSHINE_LAYER("cross_attn_v", "encoder_attn.v_proj", TERN_ROLE_MATRIX),             \
        TERN_MOONSHINE_LAYER("cross_attn_output", "encoder_attn.o_proj", TERN_ROLE_MATRIX),        \
        TERN_MOONSHINE_LAYER("ffn_norm", "final_layernorm", TERN_ROLE_VECTOR),                     \
        TERN_MOONSHINE_LAYER("ffn_up", "mlp.fc1", TERN_ROLE_UP),                                   \
        TERN_MOONSHINE_BIAS("blk.%d.ffn_up", "model.decoder.layers.%d.mlp.fc1"),                   \
        TERN_MOONSHINE_LAYER("ffn_down", "mlp.fc2", TERN_ROLE_DOWN),                               \
        TERN_MOONSHINE_BIAS("blk.%d.ffn_down", "model.decoder.layers.%d.mlp.fc2"),                 \
        TERN_NORM("output_norm", "model.decoder.norm", TERN_CHANGE_NONE)

#endif
