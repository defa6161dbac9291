// tern ask: answers a question from a memory, and names the sources.
#include "apps/cli/memory/cli_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct ask_args {
    model_args model;
    session_args session;
    sampling_args sampling;
    memory_args memory;
    const char *question, *system;
    int n_hits, max_tokens;
} ask_args;

static const char instructions[] =
    "Answer the question with what the numbered passages say, and with nothing else. After each "
    "statement, cite the passage that it is from by its number in brackets, such as [1]. If the "
    "passages do not answer the question, say so.";

// ---- Prompt -------------------------------------------------------------------------------------

static void put_number_of(text *t, const char *format, size_t number) {
    char s[32];
    snprintf(s, sizeof s, format, number);
    text_puts(t, s);
}

static void put_prompt(text *t, const tern_memory_hits *hits, const text *question) {
    for (size_t i = 0; i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        put_number_of(t, "[%zu]", i + 1);
        if (*h->source) text_puts(t, " "), text_puts(t, h->source);
        if (*h->heading) text_puts(t, *h->source ? ", " : " "), text_puts(t, h->heading);
        text_puts(t, "\n");
        text_puts(t, h->text);
        text_puts(t, "\n\n");
    }
    text_puts(t, "Question: ");
    text_append(t, question->ptr, question->n);
}

// The context's room for passages, beside the question, the answer, the template's text and the
// passages' names. Less than 64: nothing fits.
static int room_for_passages(const ask_args *args, const tern_model *model,
                             const tern_session *session, const text *question) {
    tern_ids count = {0};
    int context = (int)tern_session_n_context(session), most = args->max_tokens;
    tern_error err = {0};
    if (tern_tokenize(model, question->ptr, question->n, TERN_TOKENIZE_PLAIN, &count, &err) !=
        TERN_OK)
        return -1;
    int answer = args->sampling.n_max && args->sampling.n_max < context / 4 ? args->sampling.n_max
                                                                            : context / 4;
    int rest = context - answer - 96 - 16 * args->n_hits -
               (count.n < (size_t)context ? (int)count.n : context);
    return most && most < rest ? most : rest;
}

// ---- Answer -------------------------------------------------------------------------------------

typedef struct answer {
    text all;
    bool json;
} answer;

static bool on_text(void *user, const char *bytes, size_t n) {
    answer *a = user;
    text_append(&a->all, bytes, n);
    return a->json || write_shown(NULL, bytes, n);
}

// Whether the answer has "[number]", alone or in a list such as "[1, 3]".
static bool cites(const char *s, size_t number) {
    for (bool inside = false; *s; s++) {
        if (*s == '[')
            inside = true;
        else if (inside && *s >= '0' && *s <= '9') {
            char *end;
            if (strtoul(s, &end, 10) == number) return true;
            s = end - 1;
        } else if (*s != ',' && *s != ' ')
            inside = false;
    }
    return false;
}

static void print_sources(const answer *a, const tern_memory_hits *hits) {
    size_t n_cited = 0;
    for (size_t i = 0; i < hits->n; i++) n_cited += cites(a->all.ptr ? a->all.ptr : "", i + 1);
    printf("\n\n%s\n", n_cited ? "Sources:" : "Passages (the answer cites none):");
    for (size_t i = 0; i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        if (n_cited && !cites(a->all.ptr, i + 1)) continue;
        if (*h->source)
            printf("[%zu] ", i + 1), put_plain(stdout, h->source),
                printf(":%d", (int)h->first_line);
        else
            printf("[%zu] record %lld", i + 1, (long long)h->record);
        if (*h->heading) printf("  "), put_plain(stdout, h->heading);
        printf("\n");
    }
}

static void print_json(const answer *a, const tern_memory_hits *hits, const tern_chat_stats *s) {
    const char *said = a->all.ptr ? a->all.ptr : "";
    printf("{\"answer\":");
    put_json(stdout, said, a->all.n);
    printf(",\"prompt_tokens\":%zu,\"generated_tokens\":%zu,\"stop_reason\":\"%s\",\"passages\":[",
           s->generate.n_prompt, s->generate.n_generated, stop_reason_name(s->generate.reason));
    for (size_t i = 0; i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        printf(
            "%s{\"number\":%zu,\"cited\":%s,\"record\":%lld,\"line\":%d,\"source\":", i ? "," : "",
            i + 1, cites(said, i + 1) ? "true" : "false", (long long)h->record, (int)h->first_line);
        put_json(stdout, h->source, strlen(h->source));
        printf(",\"heading\":");
        put_json(stdout, h->heading, strlen(h->heading));
        printf(",\"text\":");
        put_json(stdout, h->text, h->n_bytes);
        printf("}");
    }
    printf("]}\n");
}

static int give_answer(ask_args *args, tern_session *session, const tern_memory_hits *hits,
                       const text *question) {
    tern_generate_params params = generate_params(&args->sampling);
    tern_chat_stats stats = {0};
    tern_error err = {0};
    answer a = {.json = args->memory.json};
    text prompt = {0};
    put_prompt(&prompt, hits, question);
    const tern_message messages[] = {
        {.role = "system", .content = args->system ? args->system : instructions},
        {.role = "user", .content = prompt.ptr}};
    params.on_text = on_text;
    params.user = &a;
    tern_status status = tern_chat_answer(session, messages, 2, &params, &stats, &err);
    if (status == TERN_OK && a.json)
        print_json(&a, hits, &stats);
    else if (status == TERN_OK)
        print_sources(&a, hits);
    else if (!a.json && a.all.n)
        putchar('\n');
    fflush(stdout);
    if (status == TERN_OK && (args->model.verbose || (isatty(STDERR_FILENO) && !a.json)))
        print_stats(&stats.generate);
    free(prompt.ptr);
    free(a.all.ptr);
    return status == TERN_OK ? EXIT_OK : fail("%s", err.message);
}

// ---- Command ------------------------------------------------------------------------------------

static int ask(const command *self, ask_args *args, tern_model *model, tern_session *session,
               memory *m, const tern_memory_filter *filters, const text *question) {
    tern_memory_hits *hits = NULL;
    tern_error err = {0};
    tern_memory_query query = {.text = question->ptr,
                               .n_bytes = question->n,
                               .n_most = args->n_hits,
                               .max_tokens = room_for_passages(args, model, session, question),
                               .filters = filters,
                               .n_filters = args->memory.where.n};
    int status = EXIT_FAILED;
    if (query.max_tokens < 64)
        return fail("the context of %d tokens has no room for passages (-c)",
                    (int)tern_session_n_context(session));
    if (!open_reranker(self, &args->memory, m, &status)) return status;
    query.reranker = m->reranker;
    query.n_candidates = args->memory.n_candidates;
    status = EXIT_FAILED;
    if (tern_memory_recall(m->store, &query, &hits, &err) != TERN_OK)
        fail("%s", err.message);
    else if (hits->n == 0)
        fail("%s: nothing in it has to do with the question", args->memory.folder);
    else
        status = give_answer(args, session, hits, question);
    tern_memory_hits_free(hits);
    return status;
}

static int open_and_ask(const command *self, ask_args *args, const text *question) {
    int status;
    memory m = {0};
    tern_memory_filter *filters = NULL;
    tern_session *session = NULL;
    if (!read_filters(self, &args->memory.where, &filters)) {
        free_filters(filters, args->memory.where.n);
        return EXIT_USAGE;
    }
    tern_model *model = open_model(self, &args->model, &status);
    if (model) {
        note_template(model);
        session = open_session(model, &args->session);
        status = EXIT_FAILED;
        if (session && open_memory(self, &args->memory, true, true, model, &m, &status))
            status = ask(self, args, model, session, &m, filters, question);
    }
    tern_session_close(session);
    close_memory(&m);
    tern_model_close(model);
    free_filters(filters, args->memory.where.n);
    return status;
}

int cmd_ask(const command *self, int argc, char **argv) {
    ask_args args = {.model.finds_gpu = true, .sampling = sampling_args_default(), .n_hits = 6};
    const option options[] = {
        OPTIONS_GROUP("Question"),
        {'q', "question", OPTION_TEXT, &args.question, "TEXT", "the question; -: read it",
         .position = 2},
        {0, "memory", OPTION_TEXT, &args.memory.folder, "DIR", "the folder that the memory is in"},
        {0, "hits", OPTION_COUNT, &args.n_hits, "N", "passages at most (6)", 1, 1000},
        {0, "max-tokens", OPTION_COUNT, &args.max_tokens, "N",
         "tokens of all passages together, 0: what the context has room for (0)", 0, 1000000000},
        RERANK_OPTIONS(args.memory),
        WHERE_OPTION(args.memory),
        {0, "embedder", OPTION_TEXT, &args.memory.model.path, "MODEL",
         "the model of the memory's vectors; none: words alone (the one that made them)"},
        {0, "system", OPTION_TEXT, &args.system, "TEXT", "what the model is told to do instead"},
        {0, "json", OPTION_FLAG, &args.memory.json, NULL, "print one JSON object at the end"},
        MODEL_OPTIONS(args.model),
        TEMPLATE_OPTION(args.model),
        SESSION_OPTIONS(args.session),
        SAMPLING_OPTIONS(args.sampling),
        OPTIONS_END,
    };
    int status, n;
    text question = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!args.memory.folder || !args.question)
        return bad_usage("ask: give a question and --memory (usage: tern ask %s)", self->usage);
    if (!text_given(&question, args.question, NULL)) return EXIT_FAILED;
    args.memory.model.folder = args.model.folder;
    args.memory.model.device = args.model.device;
    args.memory.model.n_threads = args.model.n_threads;
    status = open_and_ask(self, &args, &question);
    free(question.ptr);
    free(args.memory.where.items);
    free(args.sampling.stops.items);
    return status;
}
