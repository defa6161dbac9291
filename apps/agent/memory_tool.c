// search_memory: the passages of a memory (tern_memory.h) that are relevant to a question.
#include <string.h>
#include "apps/agent/tools.h"
#include "base/alloc.h"
#include "base/json/json.h"

#define HITS_MOST 6

typedef struct memory_search {
    tern_memory_store *store;
    tern_model *reranker;
    int32_t n_candidates;
} memory_search;

static bool run_search(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    const memory_search *m = user;
    tern_json_doc doc = {0};
    tern_memory_hits *hits = NULL;
    tern_error err = {0};
    tern_strbuf out = {0};
    tern_str query = {0};
    if (tern_json_parse(&doc, call->arguments, strlen(call->arguments), NULL) == TERN_OK)
        query = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "query"));
    const tern_memory_query q = {.text = query.ptr,
                                 .n_bytes = query.len,
                                 .n_most = HITS_MOST,
                                 .reranker = m->reranker,
                                 .n_candidates = m->n_candidates};
    bool ok = query.len && tern_memory_recall(m->store, &q, &hits, &err) == TERN_OK;
    for (size_t i = 0; ok && i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        tern_strbuf_printf(&out, "%s[%zu] ", i ? "\n\n" : "", i + 1);
        if (*h->source)
            tern_strbuf_printf(&out, "%s:%d", h->source, (int)h->first_line);
        else
            tern_strbuf_printf(&out, "record %lld", (long long)h->record);
        tern_strbuf_printf(&out, "%s%s\n%s", *h->heading ? ", " : "", h->heading, h->text);
    }
    if (ok && hits->n == 0) tern_strbuf_puts(&out, "[nothing in the memory has to do with that]");
    if (ok)
        agent_tool_put(put, put_user, &out);
    else
        agent_tool_fail(put, put_user, "%s", query.len ? err.message : "there is no query");
    tern_memory_hits_free(hits);
    tern_strbuf_free(&out);
    tern_json_free(&doc);
    return ok;
}

static void free_search(void *user) { tern_free(user); }

tern_status agent_add_memory(agent_tools *t, tern_memory_store *store, tern_model *reranker,
                             int32_t n_candidates, tern_error *err) {
    agent_tool *tool;
    memory_search *m = tern_alloc(TERN_MEM_MISC, sizeof *m);
    if (!m) return tern_fail_memory(err, sizeof *m);
    *m = (memory_search){store, reranker, n_candidates};
    const tern_status status = agent_tools_add(
        t, "search_memory", "Finds passages in the user's notes and documents.",
        "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\",\"description\":"
        "\"A question, or words\"}},\"required\":[\"query\"],\"additionalProperties\":false}",
        &tool, err);
    if (status != TERN_OK) {
        tern_free(m);
        return status;
    }
    tool->run = run_search;
    tool->user = m;
    tool->free = free_search;
    return TERN_OK;
}
