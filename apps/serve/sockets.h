// Sockets by the names of POSIX, on Windows, too. Functions that report errors by errno elsewhere
// report them by WSAGetLastError() there: evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()).
#ifndef TERN_SERVE_SOCKETS_H
#define TERN_SERVE_SOCKETS_H

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN // its names of certificates are not OpenSSL's
#include <winsock2.h>
#include <ws2tcpip.h>
#define SHUT_WR     SD_SEND
#define WAKE_FAMILY AF_INET // libevent makes a pair of them
// Before the first call of one; nothing ends it but the process.
static inline void sockets_begin(void) {
    WSADATA about;
    WSAStartup(MAKEWORD(2, 2), &about);
}
#else
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#define WAKE_FAMILY AF_UNIX
static inline void sockets_begin(void) {
    signal(SIGPIPE, SIG_IGN); // a client that has gone is an error of the write
}
#endif

#endif
