// The tools of tern agent: programs described by files, folders, a memory, a calculator, skills,
// and the tools of MCP servers (mcp_client.h). Each is a row of a list; the loop is the library's
// (tern_agent.h). docs/agent.md documents them.
#ifndef TERN_AGENT_TOOLS_H
#define TERN_AGENT_TOOLS_H

#include "base/status.h"
#include "base/strbuf.h"
#include "tern_agent.h"
#include "tern_memory.h"

typedef struct agent_tools agent_tools;

typedef struct agent_tool {
    char *name, *description, *parameters; // owned
    const char *from; // for the user: a file, a server's name; lives as long as `user`
    bool is_harmless; // it reaches nothing but its arguments: needs no permission
    tern_agent_tool_fn run;
    void *user;
    void (*free)(void *user); // NULL: nothing to free
} agent_tool;

struct agent_tools {  // zero-initialise
    agent_tool *list; // [n]
    size_t n, capacity;
    bool (*was_stopped)(void); // polled while a tool waits; NULL: never
    bool shows_errors;         // of servers, on standard error
    size_t result_bytes;       // most that the model reads; 0: any number
    // Shows a server's question and reads a line of the user's answer, without its end. False: he
    // has ended the input. NULL: there is no user to ask.
    bool (*ask)(void *user, const char *question, size_t n, tern_strbuf *line);
    void (*note)(void *user, const char *line); // a message for the user; NULL: none are shown
    void *user;                                 // for both
};

// Appends a tool, with copies of the three texts. parameters NULL: it takes none. Fails if the name
// is taken.
tern_status agent_tools_add(agent_tools *t, const char *name, const char *description,
                            const char *parameters, agent_tool **out, tern_error *err);
// Changes a name that is taken: NAME_2, NAME_3 ... Returns whether it was.
#define AGENT_NAME_BYTES 65 // of a name at most, with the terminating 0
bool agent_tools_make_distinct(const agent_tools *t, char name[AGENT_NAME_BYTES]);
void agent_tools_free(agent_tools *t);
static inline bool agent_was_stopped(const agent_tools *t) {
    return t->was_stopped && t->was_stopped();
}

// Adds a program, by the file that describes it.
tern_status agent_add_program(agent_tools *t, const char *path, tern_error *err);
// Adds list_folder and read_file for files and folders below `root`.
tern_status agent_add_folder(agent_tools *t, const char *root, tern_error *err);
// Adds calculate.
tern_status agent_add_calculator(agent_tools *t, tern_error *err);
// Adds search_memory. The store must outlive the tools, and so must the reranker, if there is one
// (NULL: none); it reads n_candidates (0: recall's default).
tern_status agent_add_memory(agent_tools *t, tern_memory_store *store, tern_model *reranker,
                             int32_t n_candidates, tern_error *err);
// Adds read_skill for the skills in these folders: subfolders that have a SKILL.md, or the folders
// themselves. put gets lines for the system prompt, each with a name and a description.
tern_status agent_add_skills(agent_tools *t, const char *const *folders, size_t n_folders,
                             tern_text_fn put, void *put_user, tern_error *err);

// ---- For the tools -----------------------------------------------------------------------------

// A regular file of at most n_most bytes; a longer one is refused.
tern_status agent_read_file(tern_strbuf *out, const char *path, size_t n_most, tern_error *err);
// Writes a failed tool's message by put; returns false, for `return`.
bool agent_tool_fail(tern_text_fn put, void *put_user, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool agent_tool_put(tern_text_fn put, void *put_user, const tern_strbuf *text); // true

// calculate.c: the value of an expression in doubles.
tern_status agent_calculate(const char *expression, size_t n, tern_strbuf *out, tern_error *err);
// skills.c: the front matter of a SKILL.md, and where the text after it begins. Public for tests.
typedef struct skill_head {
    tern_strbuf name, description;
    size_t body;
} skill_head;
tern_status skill_read_head(skill_head *out, const char *text, size_t n, tern_error *err);
void skill_free_head(skill_head *h);

#endif
