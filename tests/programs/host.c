// A program that embeds the library: it has the model's file in memory, keeps the library's log,
// shows what the file says of itself and how far a prompt is, and answers several users at once.
#include "program.h"

typedef struct host {
    text log;
    int n_warnings, n_released, n_ended;
    double progress; // of the prompt
} host;

typedef struct user_answer {
    host *of;
    text said;
    size_t n_tokens;
} user_answer;

static void on_log(void *user, tern_log_level level, const char *line) {
    host *h = (host *)user;
    text_put(&h->log, line, strlen(line));
    text_put(&h->log, "\n", 1);
    h->n_warnings += level == TERN_LOG_WARN;
}

static bool on_load(void *user, const char *phase, double fraction) {
    (void)user;
    return strcmp(phase, "load") == 0 && fraction >= 0 && fraction <= 1;
}

static void on_release(void *user) { ((host *)user)->n_released++; }

static bool on_text(void *user, const char *bytes, size_t n) {
    return text_put(&((user_answer *)user)->said, bytes, n);
}

static bool on_prompt(void *user, const char *phase, double fraction) {
    (void)phase;
    ((user_answer *)user)->of->progress = fraction;
    return true;
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    user_answer *a = (user_answer *)user;
    (void)session;
    CHECK(err->status == TERN_OK);
    a->n_tokens = stats->n_generated;
    a->of->n_ended++;
}

static void read_file(const char *path, text *out) {
    char block[4096];
    FILE *f = fopen(path, "rb");
    if (!f) exit(2);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) text_put(out, block, n);
    fclose(f);
}

static void show_metadata(const tern_model *model) {
    tern_metadata value, element;
    size_t n = tern_model_n_metadata(model), n_arrays = 0;
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++) {
        CHECK(tern_model_metadata_at(model, i, &value));
        if (value.kind != TERN_METADATA_ARRAY || value.n == 0) continue;
        n_arrays++;
        CHECK(tern_model_metadata_element(model, value.key, value.n - 1, &element));
    }
    CHECK(n_arrays > 0);
    CHECK(tern_model_metadata(model, "general.architecture", &value) && value.text);
}

// Two users share a system text; one of them takes back what was said and goes on otherwise.
static void serve(tern_model *model, host *h) {
    tern_error err = ZEROS;
    tern_group *group = NULL;
    tern_session *sessions[2] = {NULL, NULL};
    user_answer answers[2];
    int32_t room[64];
    tern_ids ids = ZEROS;
    size_t n_running = 1;
    memset(answers, 0, sizeof answers);
    ids.ids = room;
    ids.capacity = 64;
    const char *prompt = "Once upon a time";
    NEED(tern_tokenize(model, prompt, strlen(prompt), TERN_TOKENIZE_BOS, &ids, &err), err);
    CHECK(ids.n <= ids.capacity);
    NEED(tern_session_open(&sessions[0], model, NULL, &err), err);
    NEED(tern_session_sync(sessions[0], room, ids.n, NULL, &err), err);
    NEED(tern_session_fork(&sessions[1], sessions[0], ids.n, &err), err);
    NEED(tern_group_open(&group, model, NULL, &err), err);
    for (int i = 0; i < 2; i++) {
        tern_sampling sampling = tern_sampling_default();
        tern_generate_params params = ZEROS;
        sampling.seed = 1;
        answers[i].of = h;
        params.sampling = &sampling;
        params.max_tokens = 8;
        params.ignore_end = true;
        params.append = true; // the prompt is there already
        params.on_text = on_text;
        params.on_progress = on_prompt;
        params.on_end = on_end;
        params.user = &answers[i];
        NEED(tern_group_add(group, sessions[i], NULL, 0, &params, &err), err);
    }
    while (n_running > 0) NEED(tern_group_step(group, &n_running, &err), err);
    CHECK(h->n_ended == 2 && h->progress == 1);
    CHECK(answers[0].n_tokens == 8 && answers[1].n_tokens == 8);
    CHECK(answers[0].said.n == answers[1].said.n);
    CHECK(!strcmp(answers[0].said.bytes, answers[1].said.bytes)); // the same seed
    NEED(tern_session_truncate(sessions[0], ids.n + 2, &err), err);
    CHECK(tern_session_n_tokens(sessions[0]) == ids.n + 2);
    CHECK(tern_session_truncate(sessions[0], ids.n + 3, &err) == TERN_ERR_ARGUMENT);
    tern_group_close(group);
    for (int i = 0; i < 2; i++) {
        tern_session_close(sessions[i]);
        text_free(&answers[i].said);
    }
}

int main(int argc, char **argv) {
    tern_error err = ZEROS;
    tern_model *model = NULL;
    tern_model_desc desc = ZEROS;
    text file = ZEROS;
    host h;
    memset(&h, 0, sizeof h);
    if (argc < 2) return 2;
    read_file(argv[1], &file);
    desc.bytes.bytes = file.bytes;
    desc.bytes.n_bytes = file.n;
    desc.on_release = on_release;
    desc.on_progress = on_load;
    desc.on_log = on_log;
    desc.user = &h;
    desc.n_threads = 2;
    NEED(tern_model_open(&model, "embedded", &desc, &err), err);
    show_metadata(model);
    serve(model, &h);
    tern_model_close(model);
    CHECK(h.n_released == 1);
    CHECK(h.log.bytes && strstr(h.log.bytes, "embedded: "));
    text_free(&h.log);
    text_free(&file);
    return n_failed != 0;
}
