// What tern lacks on Windows so far, in place of the commands.
#include "apps/cli/console/cli.h"

static int left_out(const command *self) {
    return fail("%s: this tern was built without it, as there is none for Windows yet", self->name);
}

int cmd_serve(const command *self, int argc, char **argv) {
    (void)argc, (void)argv;
    return left_out(self);
}
int cmd_mcp(const command *self, int argc, char **argv) { return cmd_serve(self, argc, argv); }
int cmd_agent(const command *self, int argc, char **argv) { return cmd_serve(self, argc, argv); }
