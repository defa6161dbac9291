// Reads a task file. Fields that would change the figures and that tern does not have are refused;
// those that only say where the data is, or what it is called, are skipped.
#include "tasks/eval/file/eval_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/eval/eval.h"

// One value of the file and where it stands.
typedef struct place {
    tern_eval_file *f;
    const tern_json *value;
    const char *field;
    tern_error *err;
} place;

static tern_status refuse(const place *p, const char *reason) {
    return tern_fail(p->err, TERN_ERR_FORMAT, "%s:%u: %s: %s", p->f->path,
                     p->value ? p->value->line : 1, p->field, reason);
}

// ---- Values ------------------------------------------------------------------------------------

static tern_status copy_text(const place *p, char **out) {
    tern_str s = tern_json_str(p->value);
    if (!s.ptr) return refuse(p, "expected a text");
    if (memchr(s.ptr, 0, s.len)) return refuse(p, "there is a zero byte in the text");
    tern_free(*out); // of a field that is there twice
    *out = tern_alloc(TERN_MEM_MISC, s.len + 1);
    if (!*out) return tern_fail_memory(p->err, s.len + 1);
    memcpy(*out, s.ptr, s.len);
    return TERN_OK;
}

static tern_status read_flag(const place *p, bool *out) {
    if (!tern_json_is(p->value, TERN_JSON_BOOL)) return refuse(p, "expected true or false");
    *out = tern_json_bool(p->value, false);
    return TERN_OK;
}

static tern_status read_count(const place *p, int least, int most, int *out) {
    int64_t n = tern_json_int(p->value, INT64_MIN);
    char reason[64];
    snprintf(reason, sizeof reason, "expected a whole number from %d to %d", least, most);
    if (n < least || n > most) return refuse(p, reason);
    *out = (int)n;
    return TERN_OK;
}

static tern_status compile(const place *p, void **out) {
    tern_error why = {0};
    tern_str s = tern_json_str(p->value);
    if (!s.ptr) return refuse(p, "expected an expression");
    tern_status status = tern_eval_regex_compile(out, s, &why);
    return status == TERN_ERR_FORMAT ? refuse(p, why.message)
           : status == TERN_OK       ? TERN_OK
                                     : tern_fail(p->err, status, "%s", why.message);
}

// name: of the field, for messages.
static tern_status open_template(const place *p, tern_eval_text *t, const char *name) {
    tern_error why = {0};
    TERN_TRY(copy_text(p, &t->source));
    tern_template_free(t->template);
    t->template = NULL;
    tern_status status =
        tern_template_open_task(&t->template, (tern_str){t->source, strlen(t->source)}, name, &why);
    if (status == TERN_OK) return TERN_OK;
    return tern_fail(p->err, status, "%s:%u: %s", p->f->path, p->value->line, why.message);
}

// Calls read for each element of a list of at most TERN_EVAL_LIST_MAX.
static tern_status each(const place *list, tern_status (*read)(const place *element)) {
    if (!tern_json_is(list->value, TERN_JSON_ARRAY)) return refuse(list, "expected a list");
    if (list->value->n > TERN_EVAL_LIST_MAX) return refuse(list, "expected at most 8 elements");
    for (const tern_json *v = tern_json_first(&list->f->doc, list->value); v;
         v = tern_json_next(&list->f->doc, list->value, v))
        TERN_TRY(read(&(place){list->f, v, list->field, list->err}));
    return TERN_OK;
}

// ---- Objects -----------------------------------------------------------------------------------

// A field that may be in an object. read NULL: it changes nothing and is skipped.
typedef struct field {
    const char *name;
    tern_status (*read)(const place *p);
} field;

static tern_status read_fields(const place *object, const field *fields, size_t n) {
    tern_eval_file *f = object->f;
    if (!tern_json_is(object->value, TERN_JSON_OBJECT)) return refuse(object, "expected an object");
    for (const tern_json *key = tern_json_first(&f->doc, object->value); key;) {
        const tern_json *value = tern_json_value_of(&f->doc, key);
        char name[64];
        tern_str s = tern_json_str(key);
        snprintf(name, sizeof name, "%.*s", (int)(s.len < 63 ? s.len : 63), s.ptr);
        size_t i = 0;
        while (i < n && !tern_str_is(s, fields[i].name)) i++;
        const place p = {f, value, name, object->err};
        if (i == n) return refuse(&p, "tern does not know this field");
        if (fields[i].read && !tern_json_is(value, TERN_JSON_NULL)) TERN_TRY(fields[i].read(&p));
        key = tern_json_next(&f->doc, object->value, key);
    }
    return TERN_OK;
}
#define READ_FIELDS(object, fields) read_fields(object, fields, sizeof(fields) / sizeof *(fields))

// ---- Generation --------------------------------------------------------------------------------

static tern_status read_stop(const place *p) {
    if (p->f->n_stops == TERN_EVAL_LIST_MAX) return refuse(p, "expected at most 8 texts");
    char **stop = &p->f->stops[p->f->n_stops];
    TERN_TRY(copy_text(p, stop));
    p->f->n_stops += **stop != 0; // an empty one stops nothing
    return TERN_OK;
}
static tern_status read_until(const place *p) {
    return tern_json_is(p->value, TERN_JSON_STRING) ? read_stop(p) : each(p, read_stop);
}
static tern_status read_max_tokens(const place *p) {
    return read_count(p, 1, 1 << 20, &p->f->max_tokens);
}
static tern_status read_temperature(const place *p) {
    double t = tern_json_number(p->value, -1);
    if (!(t >= 0 && t <= 100)) return refuse(p, "expected a number from 0 to 100");
    p->f->temperature = (float)t;
    return TERN_OK;
}
static tern_status read_generation(const place *p) {
    static const field fields[] = {{"until", read_until},
                                   {"max_gen_toks", read_max_tokens},
                                   {"temperature", read_temperature},
                                   {"do_sample", NULL}};
    tern_eval_file *f = p->f;
    TERN_TRY(READ_FIELDS(p, fields));
    const tern_json *sample = tern_json_get(&f->doc, p->value, "do_sample");
    if (sample && !tern_json_bool(sample, true)) f->temperature = 0;
    return TERN_OK;
}

// ---- Filters -----------------------------------------------------------------------------------

static tern_eval_step *last_step(tern_eval_file *f) {
    tern_eval_filter *filter = &f->filters[f->n_filters - 1];
    return &filter->steps[filter->n_steps - 1];
}
static tern_status read_function(const place *p) {
    static const char *const names[] = {"regex", "lowercase", "uppercase", "remove_whitespace"};
    tern_str s = tern_json_str(p->value);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_str_is(s, names[i])) {
            last_step(p->f)->kind = (tern_eval_step_kind)i;
            return TERN_OK;
        }
    if (tern_str_is(s, "take_first")) { // of repeated answers; here there is one
        p->f->filters[p->f->n_filters - 1].n_steps--;
        return TERN_OK;
    }
    return refuse(p, "expected regex, take_first, lowercase, uppercase or remove_whitespace");
}
static tern_status read_pattern(const place *p) {
    tern_eval_regex_free(last_step(p->f)->code);
    last_step(p->f)->code = NULL;
    return compile(p, &last_step(p->f)->code);
}
static tern_status read_select(const place *p) {
    return read_count(p, -1000, 1000, &last_step(p->f)->select);
}
static tern_status read_instead(const place *p) { return copy_text(p, &last_step(p->f)->instead); }
static tern_status read_step(const place *p) {
    static const field fields[] = {{"function", NULL},
                                   {"regex_pattern", read_pattern},
                                   {"group_select", read_select},
                                   {"fallback", read_instead}};
    tern_eval_filter *filter = &p->f->filters[p->f->n_filters - 1];
    if (filter->n_steps == TERN_EVAL_LIST_MAX) return refuse(p, "expected at most 8 steps");
    tern_eval_step *step = &filter->steps[filter->n_steps++];
    tern_free(step->instead); // of a take_first, whose place it was
    *step = (tern_eval_step){0};
    TERN_TRY(READ_FIELDS(p, fields));
    int n = filter->n_steps;
    const tern_json *function = tern_json_get(&p->f->doc, p->value, "function");
    bool has_code = step->code != NULL;
    TERN_TRY(read_function(&(place){p->f, function ? function : p->value, "function", p->err}));
    if (filter->n_steps < n || step->kind != TERN_STEP_REGEX)
        return has_code ? refuse(p, "only the function regex has an expression") : TERN_OK;
    return has_code ? TERN_OK : refuse(p, "the function regex needs a regex_pattern");
}
static tern_status read_steps(const place *p) { return each(p, read_step); }
static tern_status read_filter_name(const place *p) {
    tern_eval_filter *filter = &p->f->filters[p->f->n_filters - 1];
    tern_str s = tern_json_str(p->value);
    if (s.len < 1 || s.len >= sizeof filter->name) return refuse(p, "expected 1 to 47 bytes");
    snprintf(filter->name, sizeof filter->name, "%.*s", (int)s.len, s.ptr);
    for (int i = 0; i < p->f->n_filters - 1; i++)
        if (!strcmp(p->f->filters[i].name, filter->name))
            return refuse(p, "another filter has this name");
    return TERN_OK;
}
static tern_status read_filter(const place *p) {
    static const field fields[] = {{"name", read_filter_name}, {"filter", read_steps}};
    if (p->f->n_filters == TERN_EVAL_LIST_MAX) return refuse(p, "expected at most 8 filters");
    p->f->filters[p->f->n_filters++] = (tern_eval_filter){.name = ""};
    TERN_TRY(READ_FIELDS(p, fields));
    return p->f->filters[p->f->n_filters - 1].name[0] ? TERN_OK : refuse(p, "it has no name");
}
static tern_status read_filters(const place *p) { return each(p, read_filter); }

// ---- Metrics -----------------------------------------------------------------------------------

static tern_status read_metric_name(const place *p) {
    tern_str s = tern_json_str(p->value);
    if (tern_str_is(s, "acc"))
        p->f->metrics |= TERN_EVAL_ACC;
    else if (tern_str_is(s, "acc_norm"))
        p->f->metrics |= TERN_EVAL_NORM;
    else if (!tern_str_is(s, "exact_match"))
        return refuse(p, "expected acc, acc_norm or exact_match");
    return TERN_OK;
}
static tern_status read_ignored(const place *p) {
    tern_eval_match *m = &p->f->match;
    if (m->n_ignored == TERN_EVAL_LIST_MAX) return refuse(p, "expected at most 8 expressions");
    TERN_TRY(compile(p, &m->ignored[m->n_ignored]));
    m->n_ignored++;
    return TERN_OK;
}
static tern_status read_all_ignored(const place *p) { return each(p, read_ignored); }
static tern_status read_case(const place *p) { return read_flag(p, &p->f->match.ignore_case); }
static tern_status read_punctuation(const place *p) {
    return read_flag(p, &p->f->match.ignore_punctuation);
}
static tern_status read_numbers(const place *p) {
    return read_flag(p, &p->f->match.ignore_numbers);
}
static tern_status read_aggregation(const place *p) {
    return tern_str_is(tern_json_str(p->value), "mean") ? TERN_OK : refuse(p, "expected \"mean\"");
}
static tern_status read_direction(const place *p) {
    return tern_json_bool(p->value, false) ? TERN_OK : refuse(p, "expected true");
}
static tern_status read_metric(const place *p) {
    static const field fields[] = {{"metric", read_metric_name},
                                   {"aggregation", read_aggregation},
                                   {"higher_is_better", read_direction},
                                   {"ignore_case", read_case},
                                   {"ignore_punctuation", read_punctuation},
                                   {"ignore_numbers", read_numbers},
                                   {"regexes_to_ignore", read_all_ignored}};
    return READ_FIELDS(p, fields);
}
static tern_status read_metrics(const place *p) { return each(p, read_metric); }

// ---- The file ----------------------------------------------------------------------------------

static tern_status read_name(const place *p) {
    tern_str s = tern_json_str(p->value);
    if (s.len < 1 || s.len >= sizeof p->f->name) return refuse(p, "expected 1 to 127 bytes");
    snprintf(p->f->name, sizeof p->f->name, "%.*s", (int)s.len, s.ptr);
    return TERN_OK;
}
static tern_status read_type(const place *p) {
    tern_str s = tern_json_str(p->value);
    p->f->generates = tern_str_is(s, "generate_until");
    if (p->f->generates || tern_str_is(s, "multiple_choice")) return TERN_OK;
    return refuse(p, "expected multiple_choice or generate_until");
}
static tern_status read_question(const place *p) {
    return open_template(p, &p->f->question, "doc_to_text");
}
static tern_status read_description(const place *p) {
    return open_template(p, &p->f->description, "description");
}
static tern_status read_target(const place *p) {
    return open_template(p, &p->f->target, "doc_to_target");
}
static tern_status check_choice(const place *p) {
    tern_str s = tern_json_str(p->value);
    return s.ptr && s.len ? TERN_OK : refuse(p, "expected texts that are not empty");
}
static tern_status read_choices(const place *p) {
    p->f->choice_list = NULL; // of a field that is there twice
    if (!tern_json_is(p->value, TERN_JSON_ARRAY))
        return open_template(p, &p->f->choices, "doc_to_choice");
    if (p->value->n < 2 || p->value->n > TERN_EVAL_ANSWERS_MAX)
        return refuse(p, "expected 2 to 64 texts");
    for (const tern_json *v = tern_json_first(&p->f->doc, p->value); v;
         v = tern_json_next(&p->f->doc, p->value, v))
        TERN_TRY(check_choice(&(place){p->f, v, p->field, p->err}));
    p->f->choice_list = p->value;
    return TERN_OK;
}
static tern_status read_target_delimiter(const place *p) {
    return copy_text(p, &p->f->target_delimiter);
}
static tern_status read_shots_delimiter(const place *p) {
    return copy_text(p, &p->f->shots_delimiter);
}
static tern_status read_shots(const place *p) { return read_count(p, 0, 1000, &p->f->n_shots); }
static tern_status read_repeats(const place *p) {
    int once;
    return read_count(p, 1, 1, &once);
}

static const field fields_of_a_task[] = {
    {"task", read_name},
    {"output_type", read_type},
    {"description", read_description},
    {"doc_to_text", read_question},
    {"doc_to_target", read_target},
    {"doc_to_choice", read_choices},
    {"target_delimiter", read_target_delimiter},
    {"fewshot_delimiter", read_shots_delimiter},
    {"num_fewshot", read_shots},
    {"generation_kwargs", read_generation},
    {"filter_list", read_filters},
    {"metric_list", read_metrics},
    {"repeats", read_repeats},
    // Where the data is: here it is a file of its own.
    {"dataset_path", NULL},
    {"dataset_name", NULL},
    {"dataset_kwargs", NULL},
    {"training_split", NULL},
    {"validation_split", NULL},
    {"test_split", NULL},
    {"fewshot_split", NULL},
    {"tag", NULL},
    {"task_alias", NULL},
    {"metadata", NULL},
    {"should_decontaminate", NULL},
    {"doc_to_decontamination_query", NULL},
};

static tern_status keep_default(char **text, const char *otherwise, tern_error *err) {
    if (*text) return TERN_OK;
    *text = tern_alloc(TERN_MEM_MISC, strlen(otherwise) + 1);
    if (!*text) return tern_fail_memory(err, strlen(otherwise));
    strcpy(*text, otherwise);
    return TERN_OK;
}

// Defaults, and what must be there.
static tern_status complete(tern_eval_file *f, tern_error *err) {
    const place p = {f, tern_json_root(&f->doc),
                     f->generates ? "generate_until" : "multiple_choice", err};
    if (!f->name[0]) return refuse(&(place){f, p.value, "task", err}, "it has no name");
    if (!f->question.source) return refuse(&p, "doc_to_text is needed");
    if (!f->target.source) return refuse(&p, "doc_to_target is needed");
    if (!f->generates && !f->choice_list && !f->choices.source)
        return refuse(&p, "doc_to_choice is needed");
    if (f->generates && (f->metrics || f->choice_list || f->choices.source))
        return refuse(&p, "it has neither doc_to_choice nor acc");
    TERN_TRY(keep_default(&f->target_delimiter, " ", err));
    TERN_TRY(keep_default(&f->shots_delimiter, "\n\n", err));
    if (f->generates && !f->n_stops && f->shots_delimiter[0]) {
        TERN_TRY(keep_default(&f->stops[0], f->shots_delimiter, err));
        f->n_stops = 1;
    }
    if (!f->max_tokens) f->max_tokens = TERN_EVAL_TOKENS_MAX;
    if (!f->n_filters) f->n_filters = 1; // without a name and steps
    if (!f->generates && !f->metrics) f->metrics = TERN_EVAL_ACC | TERN_EVAL_NORM;
    return TERN_OK;
}

static tern_status read_bytes(tern_eval_file *f, tern_error *err) {
    char piece[4096];
    size_t n;
    FILE *file = fopen(f->path, "rb");
    if (!file)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", f->path, strerror(errno));
    while ((n = fread(piece, 1, sizeof piece, file)) > 0 && f->bytes.len <= TERN_EVAL_FILE_MAX)
        tern_strbuf_append(&f->bytes, piece, n);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) return tern_fail(err, TERN_ERR_IO, "%s: cannot be read", f->path);
    if (f->bytes.failed) return tern_fail_memory(err, f->bytes.len);
    if (f->bytes.len <= TERN_EVAL_FILE_MAX) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "%s: a task file has at most %zu bytes", f->path,
                     TERN_EVAL_FILE_MAX);
}

tern_status tern_eval_file_open(tern_eval_file *f, const char *path, const char *text,
                                tern_error *err) {
    *f = (tern_eval_file){.path = path};
    if (text)
        tern_strbuf_puts(&f->bytes, text);
    else
        TERN_TRY(read_bytes(f, err));
    if (f->bytes.failed) return tern_fail_memory(err, f->bytes.len);
    tern_status status = tern_json_parse(&f->doc, tern_strbuf_text(&f->bytes), f->bytes.len, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, path);
    TERN_TRY(
        READ_FIELDS((&(place){f, tern_json_root(&f->doc), "the task", err}), fields_of_a_task));
    return complete(f, err);
}

static void free_text(tern_eval_text *t) {
    tern_template_free(t->template);
    tern_free(t->source);
}

void tern_eval_file_close(tern_eval_file *f) {
    free_text(&f->description);
    free_text(&f->question);
    free_text(&f->target);
    free_text(&f->choices);
    tern_free(f->target_delimiter);
    tern_free(f->shots_delimiter);
    for (int i = 0; i < TERN_EVAL_LIST_MAX; i++) {
        tern_free(f->stops[i]);
        tern_eval_regex_free(f->match.ignored[i]);
        for (int k = 0; k < TERN_EVAL_LIST_MAX; k++) {
            tern_eval_regex_free(f->filters[i].steps[k].code);
            tern_free(f->filters[i].steps[k].instead);
        }
    }
    tern_json_free(&f->doc);
    tern_strbuf_free(&f->bytes);
    *f = (tern_eval_file){0};
}
