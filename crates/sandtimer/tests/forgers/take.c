/* A builtin for bash that does to the channel of its session what a script cannot: `take look` prints whether it is open, `take on`
   receives from it for ever, and `take fork` leaves a child that does, without calling the C library's fork(). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHANNEL = 240, BUILTIN_ENABLED = 1 };

struct word { char *text; int flags; };
struct list { struct list *next; struct word *word; };

struct builtin {
    char *name;
    int (*function)(struct list *);
    int flags;
    char *const *long_description;
    const char *short_description;
    char *handle;
};

static void receive_for_ever(void)
{
    char packet[4096];
    /* The kernel gives a packet to the process that has waited longest. */
    while (syscall(SYS_recvfrom, CHANNEL, packet, sizeof packet, 0, 0, 0) > 0)
        ;
}

static int take(struct list *arguments)
{
    const char *what = arguments ? arguments->word->text : "";
    char byte;
    if (!strcmp(what, "look")) {
        long length = syscall(SYS_recvfrom, CHANNEL, &byte, 1, MSG_DONTWAIT | MSG_PEEK, 0, 0);
        puts(length < 0 && errno != EAGAIN ? "closed" : "open");
        return fflush(stdout);
    }
    if (!strcmp(what, "fork")) {
        if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != 0)
            return 0;
        syscall(SYS_setsid);
        receive_for_ever();
        syscall(SYS_exit_group, 1);
    }
    receive_for_ever();
    return 1;
}

static char *const description[] = { "Receives from the channel.", 0 };
struct builtin take_struct = { "take", take, BUILTIN_ENABLED, description, "take look|on|fork", 0 };
