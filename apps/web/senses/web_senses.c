// Describes a model's senses.
#include <stdio.h>
#include "apps/web/senses/web_senses.h"
#include "apps/web/web.h"
#include "tern.h"

WEB_EXPORT(web_senses) int32_t web_senses(int32_t model);

void web_senses_close(web_model *m) {
    web_images_close(m);
    web_transcribers_close(m);
    web_speeches_close(m);
}

// {"vision": {...}, "audio_rate", "voice_size", "codec_rate"}, in addition to web_model_info.
int32_t web_senses(int32_t model) {
    tern_error err = {0};
    tern_media_info i;
    char voice[16] = "null"; // not a speech model
    const web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    tern_model_get_media_info(m->model, &i);
    if (i.is_tts) snprintf(voice, sizeof voice, "%d", (int)i.n_speaker);
    tern_strbuf_printf(web_result_begin(),
                       "{\"vision\":{\"in_texts\":%s,\"n_labels\":%d,\"n_dims\":%d},"
                       "\"audio_rate\":%d,\"voice_size\":%s,\"codec_rate\":%d}",
                       i.has_vision ? "true" : "false", (int)i.n_labels, (int)i.n_dims,
                       (int)i.audio_rate, voice, (int)i.codec_rate);
    return web_result_end();
}
