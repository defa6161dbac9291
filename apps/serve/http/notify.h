// Messages to a service manager: systemd's protocol, sd_notify(3), which other managers use, too. A
// message is lines NAME=VALUE in one datagram to the Unix socket that NOTIFY_SOCKET names.
#ifndef TERN_SERVE_NOTIFY_H
#define TERN_SERVE_NOTIFY_H

// Sends a message, from the loop's thread; does nothing without NOTIFY_SOCKET. If the manager does
// not listen, this is only logged.
void notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Seconds without a message "WATCHDOG=1" after which the manager takes this process for dead; 0: it
// wants none.
double notify_watchdog_seconds(void);

#endif
