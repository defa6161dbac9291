// The parts of tern chat: cmd_chat.c asks and answers, chat_commands.c executes commands.
#ifndef TERN_CLI_CHAT_H
#define TERN_CLI_CHAT_H

#include "apps/cli/console/cli.h"
#include "cli_images.h"

typedef struct chat {
    tern_model *model;
    tern_session *session;
    tern_chat *talk;
    // Images of the conversation, open until its end; the last n_waiting go with the next question.
    tern_image_tokens **images;
    int n_images, n_waiting;
    sampling_args sampling;
    tern_chat_stats last;
    unsigned n_again; // answers regenerated since the last question
    // interactive: standard input and output are a terminal. failed: some command failed.
    bool interactive, verbose, visualize, said_dropped, failed;
    int speed, markdown, wrap; // switched by /set
} chat;

typedef struct chat_args {
    model_args model;
    session_args session;
    sampling_args sampling; // its lists are the caller's
    speculation_args speculation;
    const char *system;
    string_list images;
} chat_args;
// The conversation of tern chat; returns the exit status.
int chat_open(const command *self, chat_args *args);

// Prints one line on what went wrong and remembers it for the exit status.
void chat_fail(chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Reads images, which go with the next question. False after printing why one cannot be read.
bool chat_look(chat *c, const char **paths, int n);
// Answers the last message, a user's. A failed answer is not added to the conversation.
void chat_answer(chat *c);
// Executes a line that begins with '/'. False: leave.
bool chat_obey(chat *c, const char *line);
// A line_complete_fn; user: chat *.
size_t chat_complete(void *user, const char *line, string_list *out);
// A remark next to the conversation; on a terminal in a faint colour, if it has one.
void chat_remark(const chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
