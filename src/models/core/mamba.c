// Mamba-2 (arXiv:2405.21060), as Granite 4 and Falcon-H1 use it with attention.
//
//   z, xBC, dt = x Win;  x, B, C = silu(conv(xBC))
//   y = ssm(x, B, C, dt) * silu(z);  mixer = norm(y) Wout, or y Wout if there is no norm
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid project(tern_graph *g, const tern_config *c, tern_vid x, int64_t dim,
                        int64_t group) {
    const tern_multipliers *m = &c->multipliers;
    int64_t all = 2 * dim + 2 * group + c->ssm.n_heads;
    tern_vid p = tern_block_linear(g, c, x, "blk.%d.ssm_in.weight", all, c->n_embd);
    double factors[TERN_PIECES_MAX];
    bool any = false;
    for (int i = 0; i < TERN_PIECES_MAX; i++) {
        factors[i] = m->ssm_in * m->ssm[i];
        any |= factors[i] != 1;
    }
    const int64_t widths[TERN_PIECES_MAX] = {dim, dim, group, group, c->ssm.n_heads};
    return any ? tern_g_scale_pieces(g, p, widths, factors) : p;
}

tern_vid tern_block_mamba(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_ssm_attrs *s = &c->ssm;
    int64_t dim = (int64_t)s->n_heads * s->head_dim, group = (int64_t)s->n_groups * s->n_state;
    int64_t n_conv = dim + 2 * group, all = dim + n_conv + s->n_heads;
    tern_vid p = project(g, c, x, dim, group);
    tern_vid z = tern_g_columns(g, p, all, 0, dim);
    tern_vid dt = tern_g_columns(g, p, all, dim + n_conv, s->n_heads);
    tern_vid taps = tern_g_array(g, "blk.%d.ssm_conv1d.weight", n_conv, c->conv_taps);
    tern_vid bias = c->conv_bias ? tern_g_vector(g, "blk.%d.ssm_conv1d.bias", n_conv) : -1;
    tern_vid tail = tern_g_fixed_state(g, "conv_tail.%d", c->conv_taps - 1, n_conv);
    tern_vid xbc = tern_g_columns(g, p, all, dim, n_conv);
    xbc = tern_g_depthwise_conv(g, xbc, taps, bias, tail, TERN_ACTIVATION_SILU);
    tern_vid a = tern_g_vector(g, "blk.%d.ssm_a", s->n_heads);
    tern_vid d = tern_g_vector(g, "blk.%d.ssm_d", s->n_heads);
    tern_vid dt_bias = tern_g_vector(g, "blk.%d.ssm_dt.bias", s->n_heads);
    tern_vid state = tern_g_fixed_state(g, "ssm.%d", (int64_t)s->n_heads * s->n_state, s->head_dim);
    tern_vid y = tern_g_ssm(g, xbc, dt, a, d, dt_bias, state, s);
    y = tern_g_mul(g, tern_g_act(g, z, TERN_ACTIVATION_SILU), y);
    if (c->ssm_norm) y = tern_block_norm(g, y, "blk.%d.ssm_norm.weight", dim, c->rms_eps);
    return tern_block_linear(g, c, y, "blk.%d.ssm_out.weight", c->n_embd, dim);
}

// ---- Config ------------------------------------------------------------------------------------

// Bounds of the steps: 0 and infinity in every published file, in whatever spelling.
static tern_status refuse_limits(const tern_config_source *s, tern_error *err) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_config_json(s, "time_step_limit");
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return TERN_OK;
    const tern_json *least = tern_json_first(doc, list);
    const tern_json *most = least ? tern_json_next(doc, list, least) : NULL;
    bool bounded = tern_json_is(most, TERN_JSON_NUMBER) && isfinite(most->number);
    if (tern_json_number(least, 0) <= 0 && !bounded) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: steps of a state space that are bounded (time_step_limit) are "
                     "not supported");
}

static tern_status refuse_biases(const tern_config_source *s, tern_error *err) {
    static const char *const names[] = {"mamba_proj_bias", "projectors_bias", "attention_bias",
                                        "mlp_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_config_bool(s, names[i], false))
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "config.json: %s is not supported",
                             names[i]);
    return TERN_OK;
}

// GGUF has the dimensions of all heads together; so has Falcon-H1, under another name.
static tern_status read_heads(const tern_config_source *s, tern_config *c, int64_t n_heads,
                              int64_t *dim, tern_error *err) {
    int64_t all = 0;
    bool stated = s->file->kind != TERN_FILE_GGUF &&
                  !tern_str_is(tern_json_str(tern_config_json(s, "mamba_d_head")), "auto");
    if (stated && tern_config_int(s, NULL, "mamba_d_head", dim))
        return tern_config_need(s, "", "mamba_d_head", 1, 4096, dim, err);
    if (!tern_config_int(s, "ssm.inner_size", "mamba_d_ssm", &all)) {
        int64_t expand = 2;
        tern_config_int(s, NULL, "mamba_expand", &expand);
        all = expand * c->n_embd;
    }
    *dim = all / n_heads;
    if (*dim >= 1 && *dim <= 4096 && *dim * n_heads == all) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: %" PRId64 " heads do not share %" PRId64 " dimensions", n_heads, all);
}

tern_status tern_config_mamba(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t taps, n_heads, n_groups, n_state, dim;
    TERN_TRY(tern_config_need(s, "ssm.conv_kernel", "mamba_d_conv", 2, 8, &taps, err));
    TERN_TRY(tern_config_need(s, "ssm.time_step_rank", "mamba_n_heads", 1, 4096, &n_heads, err));
    TERN_TRY(tern_config_need(s, "ssm.group_count", "mamba_n_groups", 1, 4096, &n_groups, err));
    TERN_TRY(tern_config_need(s, "ssm.state_size", "mamba_d_state", 1, 4096, &n_state, err));
    TERN_TRY(read_heads(s, c, n_heads, &dim, err));
    if (n_heads % n_groups != 0)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " heads of a state space in %" PRId64 " groups",
                         n_heads, n_groups);
    c->conv_taps = (int32_t)taps;
    c->ssm = (tern_ssm_attrs){.n_heads = (int32_t)n_heads,
                              .head_dim = (int32_t)dim,
                              .n_groups = (int32_t)n_groups,
                              .n_state = (int32_t)n_state};
    c->multipliers = (tern_multipliers){1, 1, {1, 1, 1, 1, 1}, 1, 1, 1, 1, 1};
    if (gguf) return TERN_OK;
    c->conv_bias = tern_config_bool(s, "mamba_conv_bias", true);
    TERN_TRY(refuse_biases(s, err));
    return refuse_limits(s, err);
}

tern_status tern_config_write_mamba(tern_gguf_writer *w, const char *name, const tern_config *c) {
    const tern_ssm_attrs *s = &c->ssm;
    char key[160];
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"ssm.conv_kernel", c->conv_taps},
                {"ssm.inner_size", (int64_t)s->n_heads * s->head_dim},
                {"ssm.state_size", s->n_state},
                {"ssm.time_step_rank", s->n_heads},
                {"ssm.group_count", s->n_groups}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, keys[i].value));
    }
    return TERN_OK;
}

void tern_config_write_mamba_json(const tern_config *c, tern_strbuf *out) {
    const tern_ssm_attrs *s = &c->ssm;
    tern_strbuf_printf(out,
                       "  \"mamba_d_conv\": %d,\n  \"mamba_d_head\": %d,\n"
                       "  \"mamba_d_state\": %d,\n  \"mamba_n_heads\": %d,\n"
                       "  \"mamba_n_groups\": %d,\n  \"mamba_conv_bias\": %s,\n"
                       "  \"mamba_proj_bias\": false,\n",
                       (int)c->conv_taps, (int)s->head_dim, (int)s->n_state, (int)s->n_heads,
                       (int)s->n_groups, c->conv_bias ? "true" : "false");
}
