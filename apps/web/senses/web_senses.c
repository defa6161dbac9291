// What a model's senses are.
#include "apps/web/web.h"
#include "tern_media.h"

WEB_EXPORT(web_senses) int32_t web_senses(int32_t model);

// {"vision": {...}, "hearing_rate"}, beside what web_model_info says.
int32_t web_senses(int32_t model) {
    tern_error err = {0};
    tern_vision_info i;
    const web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    tern_model_get_vision_info(m->model, &i);
    tern_strbuf_printf(web_result_begin(),
                       "{\"vision\":{\"in_texts\":%s,\"n_labels\":%d,\"n_dims\":%d},"
                       "\"hearing_rate\":%d}",
                       i.picture_token >= 0 ? "true" : "false", (int)i.n_labels, (int)i.n_dims,
                       (int)tern_model_hearing_rate(m->model));
    return web_result_end();
}
