// What a model does with images and sound, as its configuration says.
#include "session/session.h"

static void put_images(const tern_config *c, tern_media_info *info) {
    if (c->vision.n_layers) {
        info->image_token = (int32_t)c->vision.image_id;
        info->begin_token = (int32_t)c->vision.start_id;
        info->end_token = (int32_t)c->vision.end_id;
        info->has_vision = info->image_token >= 0;
    }
    if (!c->n_image) return;
    info->image_width = info->image_height = (int32_t)c->n_image;
    info->patch = (int32_t)c->n_patch;
    info->n_labels = (int32_t)c->n_labels;
    info->n_dims = (int32_t)c->n_embd;
}

static void put_codec(const tern_model *m, tern_media_info *info) {
    if (m->vocab_only || !tern_is_codec(m->arch)) return;
    const tern_codec codec = m->arch->media->codec(&m->config);
    info->is_codec = true;
    info->codec_rate = (int32_t)codec.rate;
    info->codec_frame = (int32_t)codec.n_frame;
    info->n_codes = codec.n_codes;
    info->n_values = (int32_t)m->config.n_vocab;
}

void tern_model_get_media_info(const tern_model *m, tern_media_info *info) {
    if (!info) return;
    *info = (tern_media_info){.image_token = -1, .begin_token = -1, .end_token = -1};
    if (!m) return;
    const tern_config *c = &m->config;
    put_images(c, info);
    put_codec(m, info);
    info->is_asr = tern_recognizer_of(m->arch) != NULL;
    info->audio_rate = info->is_asr ? TERN_VOICE_RATE : 0;
    const tern_speaker *speaker = tern_speaker_of(m->arch);
    const tern_speaking *v = speaker && !m->vocab_only ? speaker->of(c) : NULL;
    info->is_tts = v != NULL;
    info->n_speaker = v ? (int32_t)v->n_speaker : 0;
}
