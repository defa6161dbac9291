// tern memory recall: finds the passages that answer a question best.
#include "cli_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_text(FILE *f, const char *name, const char *s) {
    fprintf(f, ",\"%s\":", name);
    put_json(f, s, strlen(s));
}

static void print_json(const tern_memory_hit *h) {
    printf("{\"id\":%lld,\"record\":%lld", (long long)h->id, (long long)h->record);
    put_number(stdout, "score", "%.9g", (double)h->score);
    put_number(stdout, "similarity", "%.9g", (double)h->similarity);
    put_number(stdout, "relevance", "%.9g", (double)h->relevance);
    printf(",\"vector_rank\":%d,\"word_rank\":%d,\"tokens\":%d,\"line\":%d,\"created\":%lld",
           (int)h->vector_rank, (int)h->word_rank, (int)h->n_tokens, (int)h->first_line,
           (long long)h->created);
    put_text(stdout, "source", h->source);
    put_text(stdout, "heading", h->heading);
    printf(",\"metadata\":%s", h->metadata);
    put_text(stdout, "text", h->text);
    printf("}\n");
}

static void print_hit(size_t number, const tern_memory_hit *h) {
    printf("%s[%zu] ", number > 1 ? "\n" : "", number);
    if (*h->source)
        put_plain(stdout, h->source), printf(":%d", (int)h->first_line);
    else
        printf("record %lld", (long long)h->record);
    if (*h->heading) printf("  "), put_plain(stdout, h->heading);
    if (!isnan(h->relevance))
        printf("  (relevance %.2f)", (double)h->relevance);
    else if (!isnan(h->similarity))
        printf("  (similarity %.2f)", (double)h->similarity);
    printf("\n");
    put_running(stdout, h->text);
    printf("\n");
}

int memory_recall(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_memory_query query = {0};
    tern_memory_hits *hits = NULL;
    tern_memory_filter *filters = NULL;
    tern_error err = {0};
    const char *words = NULL;
    int search = 0, n_most = 8, max_tokens = 0;
    bool context = false;
    const option options[] = {
        MEMORY_OPTION(args),
        {'q', "query", OPTION_TEXT, &words, "TEXT", "the question; -: read it", .position = 2},
        {'n', "hits", OPTION_COUNT, &n_most, "N", "passages at most (8)", 1, 100000},
        {0, "max-tokens", OPTION_COUNT, &max_tokens, "N",
         "tokens of all passages together, 0: any number (0)", 0, 1000000000},
        {0, "search", OPTION_CHOICE, &search, "hybrid|vectors|words", "how to look (hybrid)"},
        {0, "least-similarity", OPTION_NUMBER, &query.least_similarity, "S",
         "cosine of what vectors alone find, 0: any (0)", 0, 1},
        {0, "exact", OPTION_FLAG, &query.exact, NULL,
         "compare all vectors in full precision: slow"},
        RERANK_OPTIONS(args),
        WHERE_OPTION(args),
        {0, "context", OPTION_FLAG, &context, NULL, "print the texts alone, for a prompt"},
        JSON_OPTION(args),
        EMBEDDER_OPTIONS(args, 'm', "model"),
        HUB_OPTIONS,
        THREADS_OPTION(args),
        OPTIONS_END,
    };
    int status, n;
    text question = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!args.folder || !words)
        return bad_usage("%s: give a memory and a question (usage: tern %s %s)", self->name,
                         self->name, self->usage);
    if (!text_given(&question, words, NULL)) return EXIT_FAILED;
    query.text = question.ptr;
    query.n_bytes = question.n;
    query.n_most = n_most;
    query.max_tokens = max_tokens;
    query.search = (tern_memory_search)search;
    query.n_filters = args.where.n;
    if (!read_filters(self, &args.where, &filters))
        status = EXIT_USAGE;
    else if (open_memory(self, &args, true, search != TERN_MEMORY_WORDS || max_tokens, NULL, &m,
                         &status) &&
             open_reranker(self, &args, &m, &status)) {
        query.reranker = m.reranker;
        query.n_candidates = args.n_candidates;
        query.filters = filters;
        status = exit_status(tern_memory_recall(m.store, &query, &hits, &err), &err);
    }
    if (hits && context && hits->n) printf("%s\n", hits->context);
    for (size_t i = 0; hits && !context && i < hits->n; i++) {
        if (args.json)
            print_json(&hits->list[i]);
        else
            print_hit(i + 1, &hits->list[i]);
    }
    tern_memory_hits_free(hits);
    close_filtered(&m, &args, filters);
    free(question.ptr);
    return status;
}
