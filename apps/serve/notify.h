// Messages to a service manager: systemd's protocol, sd_notify(3), which others speak, too. Each
// message is lines NAME=VALUE in one datagram to the Unix socket that NOTIFY_SOCKET names.
#ifndef TERN_SERVE_NOTIFY_H
#define TERN_SERVE_NOTIFY_H

// Sends a message; without NOTIFY_SOCKET nothing happens. A manager that does not listen is a line
// in the log, and no more. Of the loop's thread.
void notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Seconds between two messages "WATCHDOG=1", after which the manager takes this process for dead;
// 0: it wants none.
double notify_watchdog_seconds(void);

#endif
