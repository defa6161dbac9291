// The tools that tern agent has: programs that files describe, folders, a memory, sums, skills, and
// what MCP servers offer (mcp.h). Each is one more row of a list; the loop is the library's
// (tern_agent.h). docs/agent.md tells of them.
#ifndef TERN_AGENT_TOOLS_H
#define TERN_AGENT_TOOLS_H

#include "base/status.h"
#include "base/strbuf.h"
#include "tern_agent.h"
#include "tern_memory.h"

typedef struct agent_tools agent_tools;

typedef struct agent_tool {
    char *name, *description, *parameters; // its own
    const char *from; // for people: a file, a server's name; lives as long as what user is
    bool is_harmless; // it reaches nothing but its arguments: nobody need be asked
    tern_agent_tool_fn run;
    void *user;
    void (*free)(void *user); // NULL: nothing is to be freed
} agent_tool;

struct agent_tools {  // zero-initialise
    agent_tool *list; // [n]
    size_t n, capacity;
    bool (*was_stopped)(void); // asked while something is waited for; NULL: never
    bool shows_errors;         // of servers, on standard error
    size_t result_bytes;       // that the model reads at most; 0: any number
    // Shows a server's question and reads a line of the user's answer, without its end. False: he
    // has ended it. NULL: there is nobody to be asked.
    bool (*ask)(void *user, const char *question, size_t n, tern_strbuf *line);
    void (*note)(void *user, const char *line); // what people should know; NULL: nobody listens
    void *user;                                 // of both
};

// A new last row, with copies of the three texts. parameters: NULL: it takes nothing. Fails if the
// name is taken.
tern_status agent_tools_add(agent_tools *t, const char *name, const char *description,
                            const char *parameters, agent_tool **out, tern_error *err);
// Makes a name another one if it is taken: NAME_2, NAME_3 ... Whether it was.
#define AGENT_NAME_BYTES 65 // that a name takes at most, with its end
bool agent_tools_make_distinct(const agent_tools *t, char name[AGENT_NAME_BYTES]);
void agent_tools_free(agent_tools *t);
static inline bool agent_was_stopped(const agent_tools *t) {
    return t->was_stopped && t->was_stopped();
}

// A program, by the file that describes it.
tern_status agent_add_program(agent_tools *t, const char *path, tern_error *err);
// Files and folders below `root`: list_folder and read_file.
tern_status agent_add_folder(agent_tools *t, const char *root, tern_error *err);
// Sums: calculate.
tern_status agent_add_calculator(agent_tools *t, tern_error *err);
// What a memory knows: search_memory. The store must outlive the tools, and so must the reranker,
// if there is one (NULL: none); it reads n_candidates (0: as many as recall has it).
tern_status agent_add_memory(agent_tools *t, tern_memory_store *store, tern_model *reranker,
                             int32_t n_candidates, tern_error *err);
// Skills: the folders in these that have a SKILL.md, or these themselves: read_skill. put gets
// lines for the system text, with a name and a description each.
tern_status agent_add_skills(agent_tools *t, const char *const *folders, size_t n_folders,
                             tern_text_fn put, void *put_user, tern_error *err);

// ---- For the tools -----------------------------------------------------------------------------

// A regular file of at most n_most bytes; a longer one is refused.
tern_status agent_read_file(tern_strbuf *out, const char *path, size_t n_most, tern_error *err);
// What a tool that fails says, by put; false, for `return`.
bool agent_tool_fail(tern_text_fn put, void *put_user, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool agent_tool_put(tern_text_fn put, void *put_user, const tern_strbuf *text); // true

// calculate.c: the value of an expression, exactly: a decimal, or a fraction with an approximation.
tern_status agent_calculate(const char *expression, size_t n, tern_strbuf *out, tern_error *err);
// skills.c: the front matter of a SKILL.md, and where the text after it begins. For tests.
typedef struct skill_head {
    tern_strbuf name, description;
    size_t body;
} skill_head;
tern_status skill_read_head(skill_head *out, const char *text, size_t n, tern_error *err);
void skill_free_head(skill_head *h);

#endif
