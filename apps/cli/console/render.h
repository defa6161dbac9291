// Text on a terminal as it is generated: words wrapped at the window's width, Markdown shown in
// styles.
#ifndef TERN_CLI_RENDER_H
#define TERN_CLI_RENDER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct renderer renderer;

// For standard output. wrap: at the window's current width. styled: bold, headings and code by
// escape sequences; else the text stays unchanged, except for control characters.
renderer *render_open(bool wrap, bool styled);
// Whole characters of UTF-8. False when standard output failed.
bool render_text(renderer *r, const char *text, size_t n);
// Writes the held-back text and a newline, unless nothing was rendered, and closes the renderer.
bool render_close(renderer *r);

// Whether standard output is a terminal that understands styles and NO_COLOR is not set.
bool render_may_style(void);

#endif
