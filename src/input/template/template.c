// Chat templates: the interface to the interpreter.
#include "input/input.h"

#include "input/jinja/jinja.h"

struct tern_template {
    jprogram program;
    jlimits limits;
    const char *what; // its name in messages
    const char *guess;
    tern_thinking thinking;
    tern_answer_style style;
};

static tern_status open_as(tern_template **out, tern_str source, const char *what, bool is_strict,
                           jspace space, tern_error *err) {
    tern_template *t = tern_alloc(TERN_MEM_MISC, sizeof *t);
    *out = NULL;
    if (!t) return tern_fail_memory(err, sizeof *t);
    t->what = what;
    t->limits = tern_jinja_limits;
    t->limits.strict = is_strict;
    tern_status status = tern_jinja_parse(&t->program, source, space, err);
    if (status == TERN_OK)
        *out = t;
    else
        tern_template_free(t);
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(err, status, what);
}

tern_status tern_template_open(tern_template **out, tern_str source, tern_error *err) {
    return open_as(out, source, "chat template", false, J_SPACE_TRIMMED, err);
}

tern_status tern_template_open_text(tern_template **out, tern_str source, const char *what,
                                    tern_error *err) {
    return open_as(out, source, what, true, J_SPACE_TRIMMED, err);
}

tern_status tern_template_open_task(tern_template **out, tern_str source, const char *what,
                                    tern_error *err) {
    return open_as(out, source, what, true, J_SPACE_KEPT, err);
}

const tern_answer_style *tern_template_answer_style(const tern_template *t) { return &t->style; }
void tern_template_set_answer_style(tern_template *t, tern_answer_style style) { t->style = style; }

void tern_template_set_guess(tern_template *t, const char *guess) { t->guess = guess; }

const char *tern_template_guess(const tern_template *t) { return t->guess; }
void tern_template_set_thinking(tern_template *t, tern_thinking thinking) {
    t->thinking = thinking;
}
tern_thinking tern_template_thinking(const tern_template *t) { return t->thinking; }

void tern_template_free(tern_template *t) {
    if (!t) return;
    tern_jinja_arena_free(&t->program.arena);
    tern_free(t);
}

tern_status tern_template_render(const tern_template *t, const char *variables_json,
                                 size_t variables_bytes, tern_strbuf *out, tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = TERN_OK;
    if (variables_json) status = tern_json_parse(&doc, variables_json, variables_bytes, err);
    if (status != TERN_OK) {
        tern_fail_prefix(err, status, "the chat template's variables");
    } else if (variables_json && !tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT)) {
        status = tern_fail(err, TERN_ERR_ARGUMENT,
                           "the chat template's variables must be a JSON object");
    } else {
        status = tern_jinja_render(&t->program, &t->limits, &doc, out, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, t->what);
    }
    tern_json_free(&doc);
    return status;
}
